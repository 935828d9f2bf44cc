// The driver finds the stand-ins for the vendors' libraries by the environment;
// with HEDDLE_TEST_REAL=1 the vendors' own, for tests that ask nothing of the
// stand-ins: CudaCapturable, and all that begin with CudaCaptured.
#include <cstdlib>
#include <gtest/gtest.h>

int main(int argc, char **argv)
{
    testing::InitGoogleTest(&argc, argv);
    setenv("HEDDLE_TEST_DEVICE", "cuda", 1);
    if (getenv("HEDDLE_TEST_REAL") != nullptr)
        return RUN_ALL_TESTS();
    setenv("HEDDLE_CUDA_LIB", FAKE_CUDA_PATH, 1);
    setenv("HEDDLE_CUBLASLT_LIB", FAKE_CUBLASLT_PATH, 1);
    setenv("HEDDLE_CUDNN_LIB", FAKE_CUDNN_PATH, 1);
    setenv("HEDDLE_NVRTC_LIB", FAKE_NVRTC_PATH, 1);
    setenv("HEDDLE_NCCL_LIB", FAKE_NCCL_PATH, 1);
    setenv("HEDDLE_NVSHMEM_LIB", FAKE_NVSHMEM_PATH, 1);
    setenv("HEDDLE_CUBLASMP_LIB", FAKE_CUBLASMP_PATH, 1);
    setenv("FAKE_NVRTC_CACHE", FAKE_NVRTC_FOLDER, 1);
    return RUN_ALL_TESTS();
}

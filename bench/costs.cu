// Measures what a machine file needs (docs/simulate.md) on one host with one or
// two GPUs: host time to issue, device time between dependent kernels, memory
// bandwidth, copies between two GPUs, and a hop of copy and signal. Medians.
//
//   nvcc -O2 -o costs bench/costs.cu -lcuda && ./costs
#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#define CHECK(call)                                                \
    do {                                                           \
        auto result = call;                                        \
        if (result != 0) {                                         \
            fprintf(stderr, "%s: error %d\n", #call, (int)result); \
            exit(1);                                               \
        }                                                          \
    } while (0)

static double Now()
{
    return std::chrono::duration<double>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

static double Median(int runs, const std::function<double()> &run)
{
    std::vector<double> times;

    run();
    for (int i = 0; i < runs; i++)
        times.push_back(run());
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

__global__ void Touch(float *x)
{
    x[threadIdx.x] += 1;
}

__global__ void Triad(const float4 *a, const float4 *b, float4 *c, size_t n)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x) {
        float4 x = a[i], y = b[i];

        c[i] = make_float4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w);
    }
}

// Host and device time of `n` calls of `issue`, in us a call.
static void Report(const char *what, int n, const std::function<void()> &issue,
                   cudaStream_t stream)
{
    double host = Median(11, [&] {
        CHECK(cudaStreamSynchronize(stream));
        double start = Now();
        for (int i = 0; i < n; i++)
            issue();
        return (Now() - start) / n * 1e6;
    });
    double whole = Median(11, [&] {
        CHECK(cudaStreamSynchronize(stream));
        double start = Now();
        for (int i = 0; i < n; i++)
            issue();
        CHECK(cudaStreamSynchronize(stream));
        return (Now() - start) / n * 1e6;
    });

    printf("%-44s host %7.2f us  host and device %7.2f us\n", what, host,
           whole);
}

static void OneGpu()
{
    cudaStream_t stream, other;
    cudaEvent_t event;
    float *x;
    size_t bytes = (size_t)1 << 30;
    void *a, *b, *c;
    CUdeviceptr word;

    CHECK(cudaSetDevice(0));
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    CHECK(cudaMalloc(&x, 1 << 20));
    CHECK(cudaMalloc(&a, bytes));
    CHECK(cudaMalloc(&b, bytes));
    CHECK(cudaMalloc(&c, bytes));
    CHECK(cudaMemset(a, 1, bytes));
    CHECK(cudaMemset(b, 2, bytes));
    CHECK(cuMemAlloc(&word, 4096));
    Report(
        "kernel of one block, dependent", 500,
        [&] { Touch<<<1, 32, 0, stream>>>(x); }, stream);
    Report(
        "copy of 4 KB on the device", 500,
        [&] {
            CHECK(
                cudaMemcpyAsync(b, a, 4096, cudaMemcpyDeviceToDevice, stream));
        },
        stream);
    Report(
        "event record", 500, [&] { CHECK(cudaEventRecord(event, stream)); },
        stream);
    Report(
        "event record, wait on another stream", 500,
        [&] {
            CHECK(cudaEventRecord(event, stream));
            CHECK(cudaStreamWaitEvent(other, event, 0));
        },
        stream);
    Report(
        "stream write value, wait value", 500,
        [&] {
            CHECK(cuStreamWriteValue32(stream, word, 1, 0));
            CHECK(
                cuStreamWaitValue32(stream, word, 1, CU_STREAM_WAIT_VALUE_GEQ));
        },
        stream);
    double seconds = Median(11, [&] {
        CHECK(cudaStreamSynchronize(stream));
        double start = Now();
        for (int i = 0; i < 10; i++)
            Triad<<<132 * 8, 512, 0, stream>>>((float4 *)a, (float4 *)b,
                                               (float4 *)c, bytes / 16);
        CHECK(cudaStreamSynchronize(stream));
        return (Now() - start) / 10;
    });
    printf("%-44s %.2f TB/s\n", "element-wise, 2 GiB read, 1 written",
           3.0 * (double)bytes / seconds * 1e-12);
    CHECK(cudaFree(a));
    CHECK(cudaFree(b));
    CHECK(cudaFree(c));
}

// Puts from GPU 0 to 1 by copy engine, alone and with one the other way.
static void Copies(cudaStream_t *stream, char **buffer)
{
    for (size_t bytes = 4096; bytes <= (size_t)512 << 20; bytes *= 8) {
        int n = bytes < (1 << 24) ? 50 : 5;
        double one = Median(11, [&] {
            double start = Now();
            for (int i = 0; i < n; i++)
                CHECK(cudaMemcpyAsync(buffer[1], buffer[0], bytes,
                                      cudaMemcpyDefault, stream[0]));
            CHECK(cudaStreamSynchronize(stream[0]));
            return (Now() - start) / n;
        });
        double both = Median(11, [&] {
            double start = Now();
            for (int i = 0; i < n; i++) {
                CHECK(cudaMemcpyAsync(buffer[1], buffer[0], bytes,
                                      cudaMemcpyDefault, stream[0]));
                CHECK(cudaMemcpyAsync(buffer[0] + bytes, buffer[1] + bytes,
                                      bytes, cudaMemcpyDefault, stream[1]));
            }
            CHECK(cudaStreamSynchronize(stream[0]));
            CHECK(cudaStreamSynchronize(stream[1]));
            return (Now() - start) / n;
        });

        printf("put of %9zu bytes %24.2f us  %6.1f GB/s  both ways %6.1f GB/s "
               "each\n",
               bytes, one * 1e6, (double)bytes / one * 1e-9,
               (double)bytes / both * 1e-9);
    }
}

// There and back: each side waits for its word, copies, and writes the other's.
static void Hops(cudaStream_t *stream, char **buffer, CUdeviceptr *word)
{
    static unsigned value;

    for (size_t bytes : {(size_t)4096, (size_t)1 << 20, (size_t)8 << 20}) {
        int n = 100;
        double hop = Median(11, [&] {
            double start = Now();
            for (int i = 0; i < n; i++) {
                value++;
                CHECK(cudaMemcpyAsync(buffer[1], buffer[0], bytes,
                                      cudaMemcpyDefault, stream[0]));
                CHECK(cuStreamWriteValue32(stream[0], word[1], value, 0));
                CHECK(cuStreamWaitValue32(stream[1], word[1], value,
                                          CU_STREAM_WAIT_VALUE_GEQ));
                CHECK(cudaMemcpyAsync(buffer[0], buffer[1], bytes,
                                      cudaMemcpyDefault, stream[1]));
                CHECK(cuStreamWriteValue32(stream[1], word[0], value, 0));
                CHECK(cuStreamWaitValue32(stream[0], word[0], value,
                                          CU_STREAM_WAIT_VALUE_GEQ));
            }
            CHECK(cudaStreamSynchronize(stream[0]));
            return (Now() - start) / (2 * n);
        });

        printf("hop: wait, copy of %8zu bytes, signal %8.2f us\n", bytes,
               hop * 1e6);
    }
}

static void TwoGpus()
{
    cudaStream_t stream[2];
    char *buffer[2];
    CUdeviceptr word[2];

    for (int i = 0; i < 2; i++) {
        CHECK(cudaSetDevice(i));
        CHECK(cudaDeviceEnablePeerAccess(1 - i, 0));
        CHECK(cudaStreamCreateWithFlags(&stream[i], cudaStreamNonBlocking));
        CHECK(cudaMalloc(&buffer[i], (size_t)1 << 30));
        CHECK(cudaMemset(buffer[i], 1, (size_t)1 << 30));
        CHECK(cuMemAlloc(&word[i], 4096));
        CHECK(cuMemsetD32(word[i], 0, 1024));
        CHECK(cudaDeviceSynchronize());
    }
    Copies(stream, buffer);
    Hops(stream, buffer, word);
}

int main()
{
    int gpus = 0;
    cudaDeviceProp about;

    CHECK(cudaGetDeviceCount(&gpus));
    CHECK(cudaGetDeviceProperties(&about, 0));
    printf("%d x %s, %d multiprocessors\n", gpus, about.name,
           about.multiProcessorCount);
    OneGpu();
    if (gpus > 1)
        TwoGpus();
    return 0;
}

// Kernels by way of fake_nvrtc, and products by fake_cublaslt against a plain
// sum.
#include <cmath>
#include <cstring>
#include <random>

#include <heddle/verify.h>

#include "base/dtype.h"
#include "children.h"
#include "codegen/nvrtc.h"

namespace
{

const char doubles[] =
    "typedef struct hd_kernel_args { unsigned long long at[2]; }\n"
    "    hd_kernel_args;\n"
    "static __device__ __forceinline__ int twice(int x) { return 2 * x; }\n"
    "extern \"C\" __global__ void __launch_bounds__(32)\n"
    "hd_kernel(const hd_kernel_args args)\n"
    "{\n"
    "    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;\n"
    "    if (i < 100)\n"
    "        ((int *)args.at[0])[i] = twice(((const int *)args.at[1])[i]) +\n"
    "                                 (int)gridDim.x;\n"
    "}\n";

struct Args {
    uint64_t at[2];
};

void *Name(uintptr_t what)
{
    return reinterpret_cast<void *>(what);
}

// Of 4 blocks of 32 threads.
hd_cu_launch_config Shape(hd_cu_stream stream)
{
    hd_cu_launch_config config{};

    for (int d = 0; d < 3; d++)
        config.grid[d] = config.block[d] = 1;
    config.grid[0] = 4;
    config.block[0] = 32;
    config.stream = stream;
    return config;
}

hd_status Compile(const char *text, std::string *out, std::string *why)
{
    hd_nvrtc *nvrtc = nullptr;
    hd_diag *diag = hd_diag_create();
    void *image = nullptr;
    size_t bytes = 0;
    hd_status status;

    setenv("HEDDLE_NVRTC_LIB", FAKE_NVRTC_PATH, 1);
    EXPECT_EQ(hd_nvrtc_open(diag, &nvrtc), HD_OK);
    status = hd_nvrtc_compile(nvrtc, text, "sm_90a", diag, &image, &bytes);
    if (status == HD_OK)
        out->assign(static_cast<char *>(image), bytes);
    *why = hd_diag_text(diag);
    free(image);
    hd_nvrtc_close(nvrtc);
    hd_diag_destroy(diag);
    return status;
}

TEST(FakeKernel, RunsEveryThreadOfEveryBlock)
{
    InChildren(1, [](Rank &r) {
        hd_cu_stream stream = r.Stream();
        hd_cu_module module = nullptr;
        hd_cu_function function = nullptr;
        std::vector<int> values(100);
        std::string image, why;
        Args args{};
        size_t bytes = sizeof(args);
        void *extra[] = {Name(HD_CU_LAUNCH_BUFFER), &args,
                         Name(HD_CU_LAUNCH_BUFFER_SIZE), &bytes,
                         Name(HD_CU_LAUNCH_END)};
        hd_cu_launch_config config = Shape(stream);

        for (int i = 0; i < 100; i++)
            values[static_cast<size_t>(i)] = 7 * i - 300;
        ASSERT_EQ(Compile(doubles, &image, &why), HD_OK) << why;
        ASSERT_EQ(r.cu.module_load(&module, image.data()), 0);
        EXPECT_EQ(r.cu.module_function(&function, module, "no_kernel"), 500);
        ASSERT_EQ(r.cu.module_function(&function, module, "hd_kernel"), 0);
        hd_cu_ptr from = r.Put(values), to = r.Memory(400);
        args.at[0] = to;
        args.at[1] = from;
        EXPECT_EQ(r.cu.launch(&config, function, nullptr, extra), 0);
        args.at[0] = 64; // read at the launch
        EXPECT_EQ(r.cu.stream_synchronize(stream), 0);
        for (int &value : values)
            value = 2 * value + 4;
        EXPECT_EQ(r.Get<int>(to, 100), values);
        EXPECT_EQ(r.cu.module_unload(module), 0);
        EXPECT_EQ(r.cu.free(from), 0);
        EXPECT_EQ(r.cu.free(to), 0);
        EXPECT_EQ(r.cu.stream_destroy(stream), 0);
    });
}

// As CUDA does.
TEST(FakeKernel, LaunchesThatMakeNoSenseAreRefused)
{
    InChildren(1, [](Rank &r) {
        hd_cu_module module = nullptr;
        hd_cu_function function = nullptr;
        std::string image, why;
        hd_cu_ptr memory = r.Memory(400);
        Args args{{memory, memory}};
        size_t bytes = sizeof(args);
        void *one[] = {&args};
        void *extra[] = {Name(HD_CU_LAUNCH_BUFFER), &args,
                         Name(HD_CU_LAUNCH_BUFFER_SIZE), &bytes,
                         Name(HD_CU_LAUNCH_END)};
        hd_cu_launch_attribute cluster{};
        unsigned(&size)[3] = cluster.value.cluster;
        auto launch = [&](auto change) {
            hd_cu_launch_config config = Shape(nullptr);

            cluster.id = HD_CU_LAUNCH_CLUSTER;
            size[0] = 2;
            size[1] = size[2] = 1;
            config.attribute = &cluster;
            config.nattributes = 1;
            change(config);
            return r.cu.launch(&config, function, nullptr, extra);
        };

        ASSERT_EQ(Compile(doubles, &image, &why), HD_OK) << why;
        ASSERT_EQ(r.cu.module_load(&module, image.data()), 0);
        ASSERT_EQ(r.cu.module_function(&function, module, "hd_kernel"), 0);
        hd_cu_launch_config plain = Shape(nullptr);
        EXPECT_EQ(r.cu.launch(&plain, function, one, extra), 1);
        EXPECT_EQ(r.cu.launch(&plain, function, nullptr, nullptr), 1);
        EXPECT_EQ(launch([](auto &) {}), 0);
        EXPECT_EQ(launch([](auto &c) { c.grid[2] = 0; }), 1);
        EXPECT_EQ(launch([](auto &c) { c.grid[1] = 65536; }), 1);
        EXPECT_EQ(launch([](auto &c) { c.block[1] = 33; }), 1);
        EXPECT_EQ(launch([](auto &c) { c.block[2] = 65; }), 1);
        EXPECT_EQ(launch([](auto &c) { c.shared_bytes = 48 << 10; }), 0);
        EXPECT_EQ(launch([](auto &c) { c.shared_bytes = (48 << 10) + 1; }), 1);
        EXPECT_EQ(
            r.cu.function_set(function, HD_CU_FUNCTION_SHARED_BYTES, 228 << 10),
            1);
        EXPECT_EQ(
            r.cu.function_set(function, HD_CU_FUNCTION_SHARED_BYTES, 96 << 10),
            0);
        EXPECT_EQ(launch([](auto &c) { c.shared_bytes = 96 << 10; }), 0);
        EXPECT_EQ(launch([](auto &c) { c.attribute = nullptr; }), 1);
        EXPECT_EQ(launch([&](auto &) { size[0] = 3; }), 1);
        EXPECT_EQ(launch([&](auto &c) { c.grid[0] = size[0] = 16; }), 912);
        EXPECT_EQ(launch([&](auto &) { cluster.id = 99; }), 1);
        bytes--;
        EXPECT_EQ(launch([](auto &) {}), 1);
        EXPECT_EQ(r.cu.stream_synchronize(nullptr), 0);
        EXPECT_EQ(r.cu.module_unload(module), 0);
        EXPECT_EQ(r.cu.free(memory), 0);
    });
}

TEST(FakeKernel, ThatReachesNowhereBreaksTheContext)
{
    InChildren(1, [](Rank &r) {
        hd_cu_module module = nullptr;
        hd_cu_function function = nullptr;
        std::string image, why;
        Args args{};
        void *parameters[] = {&args};
        hd_cu_launch_config config = Shape(nullptr);

        ASSERT_EQ(Compile(doubles, &image, &why), HD_OK) << why;
        ASSERT_EQ(r.cu.module_load(&module, image.data()), 0);
        ASSERT_EQ(r.cu.module_function(&function, module, "hd_kernel"), 0);
        args.at[1] = uint64_t{1} << 40;
        EXPECT_EQ(r.cu.launch(&config, function, parameters, nullptr), 0);
        EXPECT_EQ(r.cu.stream_synchronize(nullptr), 700);
        EXPECT_EQ(r.cu.module_unload(module), 0);
    });
}

TEST(FakeKernel, ThatIsNoCodeIsRefusedWithALog)
{
    InChildren(1, [](Rank &r) {
        std::string image, why;
        hd_cu_module module;

        EXPECT_EQ(Compile("int f( {", &image, &why), HD_ERROR_SYSTEM);
        EXPECT_NE(why.find("error"), std::string::npos) << why;
        EXPECT_EQ(r.cu.module_load(&module, "\177ELF and so on, no fake"), 200);
    });
}

// ------------------------------------------------------------ products

struct Case {
    int type, type_d;
    hd_dtype dtype, dtype_d;
    int ta, tb;
    uint32_t epilogue;
    float alpha, beta;
};

class Numbers
{
  public:
    hd_dtype dtype;
    std::vector<char> bytes;
    std::vector<double> values; // as they are after rounding

    Numbers(hd_dtype of, size_t n, unsigned seed)
        : dtype(of), bytes(n * hd_dtype_size(of)), values(n)
    {
        std::mt19937 random(seed);
        std::uniform_real_distribution<double> between(-1, 1);

        for (double &value : values)
            value = between(random);
        hd_dtype_store(dtype, values.data(), n, bytes.data());
        hd_dtype_load(dtype, bytes.data(), n, values.data());
    }
};

constexpr uint64_t M = 16, N = 5, K = 32;
constexpr uint64_t kApart = 64; // columns of a C that is not D

double Gelu(double x)
{
    return 0.5 * x *
           (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

class Product
{
  public:
    Rank &r;
    Case c;
    hd_lt_handle handle = nullptr;
    hd_lt_desc desc = nullptr;
    hd_lt_layout layout[4] = {}; // the last of a C that is not D
    hd_lt_preference preference = nullptr;
    hd_lt_heuristic best{};
    int found = 0;

    Product(Rank &rank, const Case &what) : r(rank), c(what)
    {
        bool wide = c.type == HD_LT_F64;
        uint64_t room = 1 << 20;

        EXPECT_EQ(r.lt.create(&handle), 0);
        EXPECT_EQ(r.lt.desc_create(&desc,
                                   wide ? HD_LT_COMPUTE_64F : HD_LT_COMPUTE_32F,
                                   wide ? HD_LT_F64 : HD_LT_F32),
                  0);
        Set(HD_LT_DESC_TRANSA, c.ta);
        Set(HD_LT_DESC_TRANSB, c.tb);
        Set(HD_LT_DESC_EPILOGUE, c.epilogue);
        Layout(0, c.type, c.ta ? K : M, c.ta ? M : K, c.ta ? K : M);
        Layout(1, c.type, c.tb ? N : K, c.tb ? K : N, c.tb ? N : K);
        Layout(2, c.type_d, M, N, M);
        Layout(3, c.type_d, M, N, kApart);
        EXPECT_EQ(r.lt.preference_create(&preference), 0);
        EXPECT_EQ(r.lt.preference_set(preference, HD_LT_PREF_MAX_WORKSPACE,
                                      &room, sizeof(room)),
                  0);
    }

    ~Product()
    {
        for (hd_lt_layout one : layout)
            EXPECT_EQ(r.lt.layout_destroy(one), 0);
        EXPECT_EQ(r.lt.preference_destroy(preference), 0);
        EXPECT_EQ(r.lt.desc_destroy(desc), 0);
        EXPECT_EQ(r.lt.destroy(handle), 0);
    }

    template <class T> void Set(int attribute, T value)
    {
        EXPECT_EQ(r.lt.desc_set(desc, attribute, &value, sizeof(value)), 0);
    }

    int Ask(int added = 2)
    {
        return r.lt.heuristic(handle, desc, layout[0], layout[1], layout[added],
                              layout[2], preference, 1, &best, &found);
    }

    int Run(hd_cu_ptr a, hd_cu_ptr b, hd_cu_ptr d, hd_cu_ptr workspace,
            hd_cu_stream stream)
    {
        return Add(a, b, d, 2, d, workspace, stream);
    }

    int Add(hd_cu_ptr a, hd_cu_ptr b, hd_cu_ptr more, int added, hd_cu_ptr d,
            hd_cu_ptr workspace, hd_cu_stream stream)
    {
        double alpha = c.alpha, beta = c.beta;
        bool wide = c.type == HD_LT_F64;
        const void *scale = wide ? static_cast<void *>(&alpha) : &c.alpha;
        const void *old = wide ? static_cast<void *>(&beta) : &c.beta;
        void *to = reinterpret_cast<void *>(d);

        return r.lt.matmul(handle, desc, scale, reinterpret_cast<void *>(a),
                           layout[0], reinterpret_cast<void *>(b), layout[1],
                           old, reinterpret_cast<void *>(more), layout[added],
                           to, layout[2], &best.algo,
                           reinterpret_cast<void *>(workspace), best.workspace,
                           stream);
    }

  private:
    void Layout(int which, int type, uint64_t rows, uint64_t columns,
                uint64_t ld)
    {
        EXPECT_EQ(r.lt.layout_create(&layout[which], type, rows, columns,
                                     static_cast<int64_t>(ld)),
                  0);
    }
};

void CheckProduct(Rank &r, const Case &c)
{
    bool bias = (c.epilogue & HD_LT_EPILOGUE_BIAS) != 0;
    bool aux = (c.epilogue & 128) != 0;
    Numbers a(c.dtype, M * K, 1), b(c.dtype, K * N, 2);
    Numbers d(c.dtype_d, M * N, 3), add(c.dtype_d, M, 4);
    hd_cu_ptr at[] = {r.Put(a.bytes),   r.Put(b.bytes), r.Put(d.bytes),
                      r.Put(add.bytes), r.Put(d.bytes), r.Memory(1 << 20)};
    hd_cu_stream stream = r.Stream();
    double unit = hd_dtype_unit(c.dtype_d) + hd_dtype_unit(HD_DTYPE_F32);

    {
        Product p(r, c);

        p.Set(HD_LT_DESC_BIAS_POINTER, at[3]);
        p.Set(HD_LT_DESC_EPILOGUE_AUX_POINTER, at[4]);
        p.Set(HD_LT_DESC_EPILOGUE_AUX_LD, static_cast<int64_t>(M));
        ASSERT_EQ(p.Ask(), 0);
        ASSERT_EQ(p.found, 1);
        ASSERT_EQ(p.Run(at[0], at[1], at[2], at[5], stream), 0);
    }
    EXPECT_EQ(r.cu.stream_synchronize(stream), 0);
    std::vector<char> got = r.Get<char>(at[2], d.bytes.size());
    std::vector<char> kept = r.Get<char>(at[4], d.bytes.size());
    std::vector<double> value(M * N), before(M * N);
    hd_dtype_load(c.dtype_d, got.data(), M * N, value.data());
    hd_dtype_load(c.dtype_d, kept.data(), M * N, before.data());
    for (size_t j = 0; j < N; j++) {
        for (size_t i = 0; i < M; i++) {
            double sum = 0;

            for (size_t k = 0; k < K; k++)
                sum += a.values[c.ta ? i * K + k : k * M + i] *
                       b.values[c.tb ? k * N + j : j * K + k];
            sum = c.alpha * sum + c.beta * d.values[j * M + i] +
                  (bias ? add.values[i] : 0);
            if (aux) {
                EXPECT_NEAR(before[j * M + i], sum, 40 * unit);
            }
            if ((c.epilogue & HD_LT_EPILOGUE_GELU) != 0)
                sum = Gelu(sum);
            else if ((c.epilogue & HD_LT_EPILOGUE_RELU) != 0)
                sum = std::max(sum, 0.0);
            EXPECT_NEAR(value[j * M + i], sum, 40 * unit)
                << i << ", " << j << " of " << hd_dtype_text(c.dtype);
        }
    }
    for (hd_cu_ptr one : at)
        EXPECT_EQ(r.cu.free(one), 0);
    EXPECT_EQ(r.cu.stream_destroy(stream), 0);
}

TEST(FakeProduct, IsAPlainSum)
{
    InChildren(1, [](Rank &r) {
        const uint32_t epilogues[] = {
            HD_LT_EPILOGUE_DEFAULT,  HD_LT_EPILOGUE_RELU,
            HD_LT_EPILOGUE_BIAS,     HD_LT_EPILOGUE_RELU_BIAS,
            HD_LT_EPILOGUE_GELU,     HD_LT_EPILOGUE_GELU_BIAS,
            HD_LT_EPILOGUE_GELU_AUX, HD_LT_EPILOGUE_GELU_AUX_BIAS,
        };

        for (int t = 0; t < 4; t++) {
            CheckProduct(r, {HD_LT_F32, HD_LT_F32, HD_DTYPE_F32, HD_DTYPE_F32,
                             t & 1, t >> 1, HD_LT_EPILOGUE_DEFAULT, 1.5f, 0});
            CheckProduct(r,
                         {HD_LT_F64, HD_LT_F64, HD_DTYPE_F64, HD_DTYPE_F64,
                          t & 1, t >> 1, HD_LT_EPILOGUE_DEFAULT, 1.5f, 0.5f});
        }
        for (uint32_t epilogue : epilogues) {
            CheckProduct(r, {HD_LT_BF16, HD_LT_BF16, HD_DTYPE_BF16,
                             HD_DTYPE_BF16, 0, 1, epilogue, 1, 0});
            CheckProduct(r, {HD_LT_F16, HD_LT_F32, HD_DTYPE_F16, HD_DTYPE_F32,
                             1, 0, epilogue, 0.5f, 1});
        }
        CheckProduct(r, {HD_LT_F8E4M3, HD_LT_BF16, HD_DTYPE_F8E4M3,
                         HD_DTYPE_BF16, 1, 0, HD_LT_EPILOGUE_DEFAULT, 1, 0});
    });
}

// A product in fp32 that is added to what is there.
const Case kAdding = {
    HD_LT_F32, HD_LT_F32, HD_DTYPE_F32,           HD_DTYPE_F32,
    0,         0,         HD_LT_EPILOGUE_DEFAULT, 1,
    1};

TEST(FakeProduct, AddsAMatrixThatItDoesNotTouch)
{
    InChildren(1, [](Rank &r) {
        hd_cu_ptr a = r.Put(std::vector<float>(M * K, 1));
        hd_cu_ptr b = r.Put(std::vector<float>(K * N, 2));
        Numbers c(HD_DTYPE_F32, kApart * N, 5);
        hd_cu_ptr more = r.Put(c.bytes), d = r.Memory(M * N * sizeof(float));
        hd_cu_ptr workspace = r.Memory(1 << 20);
        hd_cu_stream stream = r.Stream();

        {
            Product p(r, kAdding);

            ASSERT_EQ(p.Ask(3), 0);
            EXPECT_EQ(p.Add(a, b, more, 3, d, workspace, stream), 0);
            EXPECT_NE(p.Add(a, b, d, 3, d, workspace, stream), 0);
            EXPECT_NE(p.Run(a, b, d, workspace, stream), 0); // not asked for
            EXPECT_EQ(r.cu.stream_synchronize(stream), 0);
            std::vector<float> got = r.Get<float>(d, M * N);
            for (size_t i = 0; i < M * N; i++)
                EXPECT_EQ(got[i], 64 + float(c.values[i / M * kApart + i % M]));
            // The last column of both.
            EXPECT_EQ(p.Add(a, b, more, 3, more + 4 * kApart * (N - 1),
                            workspace, stream),
                      0);
            EXPECT_NE(r.cu.stream_synchronize(stream), 0);
        }
        for (hd_cu_ptr at : {a, b, more, d, workspace})
            EXPECT_EQ(r.cu.free(at), 700);
        EXPECT_EQ(r.cu.stream_destroy(stream), 700);
    });
}

TEST(FakeProduct, RefusesWhatTheRealOneDoes)
{
    InChildren(1, [](Rank &r) {
        Case fine = {HD_LT_F8E4M3,           HD_LT_BF16, HD_DTYPE_F8E4M3,
                     HD_DTYPE_BF16,          1,          0,
                     HD_LT_EPILOGUE_DEFAULT, 1,          0};

        for (int kind = 0; kind < 6; kind++) {
            Case c = fine;

            c.ta = kind == 1 ? 0 : c.ta;
            c.type = kind == 2 ? HD_LT_F8E5M2 : c.type;
            c.type_d = kind == 3 ? HD_LT_F64 : c.type_d;
            c.epilogue = kind == 4 ? 512 : c.epilogue;
            c.tb = kind == 5 ? 1 : c.tb;
            Product p(r, c);
            EXPECT_EQ(p.Ask() == 0, kind == 0) << kind;
            EXPECT_EQ(p.found, kind == 0 ? 1 : 0);
        }
    });
}

TEST(FakeProduct, IsCapturedAndReplayed)
{
    InChildren(1, [](Rank &r) {
        hd_cu_ptr a = r.Put(std::vector<float>(M * K, 1));
        hd_cu_ptr b = r.Put(std::vector<float>(K * N, 2));
        hd_cu_ptr d = r.Put(std::vector<float>(M * N, 0));
        hd_cu_ptr workspace = r.Memory(1 << 20);
        hd_cu_stream stream = r.Stream();
        hd_cu_graph graph = nullptr;
        hd_cu_graph_exec exec = nullptr;

        {
            Product p(r, kAdding);

            ASSERT_EQ(p.Ask(), 0);
            EXPECT_EQ(r.cu.capture_begin(stream, HD_CU_CAPTURE_RELAXED), 0);
            EXPECT_EQ(p.Run(a, b, d, workspace, stream), 0);
            EXPECT_EQ(r.cu.capture_end(stream, &graph), 0);
        }
        EXPECT_EQ(r.cu.graph_instantiate(&exec, graph, 0), 0);
        for (int i = 0; i < 3; i++)
            EXPECT_EQ(r.cu.graph_launch(exec, stream), 0);
        EXPECT_EQ(r.cu.stream_synchronize(stream), 0);
        EXPECT_EQ(r.Get<float>(d, M * N), std::vector<float>(M * N, 3 * 64));
        EXPECT_EQ(r.cu.graph_destroy(graph), 0);
        EXPECT_EQ(r.cu.graph_exec_destroy(exec), 0);
        for (hd_cu_ptr at : {a, b, d, workspace})
            EXPECT_EQ(r.cu.free(at), 0);
        EXPECT_EQ(r.cu.stream_destroy(stream), 0);
    });
}

} // namespace

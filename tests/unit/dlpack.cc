// Arrays of other libraries as arguments, on sessions of two ranks on the cpu.
// The structs are laid out here as dlpack/dlpack.h (1.0) has them.
#include <gtest/gtest.h>

#include <random>

#include <heddle/dlpack.h>

#include <heddle/async.h>

#include "tests/seed.h"
#include "tests/unit/program.h"
#include "tests/unit/ranks.h"

typedef enum { kDLCPU = 1, kDLCUDA = 2, kDLCUDAHost = 3 } DLDeviceType;
typedef struct {
    DLDeviceType device_type;
    int32_t device_id;
} DLDevice;
typedef struct {
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;
} DLDataType;
typedef struct DLTensor {
    void *data;
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t *shape;
    int64_t *strides;
    uint64_t byte_offset;
} DLTensor;
typedef struct {
    uint32_t major;
    uint32_t minor;
} DLPackVersion;
typedef struct DLManagedTensorVersioned {
    DLPackVersion version;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensorVersioned *self);
    uint64_t flags;
    DLTensor dl_tensor;
} DLManagedTensorVersioned;

namespace
{

// Each rank's %x doubled, and an argument of each dtype that there is.
const char kText[] = "host program doubled\nmesh tp=2\n"
                     "in %x : f32[size tp@tp, 3, 1, 5]\n"
                     "out %y : f32[size tp@tp, 3, 1, 5]\n"
                     "in %f64 : f64[2]\nin %f16 : f16[2]\nin %bf16 : bf16[2]\n"
                     "in %e4m3 : f8e4m3[2]\nin %e5m2 : f8e5m2[2]\n"
                     "in %i64 : i64[2]\nin %i32 : i32[2]\nin %u8 : u8[2]\n"
                     "in %go : event[]\n"
                     "{\n    %y[tp] = add %x[tp], %x[tp]\n}\n";
const DLDataType kOf[] = {{2, 64, 1}, {2, 16, 1}, {4, 16, 1}, {10, 8, 1},
                          {12, 8, 1}, {0, 64, 1}, {0, 32, 1}, {1, 8, 1}};
enum { X, Y, F64, EVENT = F64 + 8 };

// An array of floats [3, 1, 5] that begins behind some bytes.
struct Array {
    std::vector<float> memory;
    std::vector<int64_t> shape = {3, 1, 5}, strides = {5, 77, 1};
    DLManagedTensorVersioned it = {};

    Array() : memory(4 + 15, NAN)
    {
        it.version = {1, 1};
        it.dl_tensor = {memory.data(), {kDLCPU, 0}, 3, {2, 32, 1},
                        nullptr,       nullptr,     16};
        Shape();
    }
    void Shape()
    {
        it.dl_tensor.ndim = int32_t(shape.size());
        it.dl_tensor.shape = shape.data();
        it.dl_tensor.strides = strides.empty() ? nullptr : strides.data();
    }
    float *Data()
    {
        return memory.data() + 4;
    }
};

// The arguments of a run, of which a test sets %x and %y.
struct Passed {
    float small[8][4] = {};
    hd_event *go = hd_event_create();
    void *at[EVENT + 1] = {};

    Passed()
    {
        for (int i = 0; i < 8; i++)
            at[F64 + i] = small[i];
        at[EVENT] = go;
    }
    Passed(const Passed &) = delete;
    Passed &operator=(const Passed &) = delete;
    ~Passed()
    {
        hd_event_destroy(go);
    }
};

// Calls `test` on each rank with a session of the program.
void OnSessions(const std::function<void(hd_session *, hd_diag *, int)> &test)
{
    Threads(2, [&](hd_group *group) {
        Program program(kText);
        hd_session *session = nullptr;

        EXPECT_EQ(program.status, HD_OK) << program.Said();
        EXPECT_EQ(hd_session_create(group, program.module, nullptr,
                                    program.diag, &session),
                  HD_OK)
            << program.Said();
        if (session != nullptr)
            test(session, program.diag, hd_group_rank(group));
        hd_session_destroy(session);
        return HD_OK;
    });
}

TEST(Dlpack, ArraysAreReadAndWrittenWhereTheyAre)
{
    OnSessions([](hd_session *session, hd_diag *diag, int rank) {
        std::mt19937 random(Seed() + unsigned(rank));
        Array x, y;
        Passed passed;
        void **arguments = passed.at;

        // Both ways to leave the rank's dimension and the one of 1 out.
        y.shape = {3, 5};
        y.strides.clear();
        y.Shape();
        for (int i = 0; i < 15; i++)
            x.Data()[i] = float(random() % 2001) - 1000;
        EXPECT_EQ(
            hd_dlpack_managed(session, X, &x.it, diag, nullptr, &arguments[X]),
            HD_OK)
            << hd_diag_text(diag);
        EXPECT_EQ(hd_dlpack_argument(session, Y, &y.it.dl_tensor, diag, nullptr,
                                     &arguments[Y]),
                  HD_OK)
            << hd_diag_text(diag);
        EXPECT_EQ(arguments[X], x.Data());
        EXPECT_EQ(hd_session_run(session, arguments, EVENT + 1, nullptr, diag),
                  HD_OK)
            << hd_diag_text(diag);
        EXPECT_EQ(hd_session_finish(session, diag), HD_OK);
        for (int i = 0; i < 15; i++)
            EXPECT_EQ(y.Data()[i], 2 * x.Data()[i]) << i;
    });
}

// Whose strides are asked for need not be dense, and may leave dimensions out.
TEST(Dlpack, ArraysThatAreNotDenseHandTheirStridesOn)
{
    OnSessions([](hd_session *session, hd_diag *diag, int rank) {
        std::mt19937 random(Seed() + unsigned(rank));
        Array x, y;
        Passed passed;
        void **arguments = passed.at;
        int64_t of_x[HD_MAX_DIMS], of_y[HD_MAX_DIMS];
        const int64_t *strides[EVENT + 1] = {of_x, of_y};
        hd_run_options with = HD_EMPTY(hd_run_options);

        x.memory.assign(4 + 64, NAN);
        x.it.dl_tensor.data = x.memory.data();
        x.shape = {3, 5, 1};
        x.strides = {2, 7, 0};
        x.Shape();
        for (int i = 0; i < 15; i++)
            x.Data()[i / 5 * 2 + i % 5 * 7] = float(random() % 2001) - 1000;
        y.strides.clear();
        y.Shape();
        EXPECT_EQ(
            hd_dlpack_managed(session, X, &x.it, diag, of_x, &arguments[X]),
            HD_OK)
            << hd_diag_text(diag);
        EXPECT_EQ(
            hd_dlpack_managed(session, Y, &y.it, diag, of_y, &arguments[Y]),
            HD_OK)
            << hd_diag_text(diag);
        EXPECT_EQ(of_x[1], 2);
        EXPECT_EQ(of_x[3], 7);
        EXPECT_EQ(of_y[1], 5);
        EXPECT_EQ(of_y[3], 1);
        with.strides = strides;
        EXPECT_EQ(hd_session_run(session, arguments, EVENT + 1, &with, diag),
                  HD_OK)
            << hd_diag_text(diag);
        EXPECT_EQ(hd_session_finish(session, diag), HD_OK);
        for (int i = 0; i < 15; i++)
            EXPECT_EQ(y.Data()[i], 2 * x.Data()[i / 5 * 2 + i % 5 * 7]) << i;
    });
}

TEST(Dlpack, EachDtypeIsItsOwn)
{
    OnSessions([](hd_session *session, hd_diag *, int) {
        for (size_t i = 0; i < 8; i++)
            for (size_t j = 0; j < 8; j++) {
                Array array;
                void *at = nullptr;

                array.shape = {2};
                array.strides = {1};
                array.Shape();
                array.it.dl_tensor.dtype = kOf[j];
                EXPECT_EQ(hd_dlpack_managed(session, F64 + i, &array.it,
                                            nullptr, nullptr, &at),
                          i == j ? HD_OK : HD_ERROR_ARGUMENT)
                    << i << " " << j;
                array.it.dl_tensor.dtype.lanes = 4;
                EXPECT_EQ(hd_dlpack_managed(session, F64 + i, &array.it,
                                            nullptr, nullptr, &at),
                          HD_ERROR_ARGUMENT);
            }
    });
}

// What is done to an array that is right, and what is said of it then.
struct Wrong {
    const char *said;
    std::function<void(Array *)> make;
    hd_status status = HD_ERROR_ARGUMENT;
    size_t argument = X;
};

TEST(Dlpack, WhatDoesNotFitIsRefusedWithWords)
{
    const std::vector<Wrong> wrong = {
        {"%x is f32, in DLPack's terms code 2 of 32 bits and 1 lane; the array "
         "is code 2 of 64 bits and 1",
         [](Array *a) { a->it.dl_tensor.dtype.bits = 64; }},
        {"the session is on the cpu, DLPack's device type 1; the array for %x "
         "is on type 2, number 3",
         [](Array *a) {
             a->it.dl_tensor.device = {kDLCUDA, 3};
         }},
        {"%x: extents on this rank are [1, 3, 1, 5]; the array's extents are "
         "[5, 3]",
         [](Array *a) {
             a->shape = {5, 3};
             a->strides.clear();
         }},
        {"the array's extents are [3, 5, 2]",
         [](Array *a) {
             a->shape = {3, 5, 2};
             a->strides.clear();
         }},
        {"the array's extents are [3]", [](Array *a) { a->shape = {3}; }},
        {"%x: strides on this rank are [5, 1]; the array's strides are [1, 3]",
         [](Array *a) {
             a->strides = {1, 77, 3};
         }},
        {"the array's strides are [10, 2]",
         [](Array *a) {
             a->strides = {10, 0, 2};
         }},
        {"%go is an event: no array can be one", [](Array *) {},
         HD_ERROR_ARGUMENT, EVENT},
        {"'doubled' takes 11 arguments: there is none of number 11",
         [](Array *) {}, HD_ERROR_ARGUMENT, EVENT + 1},
        {"has no shape", [](Array *a) { a->it.dl_tensor.shape = nullptr; }},
        {"has no shape", [](Array *a) { a->it.dl_tensor.ndim = -1; }},
        {"has no data", [](Array *a) { a->it.dl_tensor.data = nullptr; }},
        {"described by DLPack 2.0",
         [](Array *a) {
             a->it.version = {2, 0};
         },
         HD_ERROR_UNSUPPORTED},
        {"%y is written, and the array may only be read",
         [](Array *a) { a->it.flags = 1; }, HD_ERROR_ARGUMENT, Y},
    };

    OnSessions([&](hd_session *session, hd_diag *diag, int) {
        Array right;
        void *at = nullptr;

        right.it.flags = 1; // %x is but read
        EXPECT_EQ(hd_dlpack_managed(session, X, &right.it, diag, nullptr, &at),
                  HD_OK);
        for (const Wrong &w : wrong) {
            Array array;
            int32_t ndim = array.it.dl_tensor.ndim;
            void *untouched = &array;

            w.make(&array);
            if (array.it.dl_tensor.shape != nullptr &&
                array.it.dl_tensor.ndim == ndim)
                array.Shape();
            hd_diag_clear(diag);
            EXPECT_EQ(hd_dlpack_managed(session, w.argument, &array.it, diag,
                                        nullptr, &untouched),
                      w.status)
                << w.said;
            EXPECT_NE(std::string(hd_diag_text(diag)).find(w.said),
                      std::string::npos)
                << w.said << "\n"
                << hd_diag_text(diag);
            EXPECT_EQ(untouched, &array);
        }
    });
}

} // namespace

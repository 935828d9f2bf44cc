// cuBLASLt's products: shapes, and the way that was chosen for each.
#ifndef HD_RUNTIME_CUDA_LIBRARIES_PRODUCTS_H
#define HD_RUNTIME_CUDA_LIBRARIES_PRODUCTS_H

#include "runtime/cuda/commands/plan.h"

#define HD_CUDA_WORKSPACE_BYTES ((size_t)32 << 20) // of cuBLASLt, a stream
#define HD_CUDA_PLANS 16 // of cuBLASLt's, that are timed for a product
#define HD_CUDA_OWN 6    // of tiles, likewise

// A shape of product that cuBLASLt takes, column-major: c[m,n] = a[m,k] b[k,n],
// plus c, or an addend as large as c. Of a batch it has as many, each so many
// elements behind the last one.
enum { HD_CUDA_A, HD_CUDA_B, HD_CUDA_C, HD_CUDA_ADDEND, HD_CUDA_MATRICES };
typedef struct hd_cuda_shape {
    int64_t m, n, k, lda, ldb, ldc;
    int64_t ld_addend; // 0: there is none
    int64_t batch, step[HD_CUDA_MATRICES];
    int ta, tb;
    int type_a, type_b, type_c, type_bias; // cudaDataType_t
    int epilogue;
    int wide;      // f64
    int64_t align; // bytes that every operand is aligned to
} hd_cuda_shape;
_Static_assert(sizeof(hd_cuda_shape) == 13 * sizeof(int64_t) + 8 * sizeof(int),
               "compared as bytes: there are none between its members");

typedef struct hd_cuda_product {
    hd_cuda_shape shape;
    hd_lt_desc desc;        // owned
    hd_lt_layout layout[4]; // owned: a, b, c, the addend or NULL
    hd_lt_algo algo;
    size_t workspace;
    hd_tiles_choice own; // that are faster than cuBLASLt; of 0 rows: none
    bool tuned;
} hd_cuda_product;

// What was chosen for sizes of runs of a range: extents up to a power of two.
#define HD_CUDA_CHOICES 256
typedef struct hd_cuda_choice {
    hd_cuda_shape shape; // with these in the place of extents
    hd_lt_algo algo;
} hd_cuda_choice;

struct hd_cuda_products {
    hd_library library;
    hd_lt_api lt;
    hd_lt_handle blas; // owned
    char text[200];    // cuBLASLt's name and version, and what was tuned
    double tuning;     // seconds that it took so far
    hd_cuda_choice choice[HD_CUDA_CHOICES]; // by turns
    unsigned nchoices;                      // made
};

// ------------------------------------- cuda/libraries/matmul.c

hd_status hd_cuda_plan_matmul(hd_cuda_plan *plan, int stream,
                              const hd_step *step, hd_diag *diag);
// What cuBLASLt adds to, its C: the addend, or else the result itself.
static inline hd_lt_layout hd_cuda_added(const hd_cuda_product *product)
{
    return product->layout[product->shape.ld_addend > 0 ? 3 : 2];
}
// By cuBLASLt's call.
hd_status hd_cuda_multiply(const hd_cuda_plan *plan,
                           const hd_cuda_command *command, hd_cu_stream stream,
                           hd_diag *diag);
void hd_cuda_products_free(hd_device *device, hd_cuda_plan *plan);
void hd_cuda_products_close(hd_device *device);
// For those who ask what multiplies; "" if nothing does.
const char *hd_cuda_products_text(const hd_device *device);

// --------------------------------------- cuda/libraries/tune.c

// Whether cuBLASLt takes the algorithm for the product, which it then has.
bool hd_cuda_take(hd_device *device, hd_cuda_product *product,
                  const hd_lt_algo *algo);
// Whether a plan for the product is on disk, which it then has.
bool hd_cuda_tuned(hd_device *device, hd_cuda_product *product);
// Gives the product of a step, or of a part of one if that is NULL, the fastest
// of `n` plans and of what tiles there are, and keeps it on disk. It stays as
// it is if no time or memory is left for that.
hd_status hd_cuda_tune(hd_device *device, hd_cuda_product *product,
                       const hd_step *step, const hd_lt_heuristic *plan, int n,
                       hd_diag *diag);

#endif

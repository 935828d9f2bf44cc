// cuBLASLt's products: shapes, and the way that was chosen for each.
#ifndef HD_RUNTIME_CUDA_PRODUCTS_H
#define HD_RUNTIME_CUDA_PRODUCTS_H

#include "runtime/cuda/plan.h"

#define HD_CUDA_WORKSPACE_BYTES ((size_t)32 << 20) // of cuBLASLt, a stream
#define HD_CUDA_PLANS 16         // of cuBLASLt's, that are timed for a product
#define HD_CUDA_OPERANDS 4       // of a product: a, b, c and what is added
#define HD_CUDA_CAPTURED_MOST 32 // sets of addresses, of a product

// A shape of product that cuBLASLt takes, column-major: c[m,n] = a[m,k] b[k,n],
// plus c, or an addend as large as c.
typedef struct hd_cuda_shape {
    int64_t m, n, k, lda, ldb, ldc;
    int64_t ld_addend; // 0: there is none
    int ta, tb;
    int type_a, type_b, type_c, type_bias; // cudaDataType_t
    int epilogue;
    int wide;      // f64
    int64_t align; // bytes that every operand is aligned to
} hd_cuda_shape;
_Static_assert(sizeof(hd_cuda_shape) == 8 * sizeof(int64_t) + 8 * sizeof(int),
               "compared as bytes: there are none between its members");

typedef struct hd_cuda_product {
    hd_cuda_shape shape;
    hd_lt_desc desc;        // owned
    hd_lt_layout layout[4]; // owned: a, b, c, the addend or NULL
    hd_lt_algo algo;
    size_t workspace;
    bool tuned;
} hd_cuda_product;

// What was chosen for sizes of runs of a range: extents up to a power of two.
#define HD_CUDA_CHOICES 256
typedef struct hd_cuda_choice {
    hd_cuda_shape shape; // with these in the place of extents
    hd_lt_algo algo;
} hd_cuda_choice;

// A product of the plan on a set of addresses, as the kernels that it is, no
// two of which are the same.
typedef struct hd_cuda_captured {
    hd_cu_ptr operand[HD_CUDA_OPERANDS];
    hd_cu_graph graph; // owned: of these kernels alone
    hd_cu_kernel_node kernel[HD_CUDA_NODES_MOST]; // points into the graph
    size_t nkernels;
} hd_cuda_captured;

typedef struct hd_cuda_single {
    hd_cuda_captured *captured; // owned
    int n, room;
    unsigned dropped;      // captures, for later ones
    hd_cu_graph_exec exec; // owned: of the first; NULL if there is none
    hd_cuda_nodes nodes;   // that it has
    hd_cu_ptr operand[HD_CUDA_OPERANDS]; // that it is set for
    bool refused;                        // it could not be set: no more of it
} hd_cuda_single;

struct hd_cuda_products {
    hd_library library;
    hd_lt_api lt;
    hd_lt_handle blas; // owned
    char text[200];    // cuBLASLt's name and version, and what was tuned
    double tuning;     // seconds that it took so far
    hd_cuda_choice choice[HD_CUDA_CHOICES]; // by turns
    unsigned nchoices;                      // made
};

// ------------------------------------------------- cuda/matmul.c

hd_status hd_cuda_plan_matmul(hd_device *device, int stream,
                              const hd_step *step, hd_diag *diag);
// What cuBLASLt adds to, its C: the addend, or else the result itself.
static inline hd_lt_layout hd_cuda_added(const hd_cuda_product *product)
{
    return product->layout[product->shape.ld_addend > 0 ? 3 : 2];
}
// By cuBLASLt's call.
hd_status hd_cuda_multiply(hd_device *device, const hd_cuda_command *command,
                           hd_cu_stream stream, hd_diag *diag);
void hd_cuda_products_free(hd_device *device, hd_cuda_plan *plan);
void hd_cuda_products_close(hd_device *device);
// For those who ask what multiplies; "" if nothing does.
const char *hd_cuda_products_text(const hd_device *device);

// -------------------------------------------------- cuda/single.c

// Makes those of the plan's products, which it has until they are closed; those
// of a variant have no graphs of their own, since runs are under way.
hd_status hd_cuda_singles_open(hd_device *device, hd_diag *diag);
void hd_cuda_singles_close(hd_device *device, hd_cuda_plan *plan);
// By its own graph, or else by cuBLASLt's call.
hd_status hd_cuda_issue_product(hd_device *device,
                                const hd_cuda_command *command,
                                hd_cu_stream stream, hd_diag *diag);
// The kernels that nodes are; false if one is none, or two are the same, of
// which it could not be told which is to be given what.
bool hd_cuda_single_kernels(const hd_device *device, const hd_cuda_nodes *nodes,
                            hd_cu_kernel_node *out);
// Sets the product's nodes in a graph, which are kernels like those of `like`,
// for the addresses of now. False if they cannot be set.
bool hd_cuda_single_set(hd_device *device, const hd_cuda_command *command,
                        hd_cu_graph_exec exec, const hd_cuda_nodes *nodes,
                        const hd_cuda_nodes *like);

// --------------------------------------------------- cuda/tune.c

// Whether cuBLASLt takes the algorithm for the product, which it then has.
bool hd_cuda_take(hd_device *device, hd_cuda_product *product,
                  const hd_lt_algo *algo);
// Whether a plan for the product is on disk, which it then has.
bool hd_cuda_tuned(hd_device *device, hd_cuda_product *product);
// Gives the product the fastest of `n` plans, and keeps it on disk. It stays as
// it is if no time or memory is left for that.
hd_status hd_cuda_tune(hd_device *device, hd_cuda_product *product,
                       const hd_lt_heuristic *plan, int n, hd_diag *diag);

#endif

// Attention by cuDNN: shapes, and the plan that it has for each. What it does
// not take, and what no library is there for, is a generated kernel's.
#ifndef HD_RUNTIME_CUDA_ATTENDS_H
#define HD_RUNTIME_CUDA_ATTENDS_H

#include "runtime/cuda/plan.h"

// Which keys row i sees of n rows and m keys.
typedef enum hd_cuda_mask {
    HD_CUDA_MASK_NONE,
    HD_CUDA_MASK_TOP,    // up to i
    HD_CUDA_MASK_BOTTOM, // up to i + m - n
} hd_cuda_mask;

// What is made: results, or gradients, and these the same in each run or not.
typedef enum hd_cuda_attend_kind {
    HD_CUDA_ATTEND_RESULTS,
    HD_CUDA_ATTEND_GRADIENTS,
    HD_CUDA_ATTEND_GRADIENTS_ALIKE,
} hd_cuda_attend_kind;

// Operands. Gradients have all of them, results the first ones.
enum {
    HD_CUDA_O,
    HD_CUDA_LSE,
    HD_CUDA_Q,
    HD_CUDA_K,
    HD_CUDA_V,
    HD_CUDA_DO,
    HD_CUDA_DQ,
    HD_CUDA_DK,
    HD_CUDA_DV,
    HD_CUDA_DELTA, // f32, scratch: of each row do o
    HD_CUDA_SUM,   // f32, scratch: what dq is added up in
    HD_CUDA_PARTS,
};
static inline bool hd_cuda_is_of_keys(int part)
{
    return part == HD_CUDA_K || part == HD_CUDA_V || part == HD_CUDA_DK ||
           part == HD_CUDA_DV;
}
// In f32, whatever the others are in.
static inline bool hd_cuda_is_wide(int part)
{
    return part == HD_CUDA_LSE || part == HD_CUDA_DELTA || part == HD_CUDA_SUM;
}
enum { HD_CUDA_ATTEND_DIMS = 3 }; // batch, head, row; a row's elements follow

// A shape of attention. `shared` heads of keys and values are of as many groups
// of the heads.
typedef struct hd_cuda_attention {
    int64_t batch, heads, shared, rows, keys, depth, wide;
    int64_t stride[HD_CUDA_PARTS][HD_CUDA_ATTEND_DIMS];
    int32_t type; // cudnnDataType_t of all but lse
    int32_t mask; // hd_cuda_mask
    int32_t kind; // hd_cuda_attend_kind
    int32_t unused;
} hd_cuda_attention;
_Static_assert(sizeof(hd_cuda_attention) ==
                   (7 + HD_CUDA_PARTS * HD_CUDA_ATTEND_DIMS) * sizeof(int64_t) +
                       4 * sizeof(int32_t),
               "compared as bytes: there are none between its members");

// Whether the operand is one of what is made.
static inline bool hd_cuda_has_part(const hd_cuda_attention *shape, int part)
{
    switch (shape->kind) {
    case HD_CUDA_ATTEND_RESULTS:
        return part <= HD_CUDA_V;
    case HD_CUDA_ATTEND_GRADIENTS:
        return true;
    default:
        return part != HD_CUDA_SUM;
    }
}
// How many elements rows of an operand have.
int64_t hd_cuda_attention_width(const hd_cuda_attention *shape, int part);

// One attention of a plan's commands. What cuDNN reads from the host stands
// here, and is read when it is issued.
typedef struct hd_cuda_attend {
    hd_cuda_attention shape;
    int known; // of the session's shapes that cuDNN has a plan for
    hd_cuda_at at[HD_CUDA_PARTS], workspace;
    float scale, nothing, one;
    int32_t rows, keys;
    hd_dnn_desc pack; // owned; NULL before it is issued first
    void *address[HD_CUDA_PARTS];
} hd_cuda_attend;

// -------------------------------------------------- cuda/cudnn.c

// Opens cuDNN for the session, once; HD_ERROR_UNSUPPORTED where there is none.
hd_status hd_cuda_dnn_open(hd_device *device, hd_diag *diag);
void hd_cuda_dnn_close(hd_device *device);
// The plan for the shape: made, found on disk, or that of an earlier step.
// `known` is -1 if cuDNN does not take it, and `reason`, which lasts as long as
// the session, says why.
hd_status hd_cuda_dnn_find(const hd_cuda_plan *plan,
                           const hd_cuda_attention *shape, hd_diag *diag,
                           int *known, const char **reason);
// No less than a byte: a session that calls a library has rooms.
size_t hd_cuda_dnn_workspace(const hd_device *device, int known);
hd_status hd_cuda_dnn_issue(const hd_cuda_plan *plan,
                            const hd_cuda_command *command, hd_cu_stream stream,
                            hd_diag *diag);
void hd_cuda_dnn_free(hd_device *device, hd_cuda_plan *plan);
// "cuDNN 9.19.0 (path)"; "" if it is not open.
const char *hd_cuda_dnn_text(const hd_device *device);

// ------------------------------------------------- cuda/attend.c

// `detour`: where the step's result goes, and what it is merged with.
hd_status hd_cuda_plan_attention(hd_cuda_plan *plan, int stream,
                                 const hd_step *step,
                                 const hd_cuda_detour *detour, hd_diag *diag);
// Whether cuDNN makes all rows of the result.
hd_status hd_cuda_attends_by(hd_cuda_plan *plan, int stream,
                             const hd_step *step, const hd_cuda_detour *detour,
                             hd_diag *diag, bool *out);
void hd_cuda_attends_close(hd_device *device);
// For those who ask what attends; "" if nothing does.
const char *hd_cuda_attends_text(const hd_device *device);

// -------------------------------------------------- cuda/zeros.c

// Of a plan's steps: what gradients are added to that is filled with zeros.
hd_status hd_cuda_find_zeros(hd_cuda_plan *plan, const hd_chains *chains,
                             hd_diag *diag);

// --------------------------------------------------- cuda/sums.c

// Likewise, behind that: what is added up in a temporary that is then copied.
hd_status hd_cuda_find_sums(hd_cuda_plan *plan, const hd_chains *chains,
                            hd_diag *diag);

#endif

// Kernels that reduce over ranks and meet them by themselves: such a kernel
// tells the peers that this rank's operand is there, waits for theirs, reads
// operands where they lie, and ends when the peers have read this one. So one
// launch does what else are calls for words, a kernel and calls for words
// again.
//
//   one-shot   every rank reads all operands
//   two-shot   every rank reads its share of all operands, and puts what it
//              makes of it to all peers, who take it from their own memory
//
// One-shot, no block waits for another one of its own kernel: of the blocks the
// last to end tells the peers and waits for them. Two-shot, every block waits
// for the peers between its halves, and these for all blocks of this one, so
// that all blocks must be there at once. Both have no more of them than the
// device surely runs so.
#include "base/diag.h"
#include "codegen/body.h"
#include "codegen/emit.h"
#include "codegen/prelude.h"

enum { THREADS = 512, VECTOR = 16, FLIGHT = 8 };
enum { ONESHOT_BLOCKS = 64, TWOSHOT_BLOCKS = 32 };

int hd_oneshot_pointers(int ranks)
{
    return 5 * ranks - 1;
}

int hd_twoshot_pointers(int ranks)
{
    return 6 * ranks;
}

// Two-shot where ranks have shares.
static void add_constants(hd_text *text, hd_dtype dtype, int ranks, int turns,
                          hd_length elements, const hd_length *share)
{
    hd_text_printf(text,
                   "#define RANKS %d\n#define SHOTS %d\n#define TURNS %d\n"
                   "#define LANES %d\n#define FLIGHT %d\n#define COPIES %d\n"
                   "#define THREADS %d\ntypedef %s code;\n",
                   ranks, share != NULL ? 2 : 1, turns,
                   VECTOR / (int)hd_dtype_size(dtype),
                   ranks < FLIGHT ? FLIGHT / ranks : 1, FLIGHT, THREADS,
                   hd_code_text(dtype));
    if (elements.sized)
        hd_text_printf(text,
                       "#define ELEMENTS args.size[0]\n"
                       "#define SHARE args.size[%d]\n",
                       share != NULL ? 1 : 0);
    else
        hd_text_printf(text,
                       "#define ELEMENTS %lldull\n#define SHARE %lldull\n",
                       (long long)elements.now,
                       (long long)(share != NULL ? share->now : elements.now));
}

// So many that each thread has a vector of the larger half, if they are few.
static unsigned blocks_of(hd_dtype dtype, int64_t elements, int64_t share)
{
    int64_t most = share > 0 ? TWOSHOT_BLOCKS : ONESHOT_BLOCKS;
    int64_t half = elements - share > share ? elements - share : share;
    int64_t vectors = half * (int64_t)hd_dtype_size(dtype) / VECTOR;
    int64_t n = (vectors + THREADS - 1) / THREADS;

    return (unsigned)(n < 1 ? 1 : n > most ? most : n);
}

static hd_status emit_meeting(hd_dtype dtype, hd_fold fold, int ranks,
                              int turns, hd_length elements,
                              const hd_length *share, int pointers,
                              hd_text *out, hd_kernel_grid *grid)
{
    int64_t half = share != NULL ? share->now : 0;
    int sizes = !elements.sized ? 0 : share != NULL ? 2 : 1;
    hd_text rest = {0};

    add_constants(&rest, dtype, ranks, turns, elements, share);
    hd_text_puts(&rest, "static inline void reduce(code *to, const code *c)\n"
                        "{\n");
    hd_body_reduce(&rest, dtype, fold, ranks, "c[%d]", 0, "*to");
    hd_text_puts(&rest, "}\n");
    hd_prelude_add(&rest, hd_meet_cu);
    HD_TRY(hd_prelude_finish(out, &rest, pointers, sizes));
    *grid = (hd_kernel_grid){.blocks = blocks_of(dtype, elements.now, half),
                             .threads = THREADS,
                             .pointers = pointers,
                             .sizes = sizes,
                             .size = {elements.now, half}};
    return HD_OK;
}

static hd_status check_ranks(int ranks, int most, hd_diag *diag)
{
    if (ranks >= 2 && ranks <= most)
        return HD_OK;
    return hd_fail(diag, HD_ERROR_UNSUPPORTED,
                   "a reduction in one kernel over %d ranks; it takes 2 to %d",
                   ranks, most);
}

hd_status hd_emit_oneshot(hd_dtype dtype, hd_fold fold, int ranks, int turns,
                          hd_length elements, hd_diag *diag, hd_text *out,
                          hd_kernel_grid *grid)
{
    HD_TRY(check_ranks(ranks, (HD_KERNEL_POINTERS + 1) / 5, diag));
    return emit_meeting(dtype, fold, ranks, turns, elements, NULL,
                        hd_oneshot_pointers(ranks), out, grid);
}

hd_status hd_emit_twoshot(hd_dtype dtype, hd_fold fold, int ranks, int turns,
                          hd_length elements, hd_length share, hd_diag *diag,
                          hd_text *out, hd_kernel_grid *grid)
{
    HD_TRY(check_ranks(ranks, HD_KERNEL_POINTERS / 6, diag));
    return emit_meeting(dtype, fold, ranks, turns, elements, &share,
                        hd_twoshot_pointers(ranks), out, grid);
}

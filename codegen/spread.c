// The kernels that copy to peers: one contiguous range to several places, so
// that all their links are fed at once, or to one the rows of a range that are
// counted. Of the blocks the last to end tells the peers.
#include "base/diag.h"
#include "base/dtype.h"
#include "codegen/emit.h"
#include "codegen/prelude.h"

enum { BLOCKS = 32, THREADS = 512 };

// What both kernels have: how many flags there are, from which pointer on, and
// whether these become a number or that of the tally there.
static hd_status finish(int flags, int first, bool tally, hd_text *kernel,
                        const unsigned char *cu, hd_text *out,
                        const hd_kernel_grid *grid)
{
    hd_text_printf(kernel,
                   "#define FLAGS %d\n#define FIRST_FLAG %d\n"
                   "#define TALLY %d\n",
                   flags, first, tally);
    hd_prelude_add(kernel, hd_flags_cu);
    hd_prelude_add(kernel, cu);
    return hd_prelude_finish(out, kernel, grid->pointers, grid->sizes);
}

hd_status hd_emit_spread(int copies, int flags, bool tally, hd_length bytes,
                         hd_diag *diag, hd_text *out, hd_kernel_grid *grid)
{
    hd_text kernel = {0};

    if (copies < 1 || copies + flags + 3 > HD_KERNEL_POINTERS)
        return hd_fail(diag, HD_ERROR_UNSUPPORTED,
                       "a copy to %d places that raises %d flags; a kernel "
                       "takes 1 place to %d of both",
                       copies, flags, HD_KERNEL_POINTERS - 3);
    hd_text_printf(&kernel, "#define COPIES %d\n", copies);
    if (bytes.sized)
        hd_text_puts(&kernel, "#define BYTES args.size[0]\n");
    else
        hd_text_printf(&kernel, "#define BYTES %lldull\n",
                       (long long)bytes.now);
    *grid = (hd_kernel_grid){.blocks = BLOCKS,
                             .threads = THREADS,
                             .pointers = copies + flags + 3,
                             .sizes = bytes.sized ? 1 : 0,
                             .size = {bytes.now}};
    return finish(flags, copies + 1, tally, &kernel, hd_spread_cu, out, grid);
}

hd_status hd_emit_rows(const hd_rows *rows, hd_dtype dtype, int flags,
                       bool tally, hd_text *out, hd_kernel_grid *grid)
{
    long long row = (long long)rows->row * (long long)hd_dtype_size(dtype);
    hd_text kernel = {0};

    hd_text_printf(&kernel,
                   "#define SLABS %lldull\n#define ROOM %lldull\n"
                   "#define ROW %lldull\n#define EACH %lldull\n"
                   "#define CHUNK %du\n",
                   (long long)rows->n, (long long)rows->room, row,
                   (long long)rows->each, THREADS * 4 * 16);
    *grid = (hd_kernel_grid){.blocks = BLOCKS,
                             .threads = THREADS,
                             .pointers = flags + HD_ROWS_POINTERS};
    return finish(flags, 2, tally, &kernel, hd_rows_cu, out, grid);
}

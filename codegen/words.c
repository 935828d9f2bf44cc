// The kernel that tells peers and waits for them where the run's number is the
// device's own: what a call for words does with numbers that the host gives.
#include "codegen/emit.h"
#include "codegen/prelude.h"

enum { THREADS = 32 };

hd_status hd_emit_words(hd_text *out, hd_kernel_grid *grid)
{
    hd_text rest = {0};

    hd_text_printf(&rest,
                   "#define THREADS %d\n#define ROOM %d\n"
                   "#define WRITE %d\n#define WAIT %d\n#define BEGIN %d\n",
                   THREADS, HD_WORDS_ROOM, HD_WORD_WRITE, HD_WORD_WAIT,
                   HD_WORD_BEGIN);
    hd_prelude_add(&rest, hd_words_cu);
    HD_TRY(hd_prelude_finish(out, &rest, 1 + HD_WORDS_ROOM, 0));
    *grid = (hd_kernel_grid){
        .blocks = 1, .threads = THREADS, .pointers = 1 + HD_WORDS_ROOM};
    return HD_OK;
}

// The C of docs/launch.md, with what it leaves out: it compiles.
#include <heddle/launch.h>

hd_status launch_anyhow(int ranks, hd_rank_fn *rank_main, void *context,
                        hd_diag *diag);

// clang-format off
hd_status launch_anyhow(int ranks, hd_rank_fn *rank_main, void *context,
                        hd_diag *diag)
{
    bool found;
    hd_place place = HD_EMPTY(hd_place);
    hd_status status = hd_place_find(diag, &found, &place);

    if (status == HD_OK)
        status = found ? hd_join(&place, 30, rank_main, context, diag)
                       : hd_launch(ranks, 30, 0, rank_main, context, diag);
    return status;
}

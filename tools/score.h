// The scores of contests: as a table while they come in, as JSON and CSV at the
// end.
#ifndef HD_TOOLS_SCORE_H
#define HD_TOOLS_SCORE_H

#include <heddle/environment.h>

#include "measure.h"

typedef struct scoreboard {
    const char *command; // borrowed: the command line
    const char *source;  // borrowed: of the shapes
    char date[32];
    char host[128];
    char devices[256];
    const measure *measure;  // borrowed
    hd_environment *machine; // owned; NULL until looked at
    bool probed;             // the first contest measures the link
    size_t width, names;     // of the columns of ids and of candidates
} scoreboard;

// Looks at clock and machine.
void score_open(scoreboard *board);
void score_close(scoreboard *board);

// Looks at the vendors' libraries and names them on `to`. That starts the CUDA
// driver in this process, so it stands behind the launch.
void score_libraries(scoreboard *board, FILE *to);

void score_head(const scoreboard *board, const contest *first, FILE *to);
void score_rows(const scoreboard *board, const contest *contest, FILE *to);
// FAILED, and why on `to`, if any contender's results are wrong.
outcome score_verdicts(const scoreboard *board, FILE *to);

outcome score_json(const scoreboard *board, const char *path);
outcome score_csv(scoreboard *board, const char *path);

#endif

// What heddle bench compares: a product or an attention that ranks compute
// together, and the contenders that each take their time with it - the compute
// alone, the transfers alone, and whole programs.
#ifndef HD_TOOLS_CONTEST_H
#define HD_TOOLS_CONTEST_H

#include <heddle/verify.h>

#include "array.h"
#include "choose.h"
#include "sample.h"
#include "suite.h"

typedef enum part {
    PART_ALONE, // the local compute alone, as one piece
    PART_LINK,  // the transfers alone
    PART_WHOLE, // both
} part;

// What a contender's results are compared with.
typedef enum judge {
    JUDGE_NONE,      // it has no results, or is compared with none
    JUDGE_OWN,       // the sampled rows of this rank's share of k
    JUDGE_ROWS,      // the sampled rows of C, of which a rank holds some or all
    JUDGE_REFERENCE, // the dense answer
} judge;

typedef struct contender {
    char name[CHOOSE_NAME];
    part part;
    judge judge;
    hd_module *module; // owned: complete
    char *text;        // owned: of it, for hd_free
    hd_transport transport;
    bool graph;
    bool hops;        // sums go from rank to rank, and are rounded at each
    double bytes;     // of memory that a rank needs for it
    double predicted; // s, of a run; 0 if it is not known
    char options[CHOOSE_FLAGS]; // of a candidate: what is typed for it
} contender;

// What was measured of one contender. Times in seconds, those of the slowest
// rank.
typedef struct score {
    bool ran;
    char why[160];          // it did not run
    double median, p5, p95; // of a run in a queue of them
    double alone;           // median of a run with nothing before it
    double issue;           // median of what hd_session_run itself took, in a
                            // row of them
    double issue_alone;     // the same, with nothing before it
    verdict verdict;        // over all ranks
    char argument[32];      // with the worst finding of the verdict
    char library[160];      // what multiplied
} score;

enum {
    MOST_CANDIDATES = 64, // that are measured of those predicted
    MOST_CONTENDERS = 2 * MOST_CANDIDATES + 32, // graphs too
    MOST_ARGUMENTS = 64,
    INPUT_SETS = 2
};

typedef struct contest {
    char id[64];
    shape shape;     // of a suite
    double bytes_in; // that each rank receives at least
    contender contender[MOST_CONTENDERS];
    int n;
    score *score; // owned, shared by all processes: one a contender
    // Of a file: what it computes, and the whole of each argument.
    hd_module *program;      // owned; NULL for a shape of a suite
    hd_reference *reference; // owned
    size_t narguments;
    whole *whole[INPUT_SETS]; // owned
} contest;

// What `bench --transfer` may list: a pipeline, by its hd_transfer, the one
// that is predicted to be fastest, or a collective by NCCL or by kernels and
// then the matmul.
enum { KIND_AUTO = HD_TRANSFER_FUSED + 1, KIND_NCCL, KIND_SM, KINDS };

// How to make the contenders.
typedef struct contest_options {
    const program_options *program; // borrowed
    const hd_machine *machine;      // borrowed: predictions are for it
    bool kind[KINDS];
    int64_t candidates; // with auto: how many of the predicted best
    bool graph;         // each pipeline also as a graph
    hd_diag *diag;      // borrowed
} contest_options;

outcome contest_shape(const shape *shape, const contest_options *options,
                      int ranks, contest *out);
// Of `text`, which was read from `path`.
outcome contest_file(const char *path, const content *text,
                     const contest_options *options, contest *out);
// One transfer of `bytes` to a neighbour, which measures what a link carries.
outcome contest_probe(int64_t bytes, const contest_options *options, int ranks,
                      contest *out);
// Draws the inputs of a file's program, and computes what is expected.
outcome contest_expect(contest *contest, const char *path, uint64_t seed,
                       hd_diag *diag);
// The least time that a contest can take, in which neither the compute nor the
// bytes that must come in ever wait; 0 where it is not known. `rate` in bytes/s
// is what a link carries.
double contest_floor(const contest *contest, double rate);
void contest_close(contest *contest);

#endif

// See probe.h.
#include "probe.h"

#include <heddle/verify.h>

#include "template.h"

#include <stdlib.h>
#include <string.h>

// What stands in these texts: $R ranks, $T and $O dtypes, $M a size, $H half of
// it and $S seven eighths, $N how often or how much.
#define HEAD(name) "host program " name "\nmesh tp=$R\n"

// A square, and fewer rows and columns, which tiles do not fit as well.
static const char matmul_text[] = HEAD("matmul") //
    "in %a : $T[$M, $M]\n"
    "in %w : $T[$M, $M]\n"
    "out %c : $O[$N, $M, $M]\n"
    "out %d : $O[$N, $H, $S]\n"
    "{\n"
    "    for i in 0..$N {\n"
    "        %c[i] = matmul %a, %w tb\n"
    "        %d[i] = matmul %a[0..$H], %w[0..$S] tb\n"
    "    }\n"
    "}\n";

static const char attention_text[] = HEAD("attention") //
    "in %q : $T[8, $M, 128]\n"
    "in %k : $T[8, $M, 128]\n"
    "in %v : $T[8, $M, 128]\n"
    "out %o : $O[$N, 8, $M, 128]\n"
    "out %l : f32[$N, 8, $M]\n"
    "{\n"
    "    for i in 0..$N {\n"
    "        %o[i], %l[i] = attention %q, %k, %v\n"
    "    }\n"
    "}\n";

static const char memory_text[] = HEAD("memory") //
    "in %a : $T[$N, $M, 1024]\n"
    "in %b : $T[$N, $M, 1024]\n"
    "out %c : $O[$N, $M, 1024]\n"
    "{\n"
    "    %c = add %a, %b\n"
    "}\n";

// Small products: what there is of a kernel beside its work.
static const char row_text[] = HEAD("row") //
    "in %a : $T[16, 16]\n"
    "out %c : $O[$N, 16, 16]\n"
    "{\n"
    "    for i in 0..$N {\n"
    "        %c[i] = matmul %a, %a tb\n"
    "    }\n"
    "}\n";

// Kernels of a few elements, each of which needs another one's of the kernel
// before, so that no two become one; behind a product in which the host comes
// far ahead.
static const char queue_text[] = HEAD("queue") //
    "in %x : $T[$M, $M]\n"
    "out %y : $O[$M, $M]\n"
    "inout %p : f32[257]\n"
    "inout %q : f32[257]\n"
    "{\n"
    "    %y = matmul %x, %x tb\n"
    "    for i in 0..$N {\n"
    "        %q[0..256] = relu %p[1..257]\n"
    "        %p[0..256] = relu %q[1..257]\n"
    "    }\n"
    "}\n";

// What the host issues of a loop's trip: a kernel, and events before and behind
// it.
static const char trips_text[] = HEAD("trips") //
    "streams 2\n"
    "in %a : $T[16, 16]\n"
    "out %c : $O[$N, 16, 16]\n"
    "temp %e : event[$N]\n"
    "{\n"
    "    fork\n"
    "    for i in 0..$N {\n"
    "        on stream i mod 2 {\n"
    "            if 1 <= i {\n"
    "                wait %e[i - 1]\n"
    "            }\n"
    "            %c[i] = matmul %a, %a tb\n"
    "            %e[i] = record\n"
    "        }\n"
    "    }\n"
    "    join\n"
    "}\n";

// The same on two streams in turns, each behind the other's event.
static const char events_text[] = HEAD("events") //
    "streams 2\n"
    "in %x : $T[$M, $M]\n"
    "out %y : $O[$M, $M]\n"
    "inout %p : f32[257]\n"
    "inout %q : f32[257]\n"
    "temp %e : event[$N + 1]\n"
    "temp %f : event[$N]\n"
    "{\n"
    "    fork\n"
    "    on stream 0 {\n"
    "        %y = matmul %x, %x tb\n"
    "        %e[0] = record\n"
    "    }\n"
    "    for i in 0..$N {\n"
    "        on stream 1 {\n"
    "            wait %e[i]\n"
    "            %q[0..256] = relu %p[1..257]\n"
    "            %f[i] = record\n"
    "        }\n"
    "        on stream 0 {\n"
    "            wait %f[i]\n"
    "            %p[0..256] = relu %q[1..257]\n"
    "            %e[i + 1] = record\n"
    "        }\n"
    "    }\n"
    "    join\n"
    "}\n";

// Each rank passes on what it was sent.
static const char relay_text[] = HEAD("relay") //
    "in %a : $T[$R @tp, $M]\n"
    "temp %b : $T[$N, $M] shared\n"
    "{\n"
    "    group {\n"
    "        send %a[tp] to (tp + 1) mod $R\n"
    "        %b[0] = recv from (tp - 1) mod $R\n"
    "    }\n"
    "    for j in 1..$N {\n"
    "        group {\n"
    "            send %b[j - 1] to (tp + 1) mod $R\n"
    "            %b[j] = recv from (tp - 1) mod $R\n"
    "        }\n"
    "    }\n"
    "}\n";

// The same as pipelines do it: on a stream of its own, with a kernel between.
static const char hops_text[] = HEAD("hops") //
    "streams 2\n"
    "in %a : $T[$R @tp, $M]\n"
    "temp %b : $T[$N, $M] shared\n"
    "temp %c : $T[$N, $M]\n"
    "temp %got : event[$N]\n"
    "temp %go : event[$N]\n"
    "{\n"
    "    fork\n"
    "    for j in 0..$N {\n"
    "        on stream 1 {\n"
    "            if 1 <= j {\n"
    "                wait %go[j - 1]\n"
    "            }\n"
    "            group {\n"
    "                if j == 0 {\n"
    "                    send %a[tp] to (tp + 1) mod $R\n"
    "                } else {\n"
    "                    send %c[j - 1] to (tp + 1) mod $R\n"
    "                }\n"
    "                %b[j] = recv from (tp - 1) mod $R\n"
    "            }\n"
    "            %got[j] = record\n"
    "        }\n"
    "        on stream 0 {\n"
    "            wait %got[j]\n"
    "            %c[j] = relu %b[j]\n"
    "            %go[j] = record\n"
    "        }\n"
    "    }\n"
    "    join\n"
    "}\n";

// A kernel, and one exchange ahead of it or none.
static const char meet_text[] = HEAD("meet") //
    "streams 2\n"
    "in %a : $T[$R @tp, $M]\n"
    "temp %b : $T[2, $M] shared\n"
    "temp %c : $T[$M]\n"
    "temp %got : event[2]\n"
    "{\n"
    "    fork\n"
    "    for j in 0..$N {\n"
    "        on stream 1 {\n"
    "            if 1 <= j {\n"
    "                group {\n"
    "                    send %a[tp] to (tp + 1) mod $R\n"
    "                    %b[j] = recv from (tp - 1) mod $R\n"
    "                }\n"
    "                %got[j] = record\n"
    "            }\n"
    "        }\n"
    "        on stream 0 {\n"
    "            if j == $N - 1 {\n"
    "                if 1 <= j {\n"
    "                    wait %got[j]\n"
    "                }\n"
    "                %c = relu %a[tp]\n"
    "            }\n"
    "        }\n"
    "    }\n"
    "    join\n"
    "}\n";

// Deferred puts, one behind the other.
static const char puts_text[] = HEAD("puts") //
    "streams 2\n"
    "in %a : $T[$R @tp, $M]\n"
    "temp %b : $T[$N, $M] shared\n"
    "temp %sent : event[$N]\n"
    "{\n"
    "    fork\n"
    "    on stream 0 {\n"
    "        group {\n"
    "            for j in 0..$N {\n"
    "                %b[j] = recv from (tp - 1) mod $R\n"
    "            }\n"
    "        }\n"
    "    }\n"
    "    for j in 0..$N {\n"
    "        on stream 1 {\n"
    "            send %a[tp] to (tp + 1) mod $R done %sent[j]\n"
    "        }\n"
    "    }\n"
    "    join\n"
    "    for j in 0..$N {\n"
    "        wait %sent[j]\n"
    "    }\n"
    "}\n";

static const char pair_text[] = HEAD("pair") //
    "in %a : $T[$R @tp, $N, $M, 1024]\n"
    "temp %b : $T[$N, $M, 1024] shared\n"
    "{\n"
    "    if tp == 0 {\n"
    "        send %a[tp] to 1\n"
    "    }\n"
    "    if tp == 1 {\n"
    "        %b = recv from 0\n"
    "    }\n"
    "}\n";

static const char ring_text[] = HEAD("ring") //
    "in %a : $T[$R @tp, $N, $M, 1024]\n"
    "temp %b : $T[$N, $M, 1024] shared\n"
    "{\n"
    "    group {\n"
    "        send %a[tp] to (tp + 1) mod $R\n"
    "        %b = recv from (tp - 1) mod $R\n"
    "    }\n"
    "}\n";

static const char peers_text[] = HEAD("peers") //
    "in %a : $T[$R @tp, $N, $M, 1024]\n"
    "temp %b : $T[$R, $N, $M, 1024] shared\n"
    "{\n"
    "    group {\n"
    "        for j in 1..$R {\n"
    "            send %a[tp] to (tp + j) mod $R\n"
    "            %b[(tp - j) mod $R] = recv from (tp - j) mod $R\n"
    "        }\n"
    "    }\n"
    "}\n";

static const char gathers_text[] = HEAD("gathers") //
    "in %a : $T[$R @tp, $M]\n"
    "temp %b : $T[$N, $R, $M] shared\n"
    "{\n"
    "    for i in 0..$N {\n"
    "        %b[i] = all_gather %a[tp]\n"
    "    }\n"
    "}\n";

static const char gather_text[] = HEAD("gather") //
    "in %a : $T[$R @tp, $N, $M, 1024]\n"
    "temp %b : $T[$R, $N, $M, 1024] shared\n"
    "{\n"
    "    %b = all_gather %a[tp]\n"
    "}\n";

static const char reductions_text[] = HEAD("reductions") //
    "in %a : $T[$R @tp, $M]\n"
    "temp %s : $T[$M] shared\n"
    "temp %b : $T[$N, $M] shared\n"
    "{\n"
    "    %s = copy %a[tp]\n"
    "    for i in 0..$N {\n"
    "        %b[i] = all_reduce %s\n"
    "    }\n"
    "}\n";

#define TERM(name) .term = #name, .at = offsetof(hd_machine, name)
#define PRODUCT(type, as)                                                  \
    .term = "matmul." as, .at = offsetof(hd_machine, matmul[type]),        \
    .in = UNIT_OPERATIONS, .text = matmul_text, .dtype = type, .ranks = 1, \
    .few = 1, .many = 3, .base = 128, .levels = 6, .growth = 8,            \
    .longest = 0.03, .hot = true
#define ATTENTION                                                           \
    .ranks = 1, .few = 1, .many = 3, .base = 128, .levels = 8, .growth = 4, \
    .longest = 0.03, .hot = true
#define F32 .dtype = HD_DTYPE_F32, .result = HD_DTYPE_F32
#define BF16 .dtype = HD_DTYPE_BF16, .result = HD_DTYPE_BF16
#define BOTH PROBE_CPU | PROBE_CUDA
// From 64 KB to 128 MB.
#define MEGABYTES .base = 16, .levels = 12, .growth = 2, .few = 1, .many = 4
// 4 KB.
#define SMALL .base = 1024, .levels = 1, .growth = 1

const probe probes[] = {
    {PRODUCT(HD_DTYPE_F32, "f32"), .result = HD_DTYPE_F32, .devices = BOTH},
    {PRODUCT(HD_DTYPE_F64, "f64"), .result = HD_DTYPE_F64, .devices = BOTH},
    {PRODUCT(HD_DTYPE_BF16, "bf16"), .result = HD_DTYPE_BF16, .devices = BOTH},
    {PRODUCT(HD_DTYPE_F16, "f16"), .result = HD_DTYPE_F16, .devices = BOTH},
    {PRODUCT(HD_DTYPE_F8E4M3, "f8e4m3"), .result = HD_DTYPE_BF16,
     .devices = PROBE_CUDA},
    {TERM(attention), .in = UNIT_SHARE, .text = attention_text, F32,
     .devices = PROBE_CPU, ATTENTION},
    {TERM(attention), .in = UNIT_SHARE, .text = attention_text, BF16,
     .devices = PROBE_CUDA, ATTENTION},
    {TERM(memory), .in = UNIT_BYTES, .text = memory_text, F32, .devices = BOTH,
     .ranks = 1, .base = 16, .levels = 12, .growth = 2, .few = 1, .many = 4,
     .longest = 0.02},
    {TERM(launch), .in = UNIT_SECONDS, .text = row_text, F32,
     .devices = PROBE_CPU, .ranks = 1, SMALL, .few = 16, .many = 144},
    {TERM(launch), .in = UNIT_SECONDS, .text = queue_text, BF16,
     .devices = PROBE_CUDA, .ranks = 1, .base = 128, .levels = 7, .growth = 8,
     .few = 4, .many = 36, .longest = 0.004},
    {TERM(event), .in = UNIT_SECONDS, .text = events_text, BF16,
     .devices = PROBE_CUDA, .ranks = 1, .base = 128, .levels = 7, .growth = 8,
     .few = 4, .many = 36, .longest = 0.004},
    {TERM(issue), .in = UNIT_SECONDS, .text = trips_text, BF16,
     .devices = PROBE_CUDA, .ranks = 1, SMALL, .few = 8, .many = 72,
     .by_host = true},
    {TERM(hop), .in = UNIT_SECONDS, .text = relay_text, F32,
     .devices = PROBE_CPU, .ranks = 2, SMALL, .few = 4, .many = 36},
    {TERM(hop), .in = UNIT_SECONDS, .text = hops_text, F32,
     .devices = PROBE_CUDA, .ranks = 2, SMALL, .few = 4, .many = 36},
    {TERM(copy_latency), .in = UNIT_SECONDS, .text = puts_text, F32,
     .devices = PROBE_CUDA, .ranks = 2, .base = 1 << 20, .levels = 1,
     .growth = 1, .few = 4, .many = 36},
    {TERM(run), .in = UNIT_SECONDS, .text = meet_text, F32,
     .devices = PROBE_CUDA, .ranks = 2, SMALL, .few = 1, .many = 2},
    {TERM(copy_bandwidth), .in = UNIT_BYTES, .text = ring_text, F32,
     .devices = PROBE_CPU, .ranks = 2, MEGABYTES, .longest = 0.02},
    {TERM(copy_bandwidth), .in = UNIT_BYTES, .text = pair_text, F32,
     .unbound = offsetof(hd_machine, link), .devices = PROBE_CUDA, .ranks = 2,
     MEGABYTES, .longest = 0.003},
    {TERM(link), .in = UNIT_BYTES, .text = ring_text, F32,
     .unbound = offsetof(hd_machine, copy_bandwidth), .devices = PROBE_CUDA,
     .ranks = 2, MEGABYTES, .longest = 0.003},
    {TERM(collision), .in = UNIT_SHARE, .text = peers_text, F32,
     .devices = PROBE_CUDA, .ranks = 3, MEGABYTES, .longest = 0.003},
    {TERM(collective_latency), .in = UNIT_SECONDS, .text = gathers_text, F32,
     .devices = BOTH, .ranks = 2, SMALL, .few = 2, .many = 18},
    {TERM(collective_bandwidth), .in = UNIT_BYTES, .text = gather_text, F32,
     .devices = PROBE_CUDA, .ranks = 2, MEGABYTES, .longest = 0.003},
    {TERM(reduction_latency), .in = UNIT_SECONDS, .text = reductions_text, F32,
     .devices = BOTH, .ranks = 2, SMALL, .few = 2, .many = 18},
    {.term = NULL},
};

const char *probe_obstacle(const probe *probe, int ranks)
{
    return ranks >= probe->ranks ? NULL
           : probe->ranks == 2   ? "it takes two ranks"
                                 : "it takes three ranks";
}

// A text that is filled.
typedef struct filled {
    const probe *probe;
    int ranks, level;
    bool many;
} filled;

static int number_of(const filled *f, char letter)
{
    switch (letter) {
    case 'R':
        return f->ranks;
    case 'M':
        return f->probe->base << f->level;
    case 'H':
        return f->probe->base << f->level >> 1;
    case 'S':
        return (f->probe->base << f->level) / 8 * 7;
    default:
        return f->many ? f->probe->many : f->probe->few;
    }
}

static void write_word(const void *context, char letter,
                       char out[TEMPLATE_WORD])
{
    const filled *f = context;

    if (letter == 'T' || letter == 'O')
        snprintf(
            out, TEMPLATE_WORD, "%s",
            hd_dtype_text(letter == 'T' ? f->probe->dtype : f->probe->result));
    else
        snprintf(out, TEMPLATE_WORD, "%d", number_of(f, letter));
}

hd_status probe_module(const probe *probe, int ranks, int level, bool many,
                       hd_diag *diag, hd_module **out)
{
    filled filled = {probe, ranks, level, many};
    char *text = template_fill(probe->text, write_word, &filled);
    hd_status status =
        hd_parse(probe->term, text, strlen(text), NULL, 0, diag, out);

    free(text);
    return status;
}

// Host programs to mutate: lowered ones by every pipeline, and ones as people
// write them, with slots, acknowledgements and several axes. Tiny, since the
// oracle executes them hundreds of times.
#ifndef HD_TESTS_MUTATION_PROGRAMS_H
#define HD_TESTS_MUTATION_PROGRAMS_H

#include <string>
#include <vector>

#include "heddle/heddle.h"

struct Base {
    std::string name, text;
    bool lower;
    hd_lower_options options;
};

inline hd_lower_options Options(hd_transfer transfer, int streams,
                                int chunks = 1,
                                hd_protocol protocol = HD_PROTOCOL_PUT,
                                bool defer = false)
{
    hd_lower_options o = hd_lower_defaults();

    o.transfer = transfer;
    o.streams = streams;
    o.chunks = chunks;
    o.protocol = protocol;
    o.defer_sends = defer;
    return o;
}

// With a stream for transfers.
inline hd_lower_options Beside(hd_lower_options options)
{
    options.comm_stream = true;
    return options;
}

// With one launch of its products.
inline hd_lower_options Launched(hd_lower_options options)
{
    options.launch = true;
    return options;
}

inline std::string Linear(int ranks)
{
    return "tensor program linear mesh tp=" + std::to_string(ranks) +
           " in %a : f32[size tp @tp, 2, 2] in %w : f32[2, 2] "
           "out %c : f32[size tp @stream, 2, 2] "
           "temp %g : f32[size tp @stream, 2, 2] "
           "{ %g = set %a %c = matmul %g, %w tb }";
}

inline std::vector<Base> TensorBases()
{
    static const char *const mlp =
        "tensor program mlp mesh tp=3 in %x : f32[size tp @tp, 2, 2] "
        "in %u : f32[2, size tp @tp, 2] out %y : f32[size tp @tp, 2, 2] "
        "temp %g : f32[size tp @stream, 2, 2] "
        "temp %h : f32[size tp @stream, 2, 2] "
        "temp %k : f32[size tp @stream, 2, 2] temp %w : f32[2, size tp, 2] "
        "{ %g = set %x %h = relu %g %k = scale %h by 2 %y = set %k }";
    static const char *const reduce =
        "tensor program reduce mesh tp=4 in %x : f32[4@tp, 4, 2] "
        "out %y : f32[4@tp, 2] out %z : f32[4, 2] out %u : f32[4@tp, 2] "
        "out %v : f32[4, 2] "
        "{ %y = sum %x dim 0 %z = sum %x dim 0 %u = max %x dim 0 "
        "%v = min %x dim 0 }";
    static const char *const two_axes =
        "tensor program axes mesh dp=2, tp=2 in %x : f32[2@dp, 2@tp, 2] "
        "out %y : f32[2@dp, 2@stream, 2] out %z : f32[2, 2@tp, 2] "
        "temp %g : f32[2@dp, 2@stream, 2] "
        "{ %g = set %x %y = relu %g %z = set %x }";
    static const char *const gathers =
        "tensor program two mesh tp=3 in %a : f32[3@tp, 2] "
        "in %b : f32[3@tp, 2] out %c : f32[3@stream, 2] "
        "out %d : f32[3@stream, 2] temp %ga : f32[3@stream, 2] "
        "temp %gb : f32[3@stream, 2] "
        "{ %ga = set %a %c = relu %ga %gb = set %b %d = add %gb, %c }";

    static const char *const less =
        "tensor program less mesh tp=3 in %x : f32[size tp @tp, 2, 2] "
        "out %y : f32[size tp @stream, 2, 2] "
        "out %z : f32[size tp @stream, 2, 2] "
        "temp %g : f32[size tp @stream, 2, 2] "
        "temp %m : f32[size tp @stream, 2, 1] "
        "temp %d : f32[size tp @stream, 2, 2] "
        "{ %g = set %x %m = max %g dim 2 %d = sub %g, %m %y = exp %d "
        "%z = div %d, %y }";

    static const char *const block =
        "tensor program block mesh tp=3 in %x : f32[5@tp, 2] "
        "in %w : f32[3@tp, 2, 2] temp %g : f32[5 in 3@stream, 2] "
        "temp %h : f32[3@tp, 5 in 3@stream, 2] out %y : f32[5@tp, 2] "
        "{ %g = set %x %h = matmul %g, %w %y = sum %h dim 0 }";

    // Rows and their scales come by moves of their own.
    static const char *const scaled =
        "tensor program scaled mesh tp=3 in %x : f32[3@tp, 4, 3] "
        "in %s : f32[3@tp, 4, 2] in %w : f32[3@tp, 3, 3] "
        "in %v : f32[3@tp, 2, 2] temp %g : f32[3@stream, 4, 3] "
        "temp %h : f32[3@stream, 4, 2] out %y : f32[3@tp, 3@stream, 4, 3] "
        "{ %g = set %x %h = set %s "
        "%y = matmul %g, %w scale_a %h scale_b %v grain 2 }";

    // Of four ranks' blocks one is read in place, and three share two slots.
    static const char *const attends =
        "tensor program attends mesh tp=4 in %q : f32[4@tp, 1, 2, 2] "
        "in %k : f32[4@tp, 1, 2, 2] temp %g : f32[4@stream, 1, 2, 2] "
        "out %o : f32[4@tp, 1, 2, 2] out %l : f32[4@tp, 1, 2] "
        "{ %g = set %k %o, %l = attention %q, %g, %g blocks }";

    // Halves of rows and of keys: of three ranks' blocks some see others.
    static const char *const zigzag =
        "tensor program zigzag mesh tp=3 in %q : f32[3@tp, 1, 2, 2] "
        "in %k : f32[3@tp, 1, 2, 2] temp %g : f32[3@stream, 1, 2, 2] "
        "out %o : f32[3@tp, 1, 2, 2] out %l : f32[3@tp, 1, 2] "
        "{ %g = set %k %o, %l = attention %q, %g, %g blocks zigzag 2 - tp }";

    // Products are sent as they are made.
    static const char *const sums =
        "tensor program sums mesh tp=2 in %a : f32[2@tp, 2@stream, 2, 2] "
        "in %w : f32[2@tp, 1, 2, 2] temp %p : f32[2@tp, 2@stream, 2, 2] "
        "out %c : f32[2@tp, 2, 2] { %p = matmul %a, %w %c = sum %p dim 0 }";

    // Keys are made of what is gathered, where a rank's rows see some of it.
    static const char *const latents =
        "tensor program latents mesh tp=3 in %q : f32[3@tp, 1, 2, 2] "
        "in %c : f32[3@tp, 1, 2, 2] temp %g : f32[3@stream, 1, 2, 2] "
        "temp %t : f32[1, 3@stream, 2, 2] temp %k : f32[3@stream, 1, 2, 2] "
        "out %o : f32[3@tp, 1, 2, 2] out %l : f32[3@tp, 1, 2] "
        "{ %g = set %c %t = transpose %g dim0 0 dim1 1 "
        "%k[:, 0] = relu %t[0] "
        "%o, %l = attention %q, %k, %g blocks causal tp * 2 }";

    return {
        {"launch2", Linear(2), true, Launched(Options(HD_TRANSFER_DIRECT, 1))},
        {"launch2get", Linear(2), true,
         Launched(Options(HD_TRANSFER_DIRECT, 1, 2, HD_PROTOCOL_GET))},
        {"launchsums2", sums, true, Launched(Options(HD_TRANSFER_DIRECT, 1))},
        {"latents3", latents, true, Options(HD_TRANSFER_RING, 2)},
        {"latents3direct", latents, true, Options(HD_TRANSFER_DIRECT, 2)},
        {"zigzag3", zigzag, true, Options(HD_TRANSFER_RING, 2)},
        {"zigzag3direct", zigzag, true, Options(HD_TRANSFER_DIRECT, 2)},
        {"attends4", attends, true, Beside(Options(HD_TRANSFER_DIRECT, 2))},
        {"attends4get", attends, true,
         Options(HD_TRANSFER_DIRECT, 2, 1, HD_PROTOCOL_GET)},
        {"scaled3", scaled, true, Options(HD_TRANSFER_RING, 2)},
        {"scaled3c2", scaled, true, Options(HD_TRANSFER_DIRECT, 2, 2)},
        {"block3", block, true, Options(HD_TRANSFER_RING, 2)},
        {"block3direct", block, true, Options(HD_TRANSFER_DIRECT, 2)},
        {"block3broadcast", block, true, Options(HD_TRANSFER_BROADCAST, 2)},
        {"less3", less, true, Options(HD_TRANSFER_RING, 2)},
        {"ring4x2", Linear(4), true, Options(HD_TRANSFER_RING, 2)},
        {"ring3x3c2", Linear(3), true, Options(HD_TRANSFER_RING, 3, 2)},
        {"ring4get", Linear(4), true,
         Options(HD_TRANSFER_RING, 2, 1, HD_PROTOCOL_GET, true)},
        {"ring2x4", Linear(2), true, Options(HD_TRANSFER_RING, 4, 2)},
        {"direct4x2", Linear(4), true,
         Options(HD_TRANSFER_DIRECT, 2, 1, HD_PROTOCOL_PUT, true)},
        {"direct3x3", Linear(3), true, Options(HD_TRANSFER_DIRECT, 3)},
        {"pipelined4x2", Linear(4), true, Options(HD_TRANSFER_PIPELINED, 2)},
        {"broadcast3x2", Linear(3), true, Options(HD_TRANSFER_BROADCAST, 2)},
        {"bulk8", Linear(8), true, Options(HD_TRANSFER_BULK, 2)},
        {"mlp3", mlp, true, Options(HD_TRANSFER_RING, 2)},
        {"mlp3fused", mlp, true, Options(HD_TRANSFER_FUSED, 2)},
        {"reduce4", reduce, true, Options(HD_TRANSFER_RING, 2)},
        {"axes2x2", two_axes, true, Options(HD_TRANSFER_RING, 2)},
        {"gathers3", gathers, true, Options(HD_TRANSFER_DIRECT, 2)},
    };
}

// More names of one root than a word has bits, each of its own value.
inline std::string ManyNames()
{
    std::string names, body = "{ %m0 = relu %x ";

    for (int i = 1; i < 66; i++) {
        std::string name = "%m" + std::to_string(i);

        names += "temp " + name + " : f32[1] of %m0 ";
        body += name + " = scale %x by " + std::to_string(i) + " ";
    }
    return "host program many in %x : f32[1] out %y : f32[1] "
           "temp %m0 : f32[1] " +
           names + body + "%y = copy %m65 }";
}

inline std::vector<Base> HostBases()
{
    // Gathers run ahead into two slots; a slot is taken again when its last
    // matmul has been waited for.
    static const char *const slots =
        "host program slots mesh tp=2 streams 2 in %x : f32[2, 2] "
        "in %w : f32[4, 2@tp, 1, 2] out %y : f32[2, 2] "
        "temp %slot : f32[2, 2, 1, 2] shared temp %full : f32[2, 2, 2] of "
        "%slot "
        "temp %h : f32[5, 2, 2] temp %here : event[4] temp %used : event[4] "
        "{ %h[0] = copy %x fork for l in 0..4 { on stream 0 { "
        "if l > 1 { wait %used[l - 2] } "
        "%slot[l mod 2] = all_gather %w[l, tp] %here[l] = record } "
        "on stream 1 { wait %here[l] "
        "%h[l + 1] = matmul %h[l], %full[l mod 2] %used[l] = record } } "
        "join %y = copy %h[4] }";
    // Stream 1 may write %x when the peer has answered that it has it.
    static const char *const answers =
        "host program answers mesh tp=3 streams 2 in %a : f32[2] "
        "in %i : f32[1] temp %x : f32[2] out %y : f32[3, 2] shared "
        "temp %word : f32[3, 1] shared { %x = copy %a %y[tp] = copy %a fork "
        "for j in 1..3 { let p = (tp + j) mod 3 let q = (tp - j) mod 3 "
        "on stream 0 { group { send %x to p %y[q] = recv from q } "
        "send %i to q } on stream 1 { %word[p] = recv from p } } "
        "on stream 1 { %x = relu %a } join }";
    // Two collectives on axes of their own, side by side.
    static const char *const collectives =
        "host program sides mesh dp=2, tp=2 streams 2 in %x : f32[2@tp, 2] "
        "in %g : f32[2, 2] out %y : f32[2, 2] shared out %r : f32[2@dp, 2] "
        "temp %s : f32[2, 2] shared temp %e : event[2] { %s = copy %g fork "
        "on stream 0 { %y = all_gather@tp %x[tp] %e[0] = record } "
        "on stream 1 { %r[dp] = reduce_scatter@dp %s %e[1] = record } "
        "wait %e[0] wait %e[1] }";
    // What two streams leave is waited for at once, and a send beside it.
    static const char *const lists =
        "host program lists mesh tp=2 streams 2 in %x : f32[2] "
        "out %y : f32[3, 2] temp %t : f32[3, 2] shared temp %e : event[6] "
        "{ %e[0], %e[1] = record on stream 0 { wait %e[0] "
        "group { send %x to 1 - tp done %e[2] %t[0] = recv from 1 - tp } "
        "%t[1] = relu %x %e[3], %e[4] = record } "
        "on stream 1 { wait %e[1], %e[4] %t[2] = copy %t[1] %e[5] = record } "
        "wait %e[5], %e[2], %e[3] %y = copy %t }";
    // What a launch has made goes while it makes more, and it waits for what
    // the peer's has; another one follows it.
    static const char *const launches =
        "host program launches mesh tp=2 streams 2 in %a : f32[2, 2] "
        "in %w : f32[2, 2] temp %p : f32[2, 2] temp %q : f32[2, 2] shared "
        "out %c : f32[2, 2] out %d : f32[2, 2] temp %e : event[3] { fork "
        "on stream 0 { launch { %p = matmul %a, %w %e[0] = record "
        "%c = matmul %p, %w } } on stream 1 { wait %e[0] group { "
        "send %p to 1 - tp %q = recv from 1 - tp } %e[1] = record } "
        "on stream 0 { launch { wait %e[1] %d = matmul %q, %w "
        "%e[2] = record } } wait %e[2] join }";
    // Deferred sends around a ring of one slot a rank.
    static const char *const deferred =
        "host program deferred mesh tp=4 in %a : f32[4@tp, 2] "
        "out %c : f32[4, 2] shared temp %sent : event[3] "
        "{ %c[tp] = copy %a[tp] for j in 0..3 { let i = (tp - j) mod 4 "
        "group { send %c[i] to (tp + 1) mod 4 done %sent[j] "
        "%c[(i - 1) mod 4] = recv from (tp - 1) mod 4 } "
        "if j > 0 { wait %sent[j - 1] } } wait %sent[2] }";
    // Neighbours exchange one way and then the other.
    static const char *const pairs =
        "host program pairs mesh tp=4 streams 3 in %x : f32[2] "
        "out %l : f32[2] shared out %r : f32[2] shared temp %m : f32[2] "
        "temp %go : event[2] { %m = relu %x %go[0] = record "
        "on stream 0 { wait %go[0] group { send %m to (tp + 1) mod 4 "
        "%l = recv from (tp - 1) mod 4 } } "
        "on stream 1 { wait %go[0] group { send %m to (tp - 1) mod 4 "
        "%r = recv from (tp + 1) mod 4 } %go[1] = record } "
        "on stream 2 { wait %go[1] } join }";
    static const char *const renamed =
        "host program renamed streams 2 in %x : f32[4, 2] out %y : f32[4, 2] "
        "temp %a : f32[4, 2] temp %b : f32[2, 4] of %a temp %c : f32[4, 2] "
        "temp %d : f32[4, 2] of %c temp %e : event[4] { %c = relu %x "
        "%e[0] = record on stream 0 { wait %e[0] for i in 0..4 { "
        "%a[i] = scale %c[i] by 2 } %e[1] = record } "
        "on stream 1 { wait %e[1] %d = copy %a %e[2] = record } "
        "wait %e[2] on stream 0 { wait %e[2] for i in 0..4 { "
        "%y[i] = copy %d[i] } } join }";
    // Temporaries that could share bytes in some ways and not in others.
    static const char *const temps =
        "host program temps streams 1 in %x : f32[3] out %y : f32[3] "
        "temp %a : f32[3] temp %b : f32[3] temp %c : f32[3] of %a "
        "temp %d : f32[3] temp %e : f32[3] of %b temp %go : event[2] "
        "{ %a = relu %x %b = scale %a by 2 %c = scale %b by 3 "
        "%go[0] = record on stream 0 { wait %go[0] %d = add %c, %x "
        "%go[1] = record } wait %go[1] %e = mul %d, %c %y = add %e, %d "
        "join }";
    static const char *const chain =
        "host program chain in %x : f32[3] out %y : f32[3] temp %a : f32[3] "
        "temp %b : f32[3] temp %c : f32[3] temp %d : f32[3] of %b "
        "{ %a = relu %x %b = scale %a by 2 %c = add %a, %b "
        "%d = mul %c, %a %y = add %d, %c }";
    // Any two of these temporaries could share bytes: no step touches both.
    static const char *const lives =
        "host program lives in %x : f32[3] out %y : f32[3] temp %a : f32[3] "
        "temp %b : f32[3] temp %c : f32[3] temp %d : f32[3] temp %e : f32[3] "
        "{ %a = relu %x %b = gelu %x %c = copy %x %d = add %a, %b "
        "%e = scale %d by 2 %y = add %e, %c }";
    // Each rank sends its piece to all; what is not the root's is not read.
    static const char *const broadcasts =
        "host program broadcasts mesh tp=3 streams 2 in %a : f32[3@tp, 2] "
        "out %c : f32[3, 2] shared out %d : f32[3, 2] { %c[tp] = copy %a[tp] "
        "fork for j in 0..3 { on stream j mod 2 { "
        "%c[j] = broadcast %c[tp] root j %d[j] = relu %c[j] } } join }";
    // Each rank gets the sum of one index; its result is all that it names.
    static const char *const reduces =
        "host program reduces mesh tp=3 streams 2 in %a : f32[3, 2] "
        "out %c : f32[2] out %d : f32[2] temp %p : f32[3, 2] shared "
        "{ %p = relu %a fork for j in 0..3 { on stream j mod 2 { "
        "if tp == j { %c = reduce %p[j] root j %d = relu %c } "
        "else { reduce %p[j] root j } } } join }";
    // What the caller brings is read before a temporary takes its bytes.
    static const char *const taken =
        "host program taken inout %x : f32[2, 2] out %y : f32[2, 2] "
        "temp %a : f32[2, 2] temp %b : f32[2, 2] of %x "
        "temp %c : f32[4] of %x { %a = relu %x %y = scale %x by 2 "
        "%b = gelu %a %y = add %y, %b %x = add %y, %a }";
    // Ranks have shares of 2 and 1 rows, which all gather; what came and what
    // is the rank's own go on side by side.
    static const char *const uneven =
        "host program uneven mesh tp=2 streams 2 in %a : f32[2, 2] "
        "in %b : f32[2, 2] out %c : f32[3, 2] temp %g : f32[3, 2] shared "
        "{ let lo = tp * 2 let n = 2 - tp let low = 2 - tp * 2 let m = tp + 1 "
        "%g[lo..lo + n] = copy %a[0..n] fork on stream 0 { "
        "group { send %g[lo..lo + n] to 1 - tp "
        "%g[low..low + m] = recv from 1 - tp } "
        "%c[low..low + m] = matmul %g[low..low + m], %b } on stream 1 { "
        "%c[lo..lo + n] = matmul %g[lo..lo + n], %b } join }";
    // Two streams have the columns of a matrix, each some and then others.
    static const char *const columns =
        "host program columns streams 2 in %x : f32[3, 4] out %y : f32[3, 4] "
        "temp %t : f32[3, 4] temp %e : event[2] { fork on stream 0 { "
        "%t[:, 0..2] = relu %x[:, 0..2] %e[0] = record } on stream 1 { "
        "%t[:, 2..4] = gelu %x[:, 2..4] %e[1] = record wait %e[0] "
        "%y[0..3, 1..4] = copy %t[:, 1..4] } on stream 0 { wait %e[1] "
        "%y[:, 0..1] = relu %t[:, 3..4] } join }";
    // A window of two rows, which steps by one, and the same bytes in a row.
    static const char *const window =
        "host program window streams 1 in %x : f32[4, 2] out %y : f32[8] "
        "temp %t : f32[4, 2] temp %f : f32[8] of %t temp %g : f32[4, 2] of %y "
        "{ for i in 0..3 { %t[i..i + 2] = scale %x[i..i + 2] by 2 } fork "
        "for i in 0..2 { on stream 0 { %g[2 * i..2 * i + 1, 0..2] = "
        "relu %t[2 * i..2 * i + 1] } %g[2 * i + 1] = copy %t[2 * i + 1] } "
        "join %f[1..3] = relu %x[1..3, 0] %y[7..8] = copy %f[1..2] }";
    // Pieces of rows in place, gathered, summed and left to one rank.
    static const char *const places =
        "host program places mesh tp=2 in %x : f32[4, 2] inout %y : f32[4, 2] "
        "shared temp %z : f32[8] of %y { %y[1..3] = all_gather %y[tp + 1] "
        "%y[tp + 1..tp + 3] = copy %x[tp + 1..tp + 3] "
        "%y[0..2] = all_reduce %y[0..2] %y[tp] = reduce_scatter %y[0..2] "
        "%y[2..4] = broadcast %y[2..4] root 1 "
        "%y[0..1] = reduce %y[0..1] root 0 }";
    // Ranks have 3, 3 and 1 rows; a gather of them on one stream, block by
    // block, and what is made of it on another.
    static const char *const blocks =
        "host program blocks mesh tp=3 streams 2 in %a : f32[7@tp, 2] "
        "in %b : f32[2, 2] out %c : f32[7 in 3, 2] out %d : f32[7@tp, 2] "
        "temp %g : f32[7, 2] shared temp %e : event[3] temp %w : event[1] { "
        "%g[tp of 3] = copy %a[tp of 3] fork for j in 1..3 { "
        "let i = (tp - j) mod 3 on stream 0 { group { "
        "send %g[tp of 3] to (tp + j) mod 3 %g[i of 3] = recv from i } "
        "%e[j] = record } on stream 1 { if j == 1 { "
        "%d[tp of 3] = matmul %a[tp of 3], %b %c[tp of 3] = relu %g[tp of 3] } "
        "wait %e[j] %c[i of 3] = matmul %g[i of 3], %b } } join }";
    // Blocks in both dimensions, by columns, and by fewer than there are ranks.
    static const char *const squares =
        "host program squares mesh dp=2, tp=2 streams 1 "
        "in %x : f32[3@dp, 5@tp] inout %y : f32[3@dp, 5@tp] "
        "out %z : f32[4, 3] temp %t : f32[3@dp, 5@tp] temp %f : f32[6] of %t "
        "{ %t[dp of 2, tp of 2] = relu %x[dp of 2, tp of 2] fork "
        "on stream 0 { %y[dp of 2, tp of 2] = add %y[dp of 2, tp of 2], "
        "%t[dp of 2, tp of 2] } %z[:, 0 of 2] = fill value 2 "
        "%z[0 of 3, 1 of 2] = fill value 3 %z[1 of 2, 2 of 3] = fill value 4 "
        "join %f[1 of 4] = copy %f[0 of 4] }";
    hd_lower_options none = hd_lower_defaults();

    std::vector<Base> bases = {
        {"slots2", slots, false, none},
        {"answers3", answers, false, none},
        {"sides2x2", collectives, false, none},
        {"lists2", lists, false, none},
        {"launches2", launches, false, none},
        {"deferred4", deferred, false, none},
        {"pairs4", pairs, false, none},
        {"renamed1", renamed, false, none},
        {"temps1", temps, false, none},
        {"chain1", chain, false, none},
        {"lives1", lives, false, none},
        {"broadcasts3", broadcasts, false, none},
        {"reduces3", reduces, false, none},
        {"taken1", taken, false, none},
        {"uneven2", uneven, false, none},
        {"columns1", columns, false, none},
        {"window1", window, false, none},
        {"places2", places, false, none},
        {"blocks3", blocks, false, none},
        {"squares2x2", squares, false, none},
        {"many1", ManyNames(), false, none},
    };
    return bases;
}

#endif

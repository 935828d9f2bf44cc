// A row has the largest score so far, the sum of exp(score - largest) and the
// sum of v by these weights, which are scaled down when a larger score comes.
// It takes some keys at a time, whose weights stay in registers, while its row
// of q and its mean, which may be long, do not. Of gradients some threads have
// a row, and what all keys make of its dq, and the others a key, and what all
// rows make of its dk and dv: nothing is added by two.
#include "codegen/attend.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>

#include "codegen/batch.h"
#include "codegen/body.h"
#include "codegen/prelude.h"

static const hd_span *lse_of(const hd_step *step)
{
    return &step->span[hd_op_lse(step->op)];
}

// f32 unless the logarithms are f64.
static hd_lane lane_of(const hd_step *step)
{
    return hd_body_lane(lse_of(step)->buffer->type.dtype);
}

// get_V(x) and, of a result, put_V(x) of view V.
static void add_conversions(hd_batch *k)
{
    const hd_step *step = k->step;
    hd_lane lane = lane_of(step);

    for (int i = 0; i < step->op->nviews; i++) {
        hd_dtype dtype = step->span[i].buffer->type.dtype;

        hd_text_printf(&k->text,
                       "static inline lane get_%d(%s x)\n{\n    return ", i,
                       hd_code_text(dtype));
        hd_prelude_load(&k->text, dtype, lane, "x");
        hd_text_puts(&k->text, ";\n}\n");
        if (i >= step->op->noutputs)
            continue;
        hd_text_printf(&k->text,
                       "static inline %s put_%d(lane x)\n{\n    return ",
                       hd_code_text(dtype), i);
        hd_prelude_store(&k->text, dtype, lane, "x");
        hd_text_puts(&k->text, ";\n}\n");
    }
}

static const char joining_text[] =
    "static inline bool sees_nothing(lane lse)\n"
    "{\n"
    "    return lse == none();\n"
    "}\n"
    "static inline lane lse_of_both(lane x, lane y)\n"
    "{\n"
    "    const lane most = x > y || x != x ? x : y;\n"
    "    if (sees_nothing(most) || most != most)\n"
    "        return most;\n"
    "    return most + LOG(EXP(x - most) + EXP(y - most));\n"
    "}\n"
    "static inline lane share(lane lse, lane both)\n"
    "{\n"
    "    return sees_nothing(lse) ? 0 : EXP(lse - both);\n"
    "}\n";

static void add_arithmetic(hd_batch *k)
{
    hd_lane lane = lane_of(k->step);
    bool wide = lane == HD_LANE_DOUBLE;

    hd_text_printf(&k->text,
                   "typedef %s lane;\n"
                   "#define EXP %s\n#define LOG %s\n"
                   "static inline lane none()\n{\n    return ",
                   hd_lane_text(lane), wide ? "exp" : "expf",
                   wide ? "log" : "logf");
    hd_prelude_identity(&k->text, HD_FOLD_MAX, lane,
                        lse_of(k->step)->buffer->type.dtype);
    hd_text_puts(&k->text, ";\n}\n");
    hd_text_puts(&k->text, joining_text);
}

// How far apart heads, rows and elements are: V2_H, V2_S, V2_D.
static void add_strides(hd_batch *k)
{
    static const char letters[] = "HSD";
    const hd_step *step = k->step;

    for (int i = 0; i < step->op->noutputs + step->op->ninputs; i++) {
        const hd_span *span = &step->span[i];
        int own = hd_op_batch(step->op, i, span->ndims);

        for (int d = own; d < span->ndims; d++)
            hd_text_printf(&k->text, "static constexpr i64 V%d_%c = %lld;\n", i,
                           letters[d - own], (long long)span->stride[d]);
    }
}

static void add_rows_loop(hd_batch *k)
{
    hd_text_puts(&k->text, "    for (i64 i = first; i < H * S");
    hd_batch_product(k);
    hd_text_puts(&k->text, "; i += step) {\n"
                           "        const i64 row = i % S, head = i / S % H;\n"
                           "        i64 b = i / S / H;\n");
    hd_batch_views(k);
    hd_batch_counts(k);
    hd_text_puts(&k->text, hd_batch_dims(k) > 0 ? "" : "        (void)b;\n");
}

static const char attention_text[] =
    "        const i64 shared = head / (H / HKV);\n"
    "        lane q[D], mean[W];\n"
    "        lane most = none(), sum = 0;\n"
    "        i64 from = 0, past = keys;\n"
    "        FIND_SEQUENCE(row)\n"
    "        if ((COUNTED && row >= rows) || (GROUPED && past == from)) {\n"
    "            if (UPDATES)\n"
    "                continue;\n"
    "            past = from;\n"
    "        }\n"
    "        if (MASKED) {\n"
    "            const i64 end = row + CAUSAL + 1;\n"
    "            if (end < past)\n"
    "                past = end;\n"
    "            if (WINDOW > 0 && end - WINDOW > from)\n"
    "                from = end - WINDOW;\n"
    "        }\n"
    "        v0 += head * V0_H + row * V0_S;\n"
    "        v1 += head * V1_H + row * V1_S;\n"
    "        v2 += head * V2_H + row * V2_S;\n"
    "        for (int d = 0; d < D; d++)\n"
    "            q[d] = get_2(v2[d * V2_D]);\n"
    "        for (int d = 0; d < W; d++)\n"
    "            mean[d] = 0;\n"
    "        for (i64 j = from; j < past; j += SOME) {\n"
    "            const int n = past - j < SOME ? (int)(past - j) : SOME;\n"
    "            const auto *k = v3 + shared * V3_H + j * V3_S;\n"
    "            const auto *v = v4 + shared * V4_H + j * V4_S;\n"
    "            lane weight[SOME], top = none();\n"
    "            for (int c = 0; c < SOME; c++)\n"
    "                weight[c] = 0;\n"
    "#pragma unroll 4\n"
    "            for (int d = 0; d < D; d++)\n"
    "                for (int c = 0; c < SOME; c++)\n"
    "                    if (c < n)\n"
    "                        weight[c] += q[d] * "
    "get_3(k[c * V3_S + d * V3_D]);\n"
    "            for (int c = 0; c < SOME; c++) {\n"
    "                weight[c] *= scale;\n"
    "                if (c < n && (weight[c] > top || weight[c] != "
    "weight[c]))\n"
    "                    top = weight[c];\n"
    "            }\n"
    "            if (top > most || top != top) {\n"
    "                const lane less = sees_nothing(most) ? 0 : "
    "EXP(most - top);\n"
    "                sum *= less;\n"
    "                for (int d = 0; d < W; d++)\n"
    "                    mean[d] *= less;\n"
    "                most = top;\n"
    "            }\n"
    "            for (int c = 0; c < SOME; c++)\n"
    "                if (c < n) {\n"
    "                    weight[c] = EXP(weight[c] - most);\n"
    "                    sum += weight[c];\n"
    "                }\n"
    "#pragma unroll 4\n"
    "            for (int d = 0; d < W; d++) {\n"
    "                lane x = mean[d];\n"
    "                for (int c = 0; c < SOME; c++)\n"
    "                    if (c < n)\n"
    "                        x += weight[c] * get_4(v[c * V4_S + d * V4_D]);\n"
    "                mean[d] = x;\n"
    "            }\n"
    "        }\n"
    "        const bool nothing = from >= past;\n"
    "        const lane lse = nothing ? none() : most + LOG(sum);\n"
    "        const lane before = UPDATES ? get_1(*v1) : none();\n"
    "        const lane both = UPDATES ? lse_of_both(lse, before) : lse;\n"
    "        const lane mine = UPDATES ? share(lse, both) : 1;\n"
    "        const lane other = UPDATES ? share(before, both) : 0;\n"
    "        for (int d = 0; d < W; d++) {\n"
    "            lane x = nothing ? 0 : mean[d] / sum * mine;\n"
    "            if (UPDATES && !sees_nothing(before))\n"
    "                x += other * get_0(v0[d * V0_D]);\n"
    "            v0[d * V0_D] = put_0(x);\n"
    "        }\n"
    "        *v1 = put_1(both);\n"
    "    }\n"
    "}\n";

// " * scale" is 1 / sqrt(D) unless the op says another.
static void add_scale(hd_batch *k, int64_t depth)
{
    const hd_key *key = hd_op_key(k->step->op, HD_KEY_SCALE);

    if (key != NULL && key->view >= 0)
        hd_text_printf(
            &k->text,
            "    const lane scale = get_%d(*(const %s "
            "*)args.at[%d]);\n",
            key->view,
            hd_code_text(k->step->span[key->view].buffer->type.dtype),
            key->view);
    else
        hd_text_printf(&k->text, "    const lane scale = (lane)%.17e;\n",
                       key != NULL ? key->number : 1 / sqrt((double)depth));
}

// How wide rows of q and k and of v are, and what rows see.
static void add_constants(hd_batch *k)
{
    const hd_step *step = k->step;
    const hd_key *window = hd_op_key(step->op, HD_KEY_WINDOW);
    const hd_span *q = &step->span[step->op->noutputs], *v = q + 2;

    hd_text_printf(
        &k->text,
        "enum { D = %lld, W = %lld, SOME = 16 };\n"
        "static constexpr bool MASKED = %s, UPDATES = %s;\n"
        "static constexpr i64 CAUSAL = %lld, WINDOW = %.0f;\n",
        (long long)q->extent[q->ndims - 1], (long long)v->extent[v->ndims - 1],
        step->causal != HD_SEES_ALL ? "true" : "false",
        hd_op_access(step->op, 0) == HD_ACCESS_UPDATE ? "true" : "false",
        (long long)step->causal, window != NULL ? window->number : 0);
}

static hd_status emit_attention(const hd_step *step, hd_text *out,
                                hd_kernel_grid *grid)
{
    hd_batch k = {.step = step};
    const hd_span *q = &step->span[2];
    int own = hd_op_batch(step->op, 2, q->ndims);
    int shared = hd_op_batch(step->op, 3, step->span[3].ndims);
    int64_t threads;

    add_arithmetic(&k);
    add_conversions(&k);
    add_strides(&k);
    add_constants(&k);
    hd_batch_counts_functions(&k);
    hd_batch_sequences_functions(&k);
    hd_batch_begin(&k);
    threads = hd_batch_lengths(&k);
    threads *= hd_batch_length(&k, "H", 2, own);
    threads *= hd_batch_length(&k, "S", 2, own + 1);
    hd_batch_length(&k, "HKV", 3, shared);
    hd_batch_length(&k, "N", 3, shared + 1);
    hd_batch_counts_check(&k);
    hd_batch_sequences_check(&k);
    add_scale(&k, q->extent[q->ndims - 1]);
    add_rows_loop(&k);
    hd_text_puts(&k.text, attention_text);
    return hd_batch_end(&k, threads, out, grid);
}

// A few threads have a row together, so that what lies side by side is read by
// threads side by side. Results may lie over operands: all of them know the
// logarithms before the last one writes that of the result.
static void add_lines_loop(hd_batch *k)
{
    hd_text_puts(&k->text, "    const i64 n = H * S");
    hd_batch_product(k);
    hd_text_puts(
        &k->text,
        ";\n"
        "    for (i64 base = (first - threadIdx.x) / TOGETHER; base < n;\n"
        "         base += step / TOGETHER) {\n"
        "        const i64 line = base + threadIdx.x / TOGETHER;\n"
        "        const bool works = line < n;\n"
        "        const i64 i = works ? line : base;\n"
        "        const i64 row = i % S, head = i / S % H;\n"
        "        i64 b = i / S / H;\n");
    hd_batch_views(k);
    hd_text_puts(&k->text, hd_batch_dims(k) > 0 ? "" : "        (void)b;\n");
}

static const char merge_text[] =
    "        v0 += head * V0_H + row * V0_S;\n"
    "        v1 += head * V1_H + row * V1_S;\n"
    "        v2 += head * V2_H + row * V2_S;\n"
    "        v4 += head * V4_H + row * V4_S;\n"
    "        lane x = none(), y = none();\n"
    "        if (works) {\n"
    "            x = get_3(v3[head * V3_H + row * V3_S]);\n"
    "            y = get_5(v5[head * V5_H + row * V5_S]);\n"
    "        }\n"
    "        __syncthreads();\n"
    "        const lane both = lse_of_both(x, y);\n"
    "        const lane mine = share(x, both), other = share(y, both);\n"
    "        for (i64 d = threadIdx.x % TOGETHER; works && d < D;\n"
    "             d += TOGETHER) {\n"
    "            const lane a = "
    "sees_nothing(x) ? 0 : mine * get_2(v2[d * V2_D]);\n"
    "            const lane c = "
    "sees_nothing(y) ? 0 : other * get_4(v4[d * V4_D]);\n"
    "            v0[d * V0_D] = put_0(a + c);\n"
    "        }\n"
    "        if (works && threadIdx.x % TOGETHER == TOGETHER - 1)\n"
    "            *v1 = put_1(both);\n"
    "    }\n"
    "}\n";

static hd_status emit_merge(const hd_step *step, hd_text *out,
                            hd_kernel_grid *grid)
{
    enum { TOGETHER = 32 }; // divides a block
    hd_batch k = {.step = step};
    int own = hd_op_batch(step->op, 0, step->span[0].ndims);
    int64_t threads;

    add_arithmetic(&k);
    add_conversions(&k);
    add_strides(&k);
    hd_text_printf(&k.text, "enum { TOGETHER = %d };\n", TOGETHER);
    hd_batch_begin(&k);
    threads = hd_batch_lengths(&k) * TOGETHER;
    threads *= hd_batch_length(&k, "H", 0, own);
    threads *= hd_batch_length(&k, "S", 0, own + 1);
    hd_batch_length(&k, "D", 0, own + 2);
    add_lines_loop(&k);
    hd_text_puts(&k.text, merge_text);
    return hd_batch_end(&k, threads, out, grid);
}

// -------------------------------------------------------------- gradients

// A product of a row with n others: `one` is element d of it, `other` that of
// the c-th.
static void add_dots(hd_batch *k, const char *name, const char *length,
                     const char *one, const char *other)
{
    hd_text_printf(&k->text,
                   "                lane %s[SOME];\n"
                   "                for (int c = 0; c < SOME; c++)\n"
                   "                    %s[c] = 0;\n"
                   "#pragma unroll 4\n"
                   "                for (int d = 0; d < %s; d++) {\n"
                   "                    const lane x = %s;\n"
                   "                    for (int c = 0; c < SOME; c++)\n"
                   "                        if (c < n)\n"
                   "                            %s[c] += x * %s;\n"
                   "                }\n",
                   name, name, length, one, name, other);
}

// What those of n rows that `which` holds of add to a sum of rows by their
// factors.
static void add_terms(hd_batch *k, const char *which, const char *sum,
                      const char *length, const char *factor, const char *term)
{
    hd_text_printf(&k->text,
                   "#pragma unroll 4\n"
                   "                for (int d = 0; d < %s; d++) {\n"
                   "                    lane x = %s[d];\n"
                   "                    for (int c = 0; c < SOME; c++)\n"
                   "                        if (%s)\n"
                   "                            x += %s[c] * %s;\n"
                   "                    %s[d] = x;\n"
                   "                }\n",
                   length, sum, which, factor, term, sum);
}

static void add_zeros(hd_batch *k, const char *sum, const char *length)
{
    hd_text_printf(&k->text,
                   "            lane %s[%s];\n"
                   "            for (int d = 0; d < %s; d++)\n"
                   "                %s[d] = 0;\n",
                   sum, length, length, sum);
}

static void add_store(hd_batch *k, int view, const char *sum,
                      const char *length)
{
    hd_text_printf(
        &k->text,
        "            for (int d = 0; d < %s; d++) {\n"
        "                auto *to = v%d + d * V%d_D;\n"
        "                *to = put_%d(UPDATES ? get_%d(*to) + %s[d] : "
        "%s[d]);\n"
        "            }\n",
        length, view, view, view, view, sum, sum);
}

static const char rows_begin_text[] =
    "        if (at < H * S) {\n"
    "            const i64 row = at % S, head = at / S;\n"
    "            const i64 shared = head / (H / HKV);\n"
    "            const auto *q = v3 + head * V3_H + row * V3_S;\n"
    "            const auto *o = v6 + head * V6_H + row * V6_S;\n"
    "            const auto *g = v8 + head * V8_H + row * V8_S;\n"
    "            const lane lse = get_7(v7[head * V7_H + row * V7_S]);\n"
    "            lane delta = 0;\n"
    "            i64 from = 0, past = keys;\n"
    "            FIND_SEQUENCE(row)\n"
    "            if (UPDATES && ((COUNTED && row >= rows) ||\n"
    "                            (GROUPED && past == from)))\n"
    "                continue;\n"
    "            if (MASKED) {\n"
    "                const i64 end = row + CAUSAL + 1;\n"
    "                if (end < past)\n"
    "                    past = end;\n"
    "                if (WINDOW > 0 && end - WINDOW > from)\n"
    "                    from = end - WINDOW;\n"
    "            }\n"
    "            if (sees_nothing(lse) || (COUNTED && row >= rows))\n"
    "                past = from;\n"
    "            v0 += head * V0_H + row * V0_S;\n"
    "            for (int d = 0; d < W; d++)\n"
    "                delta += get_8(g[d * V8_D]) * get_6(o[d * V6_D]);\n";

static const char rows_loop_text[] =
    "            for (i64 j = from; j < past; j += SOME) {\n"
    "                const int n = past - j < SOME ? (int)(past - j) : SOME;\n"
    "                const auto *k = v4 + shared * V4_H + j * V4_S;\n"
    "                const auto *v = v5 + shared * V5_H + j * V5_S;\n";

static const char rows_weigh_text[] =
    "                for (int c = 0; c < SOME; c++)\n"
    "                    up[c] = EXP(score[c] * scale - lse) *\n"
    "                            (up[c] - delta) * scale;\n";

// All keys that a row sees.
static void add_rows(hd_batch *k)
{
    hd_text_puts(&k->text, rows_begin_text);
    add_zeros(k, "dq", "D");
    hd_text_puts(&k->text, rows_loop_text);
    add_dots(k, "score", "D", "get_3(q[d * V3_D])",
             "get_4(k[c * V4_S + d * V4_D])");
    add_dots(k, "up", "W", "get_8(g[d * V8_D])",
             "get_5(v[c * V5_S + d * V5_D])");
    hd_text_puts(&k->text, rows_weigh_text);
    add_terms(k, "c < n", "dq", "D", "up", "get_4(k[c * V4_S + d * V4_D])");
    hd_text_puts(&k->text, "            }\n");
    add_store(k, 0, "dq", "D");
    hd_text_puts(&k->text, "            continue;\n"
                           "        }\n");
}

static const char keys_begin_text[] =
    "        {\n"
    "            const i64 key = (at - H * S) % N, shared = (at - H * S) / N;\n"
    "            const auto *k = v4 + shared * V4_H + key * V4_S;\n"
    "            const auto *v = v5 + shared * V5_H + key * V5_S;\n"
    "            i64 from = 0, past = rows;\n"
    "            FIND_SEQUENCE(key)\n"
    "            if ((COUNTED && key >= keys) || (GROUPED && past == from)) {\n"
    "                if (UPDATES)\n"
    "                    continue;\n"
    "                past = from;\n"
    "            }\n"
    "            if (MASKED) {\n"
    "                if (key - CAUSAL > from)\n"
    "                    from = key - CAUSAL;\n"
    "                if (WINDOW > 0 && key - CAUSAL + WINDOW < past)\n"
    "                    past = key - CAUSAL + WINDOW;\n"
    "            }\n"
    "            v1 += shared * V1_H + key * V1_S;\n"
    "            v2 += shared * V2_H + key * V2_S;\n";

static const char keys_loop_text[] =
    "            for (i64 h = 0; h < H / HKV; h++)\n"
    "            for (i64 i = from; i < past; i += SOME) {\n"
    "                const int n = past - i < SOME ? (int)(past - i) : SOME;\n"
    "                const i64 head = shared * (H / HKV) + h;\n"
    "                const auto *q = v3 + head * V3_H + i * V3_S;\n"
    "                const auto *o = v6 + head * V6_H + i * V6_S;\n"
    "                const auto *l = v7 + head * V7_H + i * V7_S;\n"
    "                const auto *g = v8 + head * V8_H + i * V8_S;\n";

// `delta` has one term of each at a time, as `up` has. A row that saw nothing
// adds nothing, whatever is in it.
static const char keys_weigh_text[] =
    "                lane p[SOME], delta[SOME];\n"
    "                bool seen[SOME];\n"
    "                for (int c = 0; c < SOME; c++)\n"
    "                    delta[c] = 0;\n"
    "                for (int d = 0; d < W; d++)\n"
    "                    for (int c = 0; c < SOME; c++)\n"
    "                        if (c < n)\n"
    "                            delta[c] += get_8(g[c * V8_S + d * V8_D]) *\n"
    "                                        get_6(o[c * V6_S + d * V6_D]);\n"
    "                for (int c = 0; c < SOME; c++) {\n"
    "                    const lane lse = c < n ? get_7(l[c * V7_S]) : "
    "none();\n"
    "                    seen[c] = !sees_nothing(lse);\n"
    "                    p[c] = EXP(score[c] * scale - lse);\n"
    "                    up[c] = p[c] * (up[c] - delta[c]) * scale;\n"
    "                }\n";

// All rows that see a key.
static void add_keys(hd_batch *k)
{
    hd_text_puts(&k->text, keys_begin_text);
    add_zeros(k, "dk", "D");
    add_zeros(k, "dv", "W");
    hd_text_puts(&k->text, keys_loop_text);
    add_dots(k, "score", "D", "get_4(k[d * V4_D])",
             "get_3(q[c * V3_S + d * V3_D])");
    add_dots(k, "up", "W", "get_5(v[d * V5_D])",
             "get_8(g[c * V8_S + d * V8_D])");
    hd_text_puts(&k->text, keys_weigh_text);
    add_terms(k, "seen[c]", "dk", "D", "up", "get_3(q[c * V3_S + d * V3_D])");
    add_terms(k, "seen[c]", "dv", "W", "p", "get_8(g[c * V8_S + d * V8_D])");
    hd_text_puts(&k->text, "            }\n");
    add_store(k, 1, "dk", "D");
    add_store(k, 2, "dv", "W");
    hd_text_puts(&k->text, "        }\n"
                           "    }\n"
                           "}\n");
}

static void add_pairs_loop(hd_batch *k)
{
    hd_text_puts(&k->text, "    const i64 each = H * S + HKV * N;\n"
                           "    for (i64 i = first; i < each");
    hd_batch_product(k);
    hd_text_puts(&k->text, "; i += step) {\n"
                           "        const i64 at = i % each;\n"
                           "        i64 b = i / each;\n");
    hd_batch_views(k);
    hd_batch_counts(k);
    hd_text_puts(&k->text, hd_batch_dims(k) > 0 ? "" : "        (void)b;\n");
}

static hd_status emit_attention_grad(const hd_step *step, hd_text *out,
                                     hd_kernel_grid *grid)
{
    hd_batch k = {.step = step};
    const hd_span *q = &step->span[3];
    int own = hd_op_batch(step->op, 3, q->ndims);
    int shared = hd_op_batch(step->op, 4, step->span[4].ndims);
    int64_t batch, rows, keys;

    add_arithmetic(&k);
    add_conversions(&k);
    add_strides(&k);
    add_constants(&k);
    hd_batch_counts_functions(&k);
    hd_batch_sequences_functions(&k);
    hd_batch_begin(&k);
    batch = hd_batch_lengths(&k);
    rows = hd_batch_length(&k, "H", 3, own);
    rows *= hd_batch_length(&k, "S", 3, own + 1);
    keys = hd_batch_length(&k, "HKV", 4, shared);
    keys *= hd_batch_length(&k, "N", 4, shared + 1);
    hd_batch_counts_check(&k);
    hd_batch_sequences_check(&k);
    add_scale(&k, q->extent[q->ndims - 1]);
    add_pairs_loop(&k);
    add_rows(&k);
    add_keys(&k);
    return hd_batch_end(&k, batch * (rows + keys), out, grid);
}

// ------------------------------------------------------------------- join

// A row's threads take 8 elements each. All of them have read its lse when the
// last one writes it.
static const char join_text[] =
    "struct alignas(16) word {\n"
    "    u32 bits[4];\n"
    "};\n"
    "template <class T> union group {\n"
    "    word at[EACH * sizeof(T) / sizeof(word)];\n"
    "    T e[EACH];\n"
    "};\n"
    "template <class T> static inline group<T> load_group(const T *from)\n"
    "{\n"
    "    group<T> x;\n"
    "    if (VECTORS_BEFORE)\n"
    "        for (int w = 0; w < (int)(sizeof x / sizeof(word)); w++)\n"
    "            x.at[w] = ((const word *)from)[w];\n"
    "    else\n"
    "        for (int e = 0; e < EACH; e++)\n"
    "            x.e[e] = from[e * BEFORE_D];\n"
    "    return x;\n"
    "}\n"
    "template <class T> static inline void store_group(T *to, group<T> x)\n"
    "{\n"
    "    if (VECTORS)\n"
    "        for (int w = 0; w < (int)(sizeof x / sizeof(word)); w++)\n"
    "            ((word *)to)[w] = x.at[w];\n"
    "    else\n"
    "        for (int e = 0; e < EACH; e++)\n"
    "            to[e * V0_D] = x.e[e];\n"
    "}\n"
    "extern \"C\" __global__ void HD_BOUNDS(4) " HD_KERNEL_NAME
    "(const hd_kernel_args args)\n"
    "{\n"
    "    const unsigned mine = threadIdx.x % THREADS;\n"
    "    const unsigned line = threadIdx.x / THREADS;\n"
    "    for (index base = blockIdx.x * LINES; base < N; base += gridDim.x * "
    "LINES) {\n"
    "        const index i = base + line;\n"
    "        const bool works = line < LINES && i < N;\n"
    "        result *v0 = (result *)args.at[0];\n"
    "        float *v1 = (float *)args.at[1];\n"
    "        const earlier *from = (const earlier *)args.at[4];\n"
    "        float lse = none(), before = none();\n"
    "        group<earlier> old;\n"
    "        group<code> in;\n"
    "        if (works) {\n"
    "            const index row = i % S, head = i / S % H;\n"
    "            index b = i / S / H;\n"
    "            v0 += (i64)head * V0_H + (i64)row * V0_S + mine * EACH * "
    "V0_D;\n"
    "            v1 += (i64)head * V1_H + (i64)row * V1_S;\n"
    "            from += (i64)head * BEFORE_H + (i64)row * BEFORE_S + mine * "
    "EACH * BEFORE_D;\n"
    "            STEP_BATCH\n"
    "            in = ((const group<code> *)args.at[2])[(u64)i * THREADS + "
    "mine];\n"
    "            lse = ((const float *)args.at[3])[(u64)(i / PART) * PADDED + "
    "i % PART];\n"
    "            if (UPDATES) {\n"
    "                before = *v1;\n"
    "                old = load_group(from);\n"
    "            }\n"
    "        }\n"
    "        if (UPDATES)\n"
    "            __syncthreads();\n"
    "        if (works) {\n"
    "            const float both = UPDATES ? lse_of_both(lse, before) : lse;\n"
    "            const float share_in = UPDATES ? share(lse, both) : 1;\n"
    "            const float share_out = UPDATES ? share(before, both) : 0;\n"
    "            group<result> out;\n"
    "            for (int e = 0; e < EACH; e++) {\n"
    "                float x = share_in * get_2(in.e[e]);\n"
    "                if (UPDATES && !sees_nothing(before))\n"
    "                    x += share_out * get_before(old.e[e]);\n"
    "                out.e[e] = put_0(x);\n"
    "            }\n"
    "            store_group(v0, out);\n"
    "            if (mine == THREADS - 1)\n"
    "                *v1 = both;\n"
    "        }\n"
    "    }\n"
    "}\n";

// Whether groups of 8 elements lie at multiples of 16 bytes, as all memory
// does.
static bool has_vectors(const hd_span *o)
{
    int64_t multiple = 16 / (int64_t)hd_dtype_size(o->buffer->type.dtype);
    bool fits = o->stride[o->ndims - 1] == 1 && o->offset % multiple == 0;

    for (int d = 0; d < o->ndims - 1; d++)
        fits &= o->stride[d] % multiple == 0;
    return fits;
}

// Steps of the pointers along the batch, in row-major order.
static void add_batch_steps(hd_batch *k, const hd_span *before)
{
    const hd_span *o = &k->step->span[0], *lse = &k->step->span[1];

    hd_text_puts(&k->text, "#define STEP_BATCH");
    for (int d = hd_batch_dims(k) - 1; d >= 0; d--) {
        long long n = o->extent[d];

        hd_text_printf(&k->text,
                       " v0 += (i64)(b %% %lld) * %lld; v1 += (i64)(b %% %lld) "
                       "* %lld; from += (i64)(b %% %lld) * %lld; b /= %lld;",
                       n, (long long)o->stride[d], n, (long long)lse->stride[d],
                       n, (long long)before->stride[d], n);
    }
    hd_text_puts(&k->text, " (void)b;\n");
}

// What the result is merged with.
static void add_before(hd_batch *k, const hd_span *before)
{
    hd_dtype dtype = before->buffer->type.dtype;
    const int64_t *stride = &before->stride[before->ndims - 3];

    hd_text_printf(&k->text,
                   "typedef %s earlier;\n"
                   "static constexpr bool VECTORS_BEFORE = %s;\n"
                   "static constexpr i64 BEFORE_H = %lld, BEFORE_S = %lld, "
                   "BEFORE_D = %lld;\n"
                   "static inline lane get_before(earlier x)\n{\n    return ",
                   hd_code_text(dtype), has_vectors(before) ? "true" : "false",
                   (long long)stride[0], (long long)stride[1],
                   (long long)stride[2]);
    hd_prelude_load(&k->text, dtype, HD_LANE_FLOAT, "x");
    hd_text_puts(&k->text, ";\n}\n");
}

hd_status hd_emit_join(const hd_step *step, const hd_span *before, int64_t part,
                       int64_t padded, hd_text *out, hd_kernel_grid *grid)
{
    enum { EACH = 8, BLOCK = 256, AT_ONCE = 4 };
    hd_batch k = {.step = step};
    const hd_span *o = &step->span[0];
    int64_t wide = o->extent[o->ndims - 1];
    int64_t rows = hd_span_elements(&step->span[1]);
    int64_t threads = wide / EACH, lines = BLOCK / threads;

    assert(wide % EACH == 0 && threads <= BLOCK);
    add_arithmetic(&k);
    add_conversions(&k);
    add_strides(&k);
    add_batch_steps(&k, before);
    hd_text_printf(
        &k.text,
        "typedef %s index;\ntypedef %s result;\ntypedef %s code;\n"
        "enum { EACH = %d, THREADS = %lld, LINES = %lld };\n"
        "static constexpr bool UPDATES = %s, VECTORS = %s;\n"
        "static constexpr index H = %lld, S = %lld, N = %lld, PART = %lld;\n"
        "static constexpr u64 PADDED = %lld;\n",
        rows < INT32_MAX / 2 ? "u32" : "i64",
        hd_code_text(o->buffer->type.dtype),
        hd_code_text(step->span[2].buffer->type.dtype), EACH,
        (long long)threads, (long long)lines,
        hd_op_access(step->op, 0) == HD_ACCESS_UPDATE ? "true" : "false",
        has_vectors(o) ? "true" : "false", (long long)o->extent[o->ndims - 3],
        (long long)o->extent[o->ndims - 2], (long long)rows, (long long)part,
        (long long)padded);
    add_before(&k, before);
    hd_text_puts(&k.text, join_text);
    HD_TRY(hd_prelude_finish(out, &k.text, 5, 0));
    *grid = hd_prelude_grid((rows + lines - 1) / lines * BLOCK, AT_ONCE);
    grid->pointers = 5;
    grid->sizes = 0;
    return HD_OK;
}

hd_status hd_attend_emit(const hd_step *step, hd_text *out,
                         hd_kernel_grid *grid)
{
    switch (hd_op_attend(step->op)) {
    case HD_ATTEND_ATTENTION:
        return emit_attention(step, out, grid);
    case HD_ATTEND_MERGE:
        return emit_merge(step, out, grid);
    case HD_ATTEND_ATTENTION_GRAD:
        return emit_attention_grad(step, out, grid);
    case HD_ATTEND_NONE:
        break;
    }
    return HD_ERROR_UNSUPPORTED; // hd_emit_step asks for ops of the family
                                 // alone
}

// The fastest of cuBLASLt's plans for a product, and of our own tiles, by
// trying them: each is timed on memory that is nobody's, while no peer waits
// for this rank but for the session to be created. The choice is kept on disk
// for whoever multiplies the same shape on such a device with the same
// libraries.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <heddle/verify.h>

#include "base/diag.h"
#include "runtime/cuda/libraries/products.h"

#define SAMPLES 5        // of which the median counts
#define IN_A_ROW 16      // products of a sample at most
#define SAMPLE_MS 0.2    // that it should take, beside what a launch does
#define PRODUCT_TIME 2.0 // seconds for all plans of a product
#define PATTERN 16384    // bytes of values, repeated
#define NOISE 0.99       // who is faster must be so by more
#define WORDS_BYTES ((size_t)4096) // of tiles that are shared
#define TOLD_AT ((size_t)4032)     // in them: where a kernel tells
#define TILES_BYTES (WORDS_BYTES + ((size_t)40 << 20))

// What is on disk for a product.
typedef struct kept {
    hd_lt_algo algo;
    uint64_t workspace;
    hd_tiles_choice own;
} kept;

typedef struct trial {
    hd_device *device;
    const hd_cuda_product *product;
    hd_diag *diag;
    hd_cu_ptr memory;                   // owned: all that follows
    hd_cu_ptr a, b, c, bias, workspace; // 0 for neither bias nor addend
    hd_cu_ptr tiles;                    // words, then partial sums
    hd_cuda_plan own;                   // owned: launches of tiles
    hd_tiles_choice choice[HD_CUDA_OWN];
    int nchoices;
    hd_cu_event start, end; // owned: of a row of products
    int64_t warm, deadline; // hd_clock: when no more is begun
} trial;

typedef struct entrant {
    const hd_lt_heuristic *plan; // borrowed; NULL: a launch of tiles
    int launch;
    hd_tiles_choice tiles;
    int in_a_row;           // products of a sample; 0: it takes no part
    double sample[SAMPLES]; // ms
    int n;
} entrant;

// ----------------------------------------------------------------- disk

// All that a plan depends on. False if the device does not tell.
static bool make_key(hd_device *device, const hd_cuda_shape *s, hd_text *out)
{
    hd_text_printf(out, "plan or tiles 3\ncuBLASLt %zu\n",
                   device->products->lt.version());
    if (!hd_cuda_add_device(device, out))
        return false;
    hd_text_printf(
        out, "m %lld n %lld k %lld lda %lld ldb %lld ldc %lld addend %lld\n",
        (long long)s->m, (long long)s->n, (long long)s->k, (long long)s->lda,
        (long long)s->ldb, (long long)s->ldc, (long long)s->ld_addend);
    hd_text_printf(out, "batch %lld", (long long)s->batch);
    for (int i = 0; i < HD_CUDA_MATRICES; i++)
        hd_text_printf(out, " %lld", (long long)s->step[i]);
    hd_text_puts(out, "\n");
    hd_text_printf(out,
                   "ta %d tb %d a %d b %d c %d bias %d epilogue %d wide %d "
                   "align %d workspace %zu\n",
                   s->ta, s->tb, s->type_a, s->type_b, s->type_c, s->type_bias,
                   s->epilogue, s->wide, (int)s->align,
                   HD_CUDA_WORKSPACE_BYTES);
    return !out->failed;
}

// cuBLASLt has the last word: what it does not take is as if it were not there.
bool hd_cuda_take(hd_device *device, hd_cuda_product *product,
                  const hd_lt_algo *algo)
{
    hd_lt_heuristic checked = {.state = -1};

    if (device->products->lt.check(device->products->blas, product->desc,
                                   product->layout[0], product->layout[1],
                                   hd_cuda_added(product), product->layout[2],
                                   algo, &checked) != 0 ||
        checked.state != 0 || checked.workspace > HD_CUDA_WORKSPACE_BYTES)
        return false;
    product->algo = *algo;
    product->workspace = checked.workspace;
    return true;
}

bool hd_cuda_tuned(hd_device *device, hd_cuda_product *product)
{
    hd_text key = {0};
    void *payload = NULL;
    size_t bytes = 0;
    kept plan;
    bool found = device->cache.folder[0] != '\0' &&
                 make_key(device, &product->shape, &key) &&
                 hd_disk_read(&device->cache, &key, &payload, &bytes) &&
                 bytes == sizeof(plan);

    if (found)
        memcpy(&plan, payload, sizeof(plan));
    free(payload);
    hd_text_free(&key);
    product->tuned = found && hd_cuda_take(device, product, &plan.algo);
    if (product->tuned)
        product->own = plan.own;
    return product->tuned;
}

static void keep(hd_device *device, const hd_cuda_product *product)
{
    kept plan = {product->algo, product->workspace, product->own};
    hd_text key = {0};

    if (make_key(device, &product->shape, &key))
        hd_disk_write(&device->cache, &key, &plan, sizeof(plan));
    hd_text_free(&key);
}

// --------------------------------------------------------------- memory

static hd_dtype dtype_of(int type)
{
    switch (type) {
    case HD_LT_F64:
        return HD_DTYPE_F64;
    case HD_LT_F16:
        return HD_DTYPE_F16;
    case HD_LT_BF16:
        return HD_DTYPE_BF16;
    case HD_LT_F8E4M3:
        return HD_DTYPE_F8E4M3;
    case HD_LT_F8E5M2:
        return HD_DTYPE_F8E5M2;
    default:
        return HD_DTYPE_F32;
    }
}

// Of a column-major matrix whose columns are `ld` apart.
static size_t bytes_of(int64_t rows, int64_t columns, int64_t ld, int type)
{
    size_t elements = (size_t)(columns - 1) * (size_t)ld + (size_t)rows;

    return elements * hd_dtype_size(dtype_of(type));
}

// Numbers of both signs from 1/4 to 1: a chip that multiplies zeros is faster.
static hd_status fill(const trial *t, hd_cu_ptr at, size_t bytes, int type)
{
    hd_device *device = t->device;
    hd_dtype dtype = dtype_of(type);
    size_t size = hd_dtype_size(dtype), done;
    char pattern[PATTERN];
    uint32_t random = 1;

    for (size_t i = 0; i < PATTERN; i += size) {
        double value;

        random = random * 1664525 + 1013904223;
        value = 0.25 + 0.75 * (double)(random >> 9) / (1 << 23);
        value = random >> 8 & 1 ? -value : value;
        hd_dtype_store(dtype, &value, 1, pattern + i);
    }
    done = bytes < PATTERN ? bytes : PATTERN;
    HD_TRY(hd_cuda_copy_now(device, at, (hd_cu_ptr)(uintptr_t)pattern, done,
                            t->diag));
    for (; done < bytes; done *= 2)
        HD_CUDA_TRY(device, t->diag, copy, at + done, at,
                    done < bytes - done ? done : bytes - done,
                    device->home->rescue);
    return HD_OK;
}

// Of the bias, or of the addend.
static size_t bytes_added(const hd_cuda_shape *s)
{
    if (s->ld_addend > 0)
        return bytes_of(s->m, s->n, s->ld_addend, s->type_c);
    return s->type_bias >= 0 ? bytes_of(s->m, 1, s->m, s->type_bias) : 0;
}

// Of a batch, behind its first matrix.
static size_t bytes_of_others(const hd_cuda_shape *s, int matrix)
{
    const int type[HD_CUDA_MATRICES] = {s->type_a, s->type_b, s->type_c,
                                        s->type_c};

    return (size_t)((s->batch - 1) * s->step[matrix]) *
           hd_dtype_size(dtype_of(type[matrix]));
}

// `taken` tells whether there was memory for it.
static hd_status take_memory(trial *t, bool *taken)
{
    const hd_cuda_shape *s = &t->product->shape;
    size_t bytes[HD_CUDA_MATRICES] = {
        bytes_of(s->ta ? s->k : s->m, s->ta ? s->m : s->k, s->lda, s->type_a),
        bytes_of(s->tb ? s->n : s->k, s->tb ? s->k : s->n, s->ldb, s->type_b),
        bytes_of(s->m, s->n, s->ldc, s->type_c), bytes_added(s)};
    hd_cu_ptr *at[] = {&t->a, &t->b, &t->c, &t->bias};
    size_t total = 0;

    for (int i = 0; i < HD_CUDA_MATRICES; i++) {
        bytes[i] += bytes_of_others(s, i);
        total += (bytes[i] + 255) / 256 * 256;
    }
    *taken = t->device->cu.alloc(&t->memory,
                                 total + HD_CUDA_WORKSPACE_BYTES +
                                     (t->nchoices > 0 ? TILES_BYTES : 0)) ==
             HD_CU_SUCCESS;
    if (!*taken)
        return HD_OK;
    t->tiles = t->memory + HD_CUDA_WORKSPACE_BYTES + total;
    if (t->nchoices > 0)
        HD_CUDA_TRY(t->device, t->diag, fill8, t->tiles, 0, WORDS_BYTES,
                    t->device->home->rescue);
    t->workspace = t->memory;
    total = HD_CUDA_WORKSPACE_BYTES;
    for (int i = 0; i < 4; i++) {
        *at[i] = bytes[i] > 0 ? t->memory + total : 0;
        total += (bytes[i] + 255) / 256 * 256;
    }
    HD_CUDA_TRY(t->device, t->diag, event_create, &t->start,
                HD_CU_EVENT_DEFAULT);
    HD_CUDA_TRY(t->device, t->diag, event_create, &t->end, HD_CU_EVENT_DEFAULT);
    HD_TRY(fill(t, t->a, bytes[0], s->type_a));
    HD_TRY(fill(t, t->b, bytes[1], s->type_b));
    return t->bias == 0 ? HD_OK
                        : fill(t, t->bias, bytes[3],
                               s->ld_addend > 0 ? s->type_c : s->type_bias);
}

// --------------------------------------------------------------- timing

// A product cannot be called back. One that does not end leaves a device on
// which nothing can be freed.
static hd_status wait_for(const trial *t, hd_cu_event event)
{
    hd_device *device = t->device;
    int64_t end = hd_clock_after(device->binding.timeout);

    for (;;) {
        hd_cu_result result = device->cu.event_query(event);

        if (result == HD_CU_SUCCESS)
            return HD_OK;
        if (result != HD_CU_NOT_READY)
            return hd_cuda_error(device, result, t->diag, "event_query");
        if (hd_clock() > end)
            break;
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    }
    hd_cuda_set_stuck(device, true);
    return hd_fail(t->diag, HD_ERROR_TIMEOUT,
                   "rank %d: a matmul that is timed has not ended in %.1f s",
                   device->rank, device->binding.timeout);
}

static bool multiply(const trial *t, const entrant *e)
{
    static const double wide[] = {1, 0};
    static const float narrow[] = {1, 0};
    const hd_lt_heuristic *plan = e->plan;
    const hd_cuda_product *product = t->product;
    bool f64 = product->shape.wide;
    bool adds = product->shape.ld_addend > 0;
    void *c = (void *)(uintptr_t)t->c;

    if (plan == NULL)
        return hd_cuda_start(&t->own, &t->own.launch[e->launch], 0,
                             t->device->home->rescue, NULL) == HD_OK;
    return t->device->products->lt.matmul(
               t->device->products->blas, product->desc,
               f64 ? (const void *)&wide[0] : &narrow[0],
               (const void *)(uintptr_t)t->a, product->layout[0],
               (const void *)(uintptr_t)t->b, product->layout[1],
               f64 ? (const void *)&wide[!adds] : &narrow[!adds],
               adds ? (void *)(uintptr_t)t->bias : c, hd_cuda_added(product), c,
               product->layout[2], &plan->algo, (void *)(uintptr_t)t->workspace,
               HD_CUDA_WORKSPACE_BYTES, t->device->home->rescue) == 0;
}

// Milliseconds that `n` products in a row take, each. A plan that is refused is
// no failure: others are there.
static hd_status time_row(const trial *t, const entrant *e, int n, double *out,
                          bool *taken)
{
    hd_device *device = t->device;
    float ms = 0;

    *taken = true;
    HD_CUDA_TRY(device, t->diag, event_record, t->start, device->home->rescue);
    for (int i = 0; i < n && *taken; i++)
        *taken = multiply(t, e);
    HD_CUDA_TRY(device, t->diag, event_record, t->end, device->home->rescue);
    HD_TRY(wait_for(t, t->end));
    HD_CUDA_TRY(device, t->diag, event_elapsed, &ms, t->start, t->end);
    *out = (double)ms / n;
    return HD_OK;
}

// The first product loads the plan's code, and the second one says how many
// make a sample.
static hd_status warm_up(const trial *t, entrant *e)
{
    double ms = 0;
    bool taken;

    HD_TRY(time_row(t, e, 1, &ms, &taken));
    if (taken)
        HD_TRY(time_row(t, e, 1, &ms, &taken));
    if (taken)
        e->in_a_row = ms > SAMPLE_MS              ? 1
                      : ms * IN_A_ROW < SAMPLE_MS ? IN_A_ROW
                                                  : (int)(SAMPLE_MS / ms);
    return HD_OK;
}

static hd_status take_sample(const trial *t, entrant *e)
{
    bool taken;

    HD_TRY(time_row(t, e, e->in_a_row, &e->sample[e->n], &taken));
    if (taken)
        e->n++;
    else
        e->in_a_row = 0;
    return HD_OK;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

// --------------------------------------------------------------- choice

// An earlier plan, which cuBLASLt thinks is better, stays if a later one is
// faster by no more than noise: then ranks and runs choose alike.
static const entrant *fastest(entrant *all, int n)
{
    const entrant *found = NULL;
    double best = 0;

    for (int i = 0; i < n; i++) {
        entrant *e = &all[i];

        if (e->n == 0)
            continue;
        qsort(e->sample, (size_t)e->n, sizeof *e->sample, by_value);
        if (found != NULL && e->sample[e->n / 2] >= best * NOISE)
            continue;
        best = e->sample[e->n / 2];
        found = e;
    }
    return found;
}

// All take turns, since a chip's clock changes as it warms up.
static hd_status run_all(const trial *t, entrant *all, int n)
{
    for (int i = 0; i < n && (i == 0 || hd_clock() < t->warm); i++)
        HD_TRY(warm_up(t, &all[i]));
    for (int i = 0; i < n * SAMPLES; i++) {
        entrant *e = &all[i % n];

        if (e->in_a_row > 0 && (i < n || hd_clock() < t->deadline))
            HD_TRY(take_sample(t, e));
    }
    return HD_OK;
}

// The launch of tiles on the trial's memory. Of the step's views the first is
// the result, then come cuBLASLt's second operand and its first.
static hd_status add_launch(trial *t, const hd_step *step,
                            const hd_tiles_choice *choice)
{
    const hd_cu_ptr memory[] = {t->c, t->b, t->a, t->bias};
    const hd_tiles_row row = hd_tiles_row_of(step);
    hd_text text = {0};
    hd_kernel_grid grid;
    hd_cuda_at at[HD_MAX_VIEWS + 4];
    int n = 0;

    for (; n < step->op->nviews; n++)
        at[n] = (hd_cuda_at){-1, memory[n < 3 ? n : 3]};
    at[n++] = (hd_cuda_at){-1, t->tiles + TOLD_AT};
    at[n++] = HD_CUDA_NOWHERE;
    at[n++] = (hd_cuda_at){-1, t->tiles + WORDS_BYTES};
    at[n++] = (hd_cuda_at){-1, t->tiles};
    HD_TRY(hd_tiles_emit_choice(&row, choice, &text, &grid));
    return hd_cuda_add_launch(&t->own, &text, grid, at, n, t->diag);
}

// The best of what tiles there are for the step.
static hd_status add_tiles(trial *t, const hd_step *step, entrant *all, int *n)
{
    t->own.device = t->device;
    for (int i = 0; i < t->nchoices; i++) {
        const hd_tiles_choice *choice = &t->choice[i];

        if (hd_tiles_parts(choice) > TILES_BYTES - WORDS_BYTES ||
            hd_tiles_words(choice) * sizeof(uint32_t) > TOLD_AT)
            continue;
        HD_TRY(add_launch(t, step, choice));
        all[*n].launch = t->own.nlaunches - 1;
        all[*n].tiles = *choice;
        ++*n;
    }
    return HD_OK;
}

static hd_status try_all(trial *t, hd_cuda_product *product,
                         const hd_step *step, const hd_lt_heuristic *plan,
                         int n, double seconds)
{
    entrant all[HD_CUDA_PLANS + HD_CUDA_OWN] = {{0}};
    const entrant *best;

    if (product->shape.type_bias >= 0 &&
        t->device->products->lt.desc_set(product->desc, HD_LT_DESC_BIAS_POINTER,
                                         &t->bias, sizeof t->bias) != 0)
        return HD_OK;
    for (int i = 0; i < n; i++)
        all[i].plan = &plan[i];
    HD_TRY(add_tiles(t, step, all, &n));
    t->warm = hd_clock_after(seconds / 3);
    t->deadline = hd_clock_after(seconds);
    HD_TRY(run_all(t, all, n));
    best = fastest(all, n);
    if (best == NULL)
        return HD_OK;
    product->tuned = true;
    product->own = best->tiles;
    if (best->plan == NULL)
        return HD_OK;
    product->algo = best->plan->algo;
    product->workspace = best->plan->workspace;
    return HD_OK;
}

// Peers wait for this rank as long as the session's timeout, so that a part of
// it is all that there is.
static double time_left(const hd_device *device)
{
    double all = device->binding.timeout / 4;
    double one = all / 2 < PRODUCT_TIME ? all / 2 : PRODUCT_TIME;

    return all - device->products->tuning < one ? 0 : one;
}

static void give_back(trial *t)
{
    const hd_cu_api *cu = &t->device->cu;

    if (t->start != NULL)
        cu->event_destroy(t->start);
    if (t->end != NULL)
        cu->event_destroy(t->end);
    if (t->memory != 0)
        cu->free(t->memory);
    free(t->own.launch);
    free(t->own.blob);
    free(t->own.patch);
    free(t->own.map);
}

hd_status hd_cuda_tune(hd_device *device, hd_cuda_product *product,
                       const hd_step *step, const hd_lt_heuristic *plan, int n,
                       hd_diag *diag)
{
    trial t = {.device = device, .product = product, .diag = diag};
    int64_t start = hd_clock();
    double seconds = time_left(device);
    bool taken = false;
    hd_status status;

    if (seconds == 0)
        return HD_OK;
    if (step != NULL) {
        const hd_tiles_row row = hd_tiles_row_of(step);

        t.nchoices = hd_cuda_choices(device, &row, HD_CUDA_OWN, t.choice);
    }
    status = take_memory(&t, &taken);
    if (status == HD_OK && taken)
        status = try_all(&t, product, step, plan, n, seconds);
    if (!hd_cuda_is_stuck(device))
        give_back(&t);
    device->products->tuning += (double)(hd_clock() - start) * 1e-9;
    HD_TRY(status);
    if (product->tuned)
        keep(device, product);
    return HD_OK;
}

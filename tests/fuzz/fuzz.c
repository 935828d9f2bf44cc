#include "tests/fuzz/fuzz.h"
#include "tests/info.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_NUMBER = 64,      // of loop bounds, so of iterations a loop
    MAX_STATEMENTS = 400, // and of statements under loops, unrolled
    MAX_RANKS = 16,
    MAX_TOTAL = 1 << 14, // elements of all buffers of a rank
    // And of all ranks where counts have both evaluated some hundred times.
    MAX_COUNTED = 1 << 12,
};

void must(bool holds, const char *property, const char *detail)
{
    if (holds)
        return;
    fprintf(stderr, "does not hold: %s\n%s\n", property, detail);
    abort();
}

// What the diag says is rendered only where it is shown.
void must_explain(hd_status status, hd_diag *diag, const char *call)
{
    hd_message message = HD_EMPTY(hd_message);

    if (status == HD_OK) {
        if (hd_diag_errors(diag) > 0)
            must(false, "a call that succeeds reports no error",
                 hd_diag_text(diag));
        return;
    }
    must(hd_diag_errors(diag) > 0 && hd_diag_message(diag, 0, &message) &&
             message.text[0] != '\0',
         "a call that fails says why", call);
}

static uint64_t hash_text(const uint8_t *data, size_t size)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < size; i++)
        hash = (hash ^ data[i]) * UINT64_C(0x100000001b3);
    return hash;
}

size_t split_input(const uint8_t *data, size_t size, uint8_t room[CHOICES_ROOM],
                   choices *out)
{
    const uint8_t *end = size > 0 ? memchr(data, 0, size) : NULL;

    if (end != NULL) {
        size_t length = (size_t)(end - data);

        *out = (choices){end + 1, size - length - 1, 0};
        return length;
    }
    choices_fill(hash_text(data, size), room, CHOICES_ROOM);
    *out = (choices){room, CHOICES_ROOM, 0};
    return size;
}

char *print_module(const hd_module *module)
{
    char *text = NULL;

    must(hd_print(module, &text) == HD_OK, "a module prints", "");
    return text;
}

char *print_whole(hd_module *module)
{
    unsigned *open = malloc(sizeof *open * (size_t)(module->nbuffers + 1));
    char *text;
    int n = 0;

    for (hd_buffer *b = module->buffers; b != NULL; b = b->next) {
        open[n++] = b->open;
        b->open = 0;
    }
    text = print_module(module);
    n = 0;
    for (hd_buffer *b = module->buffers; b != NULL; b = b->next)
        b->open = open[n++];
    free(open);
    return text;
}

void must_reparse(const hd_module *module)
{
    hd_diag *diag = hd_diag_create();
    char *first = print_module(module), *second;
    hd_module *again = NULL;
    hd_status status =
        hd_parse("again", first, strlen(first), NULL, 0, diag, &again);

    must(status == HD_OK, "what prints parses", hd_diag_text(diag));
    second = print_module(again);
    must(strcmp(first, second) == 0, "printing it again gives the same",
         second);
    hd_free(first);
    hd_free(second);
    hd_module_destroy(again);
    hd_diag_destroy(diag);
}

hd_status must_check_alike(const hd_module *module,
                           const hd_check_options *options, hd_diag *said)
{
    hd_diag *again = hd_diag_create();
    hd_status status = hd_check(module, options, said);

    must_explain(status, said, "hd_check");
    must(hd_check(module, options, again) == status &&
             strcmp(hd_diag_text(said), hd_diag_text(again)) == 0,
         "checking twice says the same", hd_diag_text(again));
    hd_diag_destroy(again);
    return status;
}

// How many statements a block may come to, if every loop makes the most
// iterations.
static int64_t count_statements(const hd_block *block)
{
    int64_t n = 0;

    for (const hd_stmt *s = block->first; s != NULL; s = s->next) {
        int64_t inside =
            count_statements(&s->body) + count_statements(&s->otherwise);

        n += 1 + inside * (s->kind == HD_STMT_FOR ? 8 : 1) +
             (s->kind == HD_STMT_FOR ? 4 : 0);
        if (n > MAX_STATEMENTS)
            return n;
    }
    return n;
}

bool is_small(const hd_module *module)
{
    int64_t total = 0;

    if (module->nranks > MAX_RANKS ||
        count_statements(&module->body) > MAX_STATEMENTS)
        return false;
    for (int i = 0; i < module->nexprs; i++)
        if (module->exprs[i].kind == HD_EXPR_CONST &&
            module->exprs[i].value > MAX_NUMBER)
            return false;
    for (const hd_buffer *b = module->buffers; b != NULL; b = b->next) {
        int64_t elements = hd_type_elements(&b->type);

        if (elements > MAX_TOTAL || (total += elements) > MAX_TOTAL)
            return false;
    }
    return true;
}

static hd_module *parse(const char *text, hd_diag *diag)
{
    hd_module *module = NULL;
    hd_status status =
        hd_parse("generated", text, strlen(text), NULL, 0, diag, &module);

    if (status != HD_OK)
        fprintf(stderr, "%s\n", text);
    must(status == HD_OK, "what is generated parses", hd_diag_text(diag));
    return module;
}

hd_module *generate_module(choices *choices, bool integers, char **text)
{
    generate_options options = {.integers = integers};
    hd_diag *diag = hd_diag_create();
    hd_module *module;

    *text = generate_program(choices, &options);
    must(*text != NULL, "a program is generated", "");
    module = parse(*text, diag);
    hd_diag_destroy(diag);
    return module;
}

static void print_context(const char *text, const hd_lower_options *o)
{
    fprintf(stderr,
            "%s\ntransfer %d protocol %d streams %d chunks %d copy_own %d "
            "defer_sends %d comm_stream %d wire %d\n",
            text, o->transfer, o->protocol, o->streams, o->chunks, o->copy_own,
            o->defer_sends, o->comm_stream, o->wire);
}

static int64_t count_elements(const hd_module *module)
{
    int64_t total = 0;

    for (const hd_buffer *b = module->buffers; b != NULL; b = b->next)
        total += hd_type_elements(&b->type);
    return total;
}

static bool has_counts(const hd_module *module)
{
    for (const hd_buffer *b = module->buffers; b != NULL; b = b->next)
        if (b->by != NULL)
            return true;
    return false;
}

bool compares_soon(const hd_module *tensor)
{
    return module_info(tensor).stage == HD_STAGE_TENSOR &&
           (!has_counts(tensor) ||
            count_elements(tensor) * tensor->nranks <= MAX_COUNTED);
}

// It neither deadlocks nor races, and makes what the program `text` does.
static void must_check(const hd_module *host, const char *text,
                       const hd_lower_options *lowering, hd_diag *diag)
{
    hd_check_options options = hd_check_defaults();
    hd_module *tensor = parse(text, diag);
    hd_status status;

    options.against = compares_soon(tensor) ? tensor : NULL;
    status = hd_check(host, &options, diag);
    if (status != HD_OK)
        print_context(text, lowering);
    must(status == HD_OK, "what lowering emits checks clean",
         hd_diag_text(diag));
    hd_module_destroy(tensor);
}

hd_module *lower_as(const char *text, const char *does,
                    const hd_lower_options *options)
{
    hd_diag *diag = hd_diag_create();
    hd_module *module = parse(text, diag);
    hd_status status;
    bool fine;

    status = hd_lower(module, options, NULL, NULL, diag);
    must_explain(status, diag, "hd_lower");
    // What lies apart because a run says how long it is cannot be moved.
    fine = status == HD_OK ||
           (options->chunks > 1 &&
            strstr(hd_diag_text(diag), "error[HD05") != NULL) ||
           (module->nsizes > 0 &&
            (strstr(hd_diag_text(diag), "error[HD0407") != NULL ||
             strstr(hd_diag_text(diag), "error[HD0318") != NULL));
    if (!fine)
        print_context(text, options);
    must(fine, "only chunks may be refused, and to move what lies apart",
         hd_diag_text(diag));
    if (status == HD_OK)
        must_check(module, does, options, diag);
    hd_diag_destroy(diag);
    if (status == HD_OK)
        return module;
    hd_module_destroy(module);
    return NULL;
}

hd_module *lower_text(const char *text, const hd_lower_options *options)
{
    return lower_as(text, text, options);
}

hd_module *lower_moves(choices *choices, const hd_lower_options *options,
                       hd_module **tensor)
{
    hd_diag *diag = hd_diag_create();
    char *text, *does;
    hd_module *host;

    must(generate_stage(choices, &text, &does), "moves are generated", "");
    host = parse(text, diag);
    must_reparse(host);
    hd_module_destroy(host);
    *tensor = parse(does, diag);
    host = lower_as(text, does, options);
    free(text);
    free(does);
    hd_diag_destroy(diag);
    return host;
}

// Entries of two kinds, programs and sessions, each on a shelf of its own. An
// entry has its whole key, so that what is found is never another one's.
//
// What a shelf does follows from the calls alone, in their order: from nothing
// that differs between ranks, such as addresses or hashes of them.
#include <heddle/cache.h>
#include <heddle/call.h>

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/sized.h"
#include "base/text.h"
#include "compile/key.h"
#include "ir/module.h"
#include "runtime/ranks/group.h"

typedef struct entry {
    hd_text key;
    uint64_t hash; // of the key
    uint64_t got;  // the last call that got it
    size_t users;
    hd_module *module;     // owned; NULL of a session
    hd_session *session;   // owned; NULL of a program
    struct entry *program; // of a session: in use as long as this lives
    const hd_group *group; // of a session
} entry;

typedef struct shelf {
    entry **entry; // owned, in no order
    size_t n, room;
    size_t most; // that are kept though none is in use
    uint64_t hits, misses, evictions;
} shelf;

struct hd_cache {
    shelf programs, sessions;
    uint64_t calls;
};

// ----------------------------------------------------------------- entries

static void destroy_entry(entry *e)
{
    if (e == NULL)
        return;
    hd_session_destroy(e->session);
    if (e->program != NULL)
        e->program->users--;
    hd_module_destroy(e->module);
    hd_text_free(&e->key);
    free(e);
}

static entry *find_entry(const shelf *shelf, const hd_text *key, uint64_t hash)
{
    for (size_t i = 0; i < shelf->n; i++) {
        entry *e = shelf->entry[i];

        if (e->hash == hash && e->key.length == key->length &&
            memcmp(e->key.bytes, key->bytes, key->length) == 0)
            return e;
    }
    return NULL;
}

static void remove_entry(shelf *shelf, size_t i)
{
    destroy_entry(shelf->entry[i]);
    shelf->entry[i] = shelf->entry[--shelf->n];
}

// Which of those not in use was got the longest ago; `n` if all are.
static size_t find_oldest(const shelf *shelf)
{
    size_t oldest = shelf->n;

    for (size_t i = 0; i < shelf->n; i++)
        if (shelf->entry[i]->users == 0 &&
            (oldest == shelf->n ||
             shelf->entry[i]->got < shelf->entry[oldest]->got))
            oldest = i;
    return oldest;
}

static void evict(shelf *shelf)
{
    while (shelf->n > shelf->most) {
        size_t oldest = find_oldest(shelf);

        if (oldest == shelf->n)
            return;
        remove_entry(shelf, oldest);
        shelf->evictions++;
    }
}

// Sessions first: with one of them a program may come out of use.
static void evict_all(hd_cache *cache)
{
    evict(&cache->sessions);
    evict(&cache->programs);
}

static void use(hd_cache *cache, entry *e)
{
    e->users++;
    e->got = ++cache->calls;
}

static void release(hd_cache *cache, shelf *shelf, const void *what)
{
    for (size_t i = 0; i < shelf->n; i++) {
        entry *e = shelf->entry[i];

        if (what != e->module && what != e->session)
            continue;
        assert(e->users > 0);
        e->users--;
        evict_all(cache);
        return;
    }
    assert(false && "what is released was got");
}

// An entry with this key, which it takes over, in use; NULL if memory runs out.
static entry *add_entry(hd_cache *cache, shelf *shelf, hd_text *key,
                        uint64_t hash)
{
    size_t room = shelf->room > 0 ? 2 * shelf->room : 8;
    entry *e = calloc(1, sizeof *e);
    entry **grown = shelf->entry;

    if (e != NULL && shelf->n == shelf->room)
        grown = realloc(shelf->entry, room * sizeof *grown);
    if (e == NULL || grown == NULL) {
        free(e);
        return NULL;
    }
    if (shelf->n == shelf->room)
        shelf->room = room;
    shelf->entry = grown;
    e->key = *key;
    e->hash = hash;
    *key = (hd_text){0};
    use(cache, e);
    shelf->entry[shelf->n++] = e;
    return e;
}

// The last one that was added was in vain.
static void drop_last(shelf *shelf)
{
    remove_entry(shelf, shelf->n - 1);
}

// -------------------------------------------------------------------- keys

static void put_text(hd_text *key, const hd_cache_request *r)
{
    hd_text_puts(key, "text");
    hd_key_string(key, r->name);
    hd_key_bytes(key, r->text, r->length);
    for (size_t i = 0; i < r->ndefines; i++) {
        hd_key_string(key, r->defines[i].name);
        hd_text_printf(key, "=%" PRId64, r->defines[i].value);
    }
}

static void put_module(hd_text *key, const hd_module *module)
{
    char *text = NULL;

    if (hd_print(module, &text) != HD_OK) {
        key->failed = true;
        return;
    }
    hd_text_puts(key, "module");
    hd_key_string(key, module->source.name);
    hd_key_string(key, text);
    hd_free(text);
}

static hd_choose_options choose_of(const hd_cache_request *r)
{
    hd_choose_options options = hd_choose_defaults();

    options.machine = r->machine;
    options.parts = r->parts;
    if (r->most_streams > 0)
        options.most_streams = r->most_streams;
    if (r->most_chunks > 0)
        options.most_chunks = r->most_chunks;
    return options;
}

static void put_request(hd_text *key, const hd_cache_request *r)
{
    hd_key_string(key, hd_version());
    if (r->module != NULL)
        put_module(key, r->module);
    else
        put_text(key, r);
    hd_key_lower(key, r->lower);
    hd_text_printf(key, "against %d", r->against);
    if (r->lower->transfer == HD_TRANSFER_AUTO) {
        hd_choose_options choose = choose_of(r);

        hd_key_choose(key, &choose);
    }
}

// ---------------------------------------------------------------- programs

static hd_status check_defines(const hd_cache_request *r, hd_diag *diag)
{
    if (r->ndefines > 0)
        HD_REQUIRE(diag, r->defines);
    for (size_t i = 0; i < r->ndefines; i++)
        HD_REQUIRE(diag, r->defines[i].name);
    return HD_OK;
}

static hd_status check_request(const hd_cache_request *r, hd_diag *diag)
{
    if ((r->text == NULL) == (r->module == NULL))
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "hd_cache_get: a program is a text or a module: one of "
                       "them");
    if (r->text != NULL)
        HD_REQUIRE(diag, r->name);
    if (r->module != NULL && r->ndefines > 0)
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "hd_cache_get: a module's parameters are numbers "
                       "already: defines are a text's");
    if (r->lower->until != HD_STAGE_HOST)
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "hd_cache_get: 'until' is not HD_STAGE_HOST: what is "
                       "kept is complete");
    return check_defines(r, diag);
}

static hd_status lower_and_check(hd_module *module, const hd_cache_request *r,
                                 const hd_module *against, hd_diag *diag)
{
    hd_lower_options lower = *r->lower;
    hd_choose_options choose = choose_of(r);
    hd_check_options check = hd_check_defaults();

    HD_TRY(hd_choose_lower(module, &choose, diag, &lower));
    HD_TRY(hd_lower(module, &lower, NULL, NULL, diag));
    check.transport = lower.transport;
    check.axes = lower.axes;
    check.against = against;
    return hd_check(module, &check, diag);
}

static hd_status make_program(const hd_cache_request *r, hd_diag *diag,
                              hd_module **out)
{
    hd_module *module = NULL, *against = NULL;
    hd_status status;

    if (r->module != NULL)
        status = hd_module_clone(r->module, diag, &module);
    else
        status = hd_parse(r->name, r->text, r->length, r->defines, r->ndefines,
                          diag, &module);
    if (status == HD_OK && r->against && module->stage == HD_STAGE_TENSOR)
        status = hd_module_clone(module, diag, &against);
    if (status == HD_OK)
        status = lower_and_check(module, r, against, diag);
    hd_module_destroy(against);
    if (status != HD_OK)
        hd_module_destroy(module);
    else
        *out = module;
    return status;
}

// `key` is taken over, or emptied.
static hd_status add_program(hd_cache *cache, const hd_cache_request *r,
                             hd_text *key, uint64_t hash, hd_diag *diag,
                             entry **out)
{
    entry *e = add_entry(cache, &cache->programs, key, hash);
    hd_status status;

    if (e == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory in the cache");
    status = make_program(r, diag, &e->module);
    if (status != HD_OK) {
        drop_last(&cache->programs);
        return status;
    }
    *out = e;
    return HD_OK;
}

// The entry of this key, in use; NULL if there is none.
static entry *look_up(hd_cache *cache, shelf *shelf, const hd_text *key,
                      uint64_t hash)
{
    entry *e = find_entry(shelf, key, hash);

    if (e == NULL) {
        shelf->misses++;
        return NULL;
    }
    shelf->hits++;
    use(cache, e);
    return e;
}

static hd_status get_program(hd_cache *cache, const hd_cache_request *r,
                             hd_text *key, hd_diag *diag, entry **out)
{
    uint64_t hash;

    put_request(key, r);
    if (key->failed)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for a key");
    hash = XXH3_64bits(key->bytes, key->length);
    *out = look_up(cache, &cache->programs, key, hash);
    if (*out != NULL)
        return HD_OK;
    HD_TRY(add_program(cache, r, key, hash, diag, out));
    evict_all(cache);
    return HD_OK;
}

hd_status hd_cache_get(hd_cache *cache, const hd_cache_request *request,
                       hd_diag *diag, const hd_module **out)
{
    hd_lower_options lower = hd_lower_defaults();
    hd_machine machine = HD_EMPTY(hd_machine);
    hd_cache_request r = HD_EMPTY(hd_cache_request);
    hd_text key = {0};
    entry *e = NULL;
    hd_status status;

    HD_REQUIRE(diag, cache);
    HD_REQUIRE(diag, request);
    HD_REQUIRE(diag, out);
    hd_machine_default(&machine);
    HD_TRY(hd_sized_read("hd_cache_get", request, sizeof r, diag, &r));
    HD_TRY(hd_sized_read("hd_cache_get", r.lower, sizeof lower, diag, &lower));
    HD_TRY(hd_sized_read("hd_cache_get", r.machine, sizeof machine, diag,
                         &machine));
    r.lower = &lower;
    r.machine = &machine;
    HD_TRY(check_request(&r, diag));
    status = get_program(cache, &r, &key, diag, &e);
    hd_text_free(&key);
    if (status == HD_OK)
        *out = e->module;
    return status;
}

void hd_cache_release(hd_cache *cache, const hd_module *module)
{
    assert(cache != NULL || module == NULL);
    if (module != NULL)
        release(cache, &cache->programs, module);
}

// ---------------------------------------------------------------- sessions

static entry *find_program(const hd_cache *cache, const hd_module *module)
{
    for (size_t i = 0; i < cache->programs.n; i++)
        if (cache->programs.entry[i]->module == module)
            return cache->programs.entry[i];
    return NULL;
}

enum { SESSION_KEY = 4096 };

HD_KEY_HAS_ALL_OF(hd_session_options, deterministic);

// All of it is compared within this process, and so may have addresses in it.
// On the stack: a rank that cannot make a key cannot tell its peers so, who do
// not listen where they find theirs.
static size_t put_session(char key[SESSION_KEY], const hd_group *group,
                          const hd_module *module, const hd_session_options *o)
{
    int n = snprintf(key, SESSION_KEY, "%p %p %d %d %d %d %d %s %s",
                     (const void *)group, (const void *)module,
                     (int)o->transport, o->graph, o->tune, o->capturable,
                     o->deterministic, o->device != NULL ? o->device : "",
                     o->axes != NULL ? o->axes : "-");

    // A table that is none the session refuses.
    for (size_t i = 0; o->calls != NULL && o->calls->size >= sizeof *o->calls &&
                       i < o->ncalls && n > 0 && n < SESSION_KEY;
         i++) {
        const hd_call *call =
            (const hd_call *)((const char *)o->calls + i * o->calls->size);
        size_t room = (size_t)(SESSION_KEY - n);
        uintptr_t fn;

        memcpy(&fn, &call->fn, sizeof fn);
        n += snprintf(key + n, room, " %" PRIxPTR " %p %s", fn, call->context,
                      call->name != NULL ? call->name : "");
    }
    for (size_t i = 0;
         o->fixed != NULL && i < o->nfixed && n > 0 && n < SESSION_KEY; i++)
        n += snprintf(key + n, (size_t)(SESSION_KEY - n), " @%p", o->fixed[i]);
    return n > 0 && n < SESSION_KEY ? (size_t)n : 0;
}

// Peers wait for this rank's part.
static hd_status run_out(hd_group *group, hd_diag *diag)
{
    hd_group_run_out(group);
    return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory in the cache");
}

static hd_status add_session(hd_cache *cache, hd_group *group, entry *program,
                             const hd_session_options *options,
                             const hd_text *key, uint64_t hash, hd_diag *diag,
                             entry **out)
{
    hd_text copy = {0};
    entry *e = NULL;
    hd_status status;

    hd_text_add(&copy, key->bytes, key->length);
    if (!copy.failed)
        e = add_entry(cache, &cache->sessions, &copy, hash);
    hd_text_free(&copy);
    if (e == NULL)
        return run_out(group, diag);
    status =
        hd_session_create(group, program->module, options, diag, &e->session);
    if (status != HD_OK) {
        drop_last(&cache->sessions);
        return status;
    }
    e->group = group;
    e->program = program;
    program->users++;
    *out = e;
    return HD_OK;
}

static hd_status get_session(hd_cache *cache, hd_group *group, entry *program,
                             const hd_session_options *options, hd_diag *diag,
                             entry **out)
{
    char words[SESSION_KEY];
    hd_text key = {.bytes = words,
                   .length =
                       put_session(words, group, program->module, options)};
    uint64_t hash = XXH3_64bits(words, key.length);

    if (key.length == 0)
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "hd_cache_session: the options take more than %d bytes "
                       "of a key: fewer calls, or shorter names",
                       SESSION_KEY);
    *out = look_up(cache, &cache->sessions, &key, hash);
    if (*out != NULL)
        return HD_OK;
    HD_TRY(add_session(cache, group, program, options, &key, hash, diag, out));
    evict_all(cache);
    return HD_OK;
}

hd_status hd_cache_session(hd_cache *cache, hd_group *group,
                           const hd_module *module,
                           const hd_session_options *given, hd_diag *diag,
                           hd_session **out)
{
    hd_session_options options = hd_session_defaults();
    entry *program, *e;
    hd_status status;

    HD_REQUIRE(diag, cache);
    HD_REQUIRE(diag, group);
    HD_REQUIRE(diag, module);
    HD_REQUIRE(diag, out);
    HD_TRY(hd_sized_read("hd_cache_session", given, sizeof options, diag,
                         &options));
    if (options.times != NULL)
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "hd_cache_session: 'times' is one session's: create "
                       "that without a cache");
    program = find_program(cache, module);
    if (program == NULL)
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "hd_cache_session: hd_cache_get did not give this "
                       "module");
    status = get_session(cache, group, program, &options, diag, &e);
    if (status == HD_OK)
        *out = e->session;
    return status;
}

void hd_cache_release_session(hd_cache *cache, hd_session *session)
{
    assert(cache != NULL || session == NULL);
    if (session != NULL)
        release(cache, &cache->sessions, session);
}

void hd_cache_forget(hd_cache *cache, const hd_group *group)
{
    shelf *shelf;

    assert(cache != NULL || group == NULL);
    if (group == NULL)
        return;
    shelf = &cache->sessions;
    for (size_t i = shelf->n; i-- > 0;)
        if (shelf->entry[i]->group == group && shelf->entry[i]->users == 0)
            remove_entry(shelf, i);
    evict_all(cache);
}

// ------------------------------------------------------------------- cache

hd_status hd_cache_create(const hd_cache_options *given, hd_diag *diag,
                          hd_cache **out)
{
    hd_cache_options options = hd_cache_defaults();
    hd_cache *cache;

    HD_REQUIRE(diag, out);
    HD_TRY(hd_sized_read("hd_cache_create", given, sizeof options, diag,
                         &options));
    cache = calloc(1, sizeof *cache);
    if (cache == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for a cache");
    cache->programs.most = options.modules;
    cache->sessions.most = options.sessions;
    *out = cache;
    return HD_OK;
}

static void free_shelf(shelf *shelf)
{
    while (shelf->n > 0)
        drop_last(shelf);
    free(shelf->entry);
}

void hd_cache_destroy(hd_cache *cache)
{
    if (cache == NULL)
        return;
    free_shelf(&cache->sessions); // programs are theirs, too
    free_shelf(&cache->programs);
    free(cache);
}

void hd_cache_count(const hd_cache *cache, hd_cache_stats *out)
{
    hd_cache_stats stats = HD_EMPTY(hd_cache_stats);

    assert(cache != NULL && out != NULL);
    stats.hits = cache->programs.hits;
    stats.misses = cache->programs.misses;
    stats.evictions = cache->programs.evictions;
    stats.entries = cache->programs.n;
    stats.session_hits = cache->sessions.hits;
    stats.session_misses = cache->sessions.misses;
    stats.session_evictions = cache->sessions.evictions;
    stats.session_entries = cache->sessions.n;
    hd_sized_write(&stats, sizeof stats, out);
}

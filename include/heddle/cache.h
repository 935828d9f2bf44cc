// A cache of what is compiled: programs that were lowered and checked, and
// sessions of them. A compiler that meets a shape again gets what it was given
// the first time, for a look-up by a text of its length.
//
// An entry is got and released, as often as it was got; what is in use is never
// evicted. Of entries that are not, the one that was got the longest ago goes
// when there are more than the options say; while more are in use, more are
// kept.
//
// A program's key: the library's version; the program's text and name, or a
// module's canonical text and its name in messages; the defines, in order; the
// lower options, each of them; with HD_TRANSFER_AUTO also the machine and the
// limits. Not in it: sizes that runs are given (a module is of all of them),
// cookies (what was built again from another graph has the first one's, in
// messages of lowering and of runs: give what means the same in both, as places
// in a region do), and the environment. A text and a module are never the same
// key.
//
// A cache is used by one thread at a time. Modules that it gives out may be
// read by several, and are never changed: to ask for shards at other sizes,
// resize a clone.
#ifndef HEDDLE_CACHE_H
#define HEDDLE_CACHE_H

#include <heddle/heddle.h>
#include <heddle/simulate.h>

HD_BEGIN_DECLS

typedef struct hd_cache hd_cache;

typedef struct hd_cache_options {
    size_t size;
    size_t modules;  // entries that are kept though none is in use
    size_t sessions; // likewise, of all groups together
} hd_cache_options;

static inline hd_cache_options hd_cache_defaults(void)
{
    hd_cache_options options = HD_EMPTY(hd_cache_options);

    options.modules = 256;
    options.sessions = 16;
    return options;
}

HD_API HD_MUST_USE hd_status hd_cache_create(const hd_cache_options *options,
                                             hd_diag *diag, hd_cache **out);
// Nothing of it may be in use, and the groups of its sessions must live.
HD_API void hd_cache_destroy(hd_cache *cache);

// A program, as a text or as a module, and what to make of it. Nothing of it is
// needed afterwards.
typedef struct hd_cache_request {
    size_t size;
    const char *name; // of the text, in messages
    const char *text; // NULL where there is a module
    size_t length;
    const hd_define *defines; // of the text
    size_t ndefines;
    const hd_module *module;       // NULL where there is a text
    const hd_lower_options *lower; // NULL is hd_lower_defaults; `until` is
                                   // HD_STAGE_HOST
    // Of HD_TRANSFER_AUTO, as hd_choose has them: the machine, NULL is the
    // default one; limits, 0 is hd_choose_defaults.
    const hd_machine *machine;
    int most_streams, most_chunks;
    bool against; // also prove that it makes what its tensor program does
    bool parts;   // likewise: launches go as their parts
} hd_cache_request;

// The complete host program, lowered and accepted by hd_check for the
// transports of `lower`, kept until hd_cache_release. Messages, warnings too,
// come when it is made, not when it is found. What fails is not kept.
HD_API HD_MUST_USE hd_status hd_cache_get(hd_cache *cache,
                                          const hd_cache_request *request,
                                          hd_diag *diag, const hd_module **out);
HD_API void hd_cache_release(hd_cache *cache, const hd_module *module);

// A session of a module that hd_cache_get gave. Its key: the module's entry,
// the group, and the options but for `timeout`, which is the first one's;
// `times` must be NULL. A module is in use as long as a session of it is kept.
//
// Making one is collective, finding one is not: so all ranks of a group must
// make the same calls of hd_cache_get, hd_cache_session and both releases in
// the same order, with caches of the same options. Then each finds what the
// others find, makes what they make, and evicts what they evict. Where they
// differ, hd_session_create says in what.
HD_API HD_MUST_USE hd_status hd_cache_session(hd_cache *cache, hd_group *group,
                                              const hd_module *module,
                                              const hd_session_options *options,
                                              hd_diag *diag, hd_session **out);
HD_API void hd_cache_release_session(hd_cache *cache, hd_session *session);
// Destroys the sessions of a group that are not in use: before the group is.
HD_API void hd_cache_forget(hd_cache *cache, const hd_group *group);

typedef struct hd_cache_stats {
    size_t size;
    uint64_t hits, misses, evictions, entries; // programs
    uint64_t session_hits, session_misses, session_evictions, session_entries;
} hd_cache_stats;

HD_API void hd_cache_count(const hd_cache *cache, hd_cache_stats *out);

HD_END_DECLS

#endif

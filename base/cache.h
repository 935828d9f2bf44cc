// What is costly to make and always comes out the same, kept in a folder from
// one process to the next. An entry is a file named by a hash of its key. It
// holds the whole key and a checksum, and is renamed into its place when it is
// whole: another key of the same hash, a torn file, another version or a bit
// that has flipped is a miss. Nothing here ever fails: a folder that cannot be
// read or written, or that others may write to, keeps nothing.
#ifndef HD_BASE_CACHE_H
#define HD_BASE_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/text.h"

HD_BEGIN_DECLS

#define HD_CACHE_ENTRY ((size_t)32 << 20)  // bytes that an entry has at most
#define HD_CACHE_TOTAL ((size_t)256 << 20) // beyond, the oldest entries go

typedef struct hd_cache {
    char folder[1024]; // "" keeps nothing
} hd_cache;

// $HEDDLE_CACHE_DIR, else $XDG_CACHE_HOME/heddle, else $HOME/.cache/heddle. It
// is made when something is first kept. HEDDLE_CACHE_DIR=off keeps nothing.
void hd_cache_open(hd_cache *out);

// True if there is an entry: the caller frees `*out` with free(). An entry that
// is read counts as new.
bool hd_cache_read(const hd_cache *cache, const hd_text *key, void **out,
                   size_t *bytes);
void hd_cache_write(const hd_cache *cache, const hd_text *key,
                    const void *payload, size_t bytes);

// For those who wonder.
typedef struct hd_cache_survey {
    int64_t entries, bytes;
    char reason[160]; // why nothing is kept, "" if it is
} hd_cache_survey;

void hd_cache_look(const hd_cache *cache, hd_cache_survey *out);

HD_END_DECLS

#endif

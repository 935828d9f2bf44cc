// What is costly to make and always comes out the same, kept in a folder from
// one process to the next. An entry is a file named by a hash of its key. It
// holds the whole key and a checksum, and is renamed into its place when it is
// whole: another key of the same hash, a torn file, another version or a bit
// that has flipped is a miss. Nothing here ever fails: a folder that cannot be
// read or written, or that others may write to, keeps nothing.
#ifndef HD_BASE_DISK_H
#define HD_BASE_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/text.h"

HD_BEGIN_DECLS

#define HD_CACHE_ENTRY ((size_t)32 << 20)  // bytes that an entry has at most
#define HD_CACHE_TOTAL ((size_t)256 << 20) // beyond, the oldest entries go

typedef struct hd_disk {
    char folder[1024]; // "" keeps nothing
} hd_disk;

// $HEDDLE_CACHE_DIR, else $XDG_CACHE_HOME/heddle, else $HOME/.cache/heddle. It
// is made when something is first kept. HEDDLE_CACHE_DIR=off keeps nothing.
void hd_disk_open(hd_disk *out);

// True if there is an entry: the caller frees `*out` with free(). An entry that
// is read counts as new.
bool hd_disk_read(const hd_disk *cache, const hd_text *key, void **out,
                  size_t *bytes);
void hd_disk_write(const hd_disk *cache, const hd_text *key,
                   const void *payload, size_t bytes);

// A folder within, for files that people too read, change and delete: by name,
// as they are, never counted and never trimmed.
void hd_disk_enter(hd_disk *cache, const char *folder);
// Whether there is a file there whose name begins so.
bool hd_disk_has(const hd_disk *cache, const char *beginning);
// As hd_disk_read does; `seconds` since 1970 is when it was written.
bool hd_disk_load(const hd_disk *cache, const char *name, void **out,
                  size_t *bytes, int64_t *seconds);
// False, and errno, if it could not be written.
bool hd_disk_store(const hd_disk *cache, const char *name, const void *from,
                   size_t bytes);

// For those who wonder.
typedef struct hd_disk_survey {
    int64_t entries, bytes;
    char reason[160]; // why nothing is kept, "" if it is
} hd_disk_survey;

void hd_disk_look(const hd_disk *cache, hd_disk_survey *out);

HD_END_DECLS

#endif

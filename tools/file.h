// Files in and out. Inputs are mapped where that is possible; outputs appear
// whole or not at all.
#ifndef HD_TOOLS_FILE_H
#define HD_TOOLS_FILE_H

#include "tool.h"

typedef struct content {
    const unsigned char *bytes;
    size_t length;
    void *memory; // owned: a mapping of `room` bytes, or NULL
    size_t room;
    bool cut; // there is more than the limit
} content;

// The bytes of `path`; "-" is standard input. A regular file is mapped; of
// anything else, which may have no end, at most `limit` bytes and one more are
// read, so that the caller can tell that there are too many.
outcome content_open(const char *path, size_t limit, content *out);
void content_close(content *content);

// Memory for arrays: zeroed pages, given back with memory_free. `shared` pages
// are the same in this process and in those that it forks.
void *memory_pages(size_t bytes, bool shared);
void memory_free(void *memory, size_t bytes);
double memory_there(void); // bytes of this machine

// A file that is being written, without a name where the file system has such
// files, else under a temporary one beside it. What is not a regular file, such
// as a pipe, is written directly.
typedef struct sink {
    const char *name; // borrowed: as the user wrote it
    char *path;       // owned: where it goes, symbolic links followed
    char *temporary;  // owned; NULL if written directly
    bool named;       // as `temporary`
    int fd;
} sink;

// Each says what went wrong; after a failure only sink_discard may follow.
outcome sink_open(const char *name, sink *out);
outcome sink_write(sink *sink, const void *bytes, size_t length);

// On the disk, then under its own name.
outcome sink_commit(sink *sink);
void sink_discard(sink *sink); // takes a half-open or committed one too

// All of that for text: `print` fills the stream, and what it ends with is
// passed on. Then there is no file, but what goes to a pipe has been printed.
// To run out of memory would end the process and leave a temporary file that
// has a name, so `print` does with little.
outcome file_print(const char *name, outcome (*print)(void *context, FILE *to),
                   void *context);

// Early word of what sink_open would refuse, before a long run.
outcome file_writable(const char *name);

// Refuses two options that would write one file, of which the first would be
// lost. Either name may be NULL; "-" is the caller's business.
outcome outputs_apart(const char *option, const char *name, const char *other,
                      const char *its_name);
// Refuses an output that would replace a file that is read. Either name may be
// NULL.
outcome output_spares(const char *option, const char *name, const char *input);

#endif

// Runs a fuzz target on the files and folders that are named, so that its
// corpus is an ordinary test of any compiler; `--random N` stands for N inputs
// of random choices, the same ones every time unless HEDDLE_TEST_SEED says
// where they begin.
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/fuzz/fuzz.h"

enum { LARGEST_INPUT = 1 << 20, RANDOM_INPUT = 320 };

static int replay_file(const char *path)
{
    uint8_t *bytes = malloc(LARGEST_INPUT), *exact;
    FILE *file = fopen(path, "rb");
    size_t length;

    if (file == NULL || bytes == NULL) {
        perror(path);
        exit(1);
    }
    length = fread(bytes, 1, LARGEST_INPUT, file);
    fclose(file);
    // A block of just that size, so that reading past its end is seen.
    exact = malloc(length + (length == 0));
    if (exact == NULL)
        exit(1);
    memcpy(exact, bytes, length);
    free(bytes);
    fprintf(stderr, "%s\n", path);
    LLVMFuzzerTestOneInput(exact, length);
    free(exact);
    return 1;
}

static int replay_path(const char *path)
{
    struct dirent **entry;
    struct stat about;
    int n, files = 0;

    if (stat(path, &about) != 0 || !S_ISDIR(about.st_mode))
        return replay_file(path);
    n = scandir(path, &entry, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        char inside[4096];

        snprintf(inside, sizeof inside, "%s/%s", path, entry[i]->d_name);
        if (entry[i]->d_name[0] != '.')
            files += replay_path(inside);
        free(entry[i]);
    }
    if (n >= 0)
        free(entry);
    return files;
}

static int replay_random(int n)
{
    const char *given = getenv("HEDDLE_TEST_SEED");
    int first = given != NULL && *given != '\0' ? atoi(given) : 1;
    uint8_t bytes[RANDOM_INPUT];

    for (int seed = first; seed < first + n; seed++) {
        // Short ones too: they end early.
        size_t length = sizeof bytes >> seed % 3;

        choices_fill((uint64_t)seed, bytes, length);
        fprintf(stderr, "seed %d\n", seed);
        LLVMFuzzerTestOneInput(bytes, length);
    }
    return n;
}

int main(int argc, char **argv)
{
    int files = 0;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--random") == 0 && i + 1 < argc)
            files += replay_random(atoi(argv[++i]));
        else
            files += replay_path(argv[i]);
    }
    printf("%d inputs\n", files);
    return files == 0;
}

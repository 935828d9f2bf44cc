// heddle-gen: prints a random well-formed tensor program, for people who test
// passes of their own. docs/fuzzing.md has an example.
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "generate.h"
#include "open.h"

enum { FINE = 0, WRONG = 1, USAGE = 2, FAILED = 3 }; // exit codes, as heddle's

enum { MAX_FILE = 1 << 20 };

typedef struct request {
    generate_options options;
    uint64_t seed;
    bool seeded;
    bool moves;
    const char *from; // a file of choices, or NULL
} request;

static const char help[] =
    "usage: heddle-gen [--seed N] [--integers] [--ops N] [--moves] [--from "
    "FILE]\n"
    "Prints a random well-formed tensor program.\n"
    "\n"
    "  --seed N     the same program for the same N; from the clock if absent\n"
    "  --integers   every value that the program computes is a whole number\n"
    "               that its dtype holds exactly, if inputs are whole numbers\n"
    "               from -3 to 3: runs can be compared bit by bit\n"
    "  --ops N      about this many operations, 1 to 1000; random if absent\n"
    "  --moves      a host program of moves that name dimensions, as the pass\n"
    "               reshard or stream leaves it, under the tensor program "
    "that\n"
    "               does the same, in a comment\n"
    "  --from FILE  choices from the bytes of FILE, not from a seed: the\n"
    "               program, and the options of its lowering, that an input "
    "of\n"
    "               the fuzz targets lower and execute stands for\n";

// False, and says so, unless the text is a number in this range.
static bool read_number(const char *option, const char *text, uint64_t least,
                        uint64_t most, uint64_t *out)
{
    // As heddle reads numbers: decimal, or hexadecimal after 0x.
    bool hex = text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
    char *end = NULL;
    uint64_t value;

    errno = 0;
    value = strtoull(text, &end, hex ? 16 : 10);
    if (errno == 0 && end != text && *end == '\0' && text[0] != '-' &&
        value >= least && value <= most) {
        *out = value;
        return true;
    }
    fprintf(stderr,
            "heddle-gen: %s: '%.40s' is not a number from %" PRIu64
            " to %" PRIu64 "\n",
            option, text, least, most);
    return false;
}

// An exit code, or -1 to go on.
static int read_request(int argc, char **argv, request *out)
{
    static const struct option options[] = {
        {"seed", required_argument, NULL, 's'},
        {"integers", no_argument, NULL, 'i'},
        {"ops", required_argument, NULL, 'o'},
        {"moves", no_argument, NULL, 'm'},
        {"from", required_argument, NULL, 'f'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0}};
    uint64_t ops;
    int option;

    while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        switch (option) {
        case 's':
            if (!read_number("--seed", optarg, 0, UINT64_MAX, &out->seed))
                return USAGE;
            out->seeded = true;
            break;
        case 'i':
            out->options.integers = true;
            break;
        case 'o':
            if (!read_number("--ops", optarg, 1, GENERATE_MAX_OPS, &ops))
                return USAGE;
            out->options.ops = (int)ops;
            break;
        case 'm':
            out->moves = true;
            break;
        case 'f':
            out->from = optarg;
            break;
        case 'h':
            fputs(help, stdout);
            return FINE;
        default:
            return USAGE; // getopt has said why
        }
    }
    if (optind < argc) {
        fprintf(stderr,
                "heddle-gen: it takes no operands, and '%.40s' is one\n",
                argv[optind]);
        return USAGE;
    }
    if (out->from != NULL && out->seeded)
        fprintf(stderr, "heddle-gen: --seed has no effect with --from\n");
    return -1;
}

static int run_out(void)
{
    fprintf(stderr, "heddle-gen: out of memory\n");
    return FAILED;
}

// A file that is longer is an error, as its rest would not count.
static int read_choices(const char *path, uint8_t *bytes, size_t *length)
{
    FILE *file = fopen(path, "rb");
    bool read = false;

    if (file != NULL) {
        errno = 0;
        *length = fread(bytes, 1, *length, file);
        if (!ferror(file) && fgetc(file) != EOF)
            errno = EFBIG;
        read = errno == 0;
    }
    if (!read)
        fprintf(stderr, "heddle-gen: %s: %s\n", path, strerror(errno));
    if (file != NULL)
        fclose(file);
    return read ? FINE : WRONG;
}

// The choices of a request, as bytes that the caller frees. An exit code.
static int open_choices(const request *request, uint8_t **out, size_t *length)
{
    int ops = request->options.ops > 0 ? request->options.ops : 16;
    uint8_t *bytes;
    int code = FINE;

    *length = request->from != NULL ? MAX_FILE : generate_bytes(ops);
    bytes = malloc(*length);
    if (bytes == NULL)
        return run_out();
    if (request->from != NULL)
        code = read_choices(request->from, bytes, length);
    else
        choices_fill(request->seed, bytes, *length);
    if (code == FINE)
        *out = bytes;
    else
        free(bytes);
    return code;
}

static void print_lowering(const hd_lower_options *o)
{
    static const char *const transfers[] = {"bulk",   "pipelined", "broadcast",
                                            "direct", "ring",      "fused"};

    printf("// heddle dump --stage host --transfer %s --protocol %s "
           "--streams %d --chunks %d%s%s%s%s%s\n",
           transfers[o->transfer],
           o->protocol == HD_PROTOCOL_GET ? "get" : "put", o->streams,
           o->chunks, o->copy_own ? " --copy-own" : "",
           o->defer_sends ? " --defer-sends" : "",
           o->comm_stream ? " --comm-stream" : "",
           o->wire == HD_WIRE_F32 ? " --wire f32" : "",
           o->launch ? " --launch" : "");
}

static void print_request(const request *request)
{
    printf("// heddle-gen");
    if (request->from != NULL) {
        // The comment must not end within the name.
        printf(" --from ");
        for (const char *c = request->from; *c != '\0'; c++)
            putchar((unsigned char)*c < ' ' ? '?' : *c);
    } else {
        printf(" --seed %" PRIu64, request->seed);
    }
    if (request->options.ops > 0)
        printf(" --ops %d", request->options.ops);
    printf("%s%s\n", request->options.integers ? " --integers" : "",
           request->moves ? " --moves" : "");
}

// False if memory runs out.
static bool print_moves(choices *choices)
{
    char *host, *tensor;
    bool made = generate_stage(choices, &host, &tensor);

    for (char *line = made ? tensor : NULL, *end; line != NULL && *line != '\0';
         line = end + 1) {
        end = strchr(line, '\n');
        printf("// %.*s\n", (int)(end - line), line);
    }
    if (made)
        fputs(host, stdout);
    free(host);
    free(tensor);
    return made;
}

// Of a program of a seed; those of inputs of fuzz targets are opened there.
static char *leave_open(const request *request, char *text)
{
    uint8_t bytes[64];
    choices open = {bytes, sizeof bytes, 0};

    choices_fill(~request->seed, bytes, sizeof bytes);
    return open_declarations(text, request->options.integers, &open);
}

// False if memory runs out.
static bool print_program(const request *request, choices *choices)
{
    char *text;

    print_request(request);
    // An input of a fuzz target begins with the options.
    if (request->from != NULL) {
        hd_lower_options lowering = generate_lowering(choices);

        print_lowering(&lowering);
    }
    if (request->moves)
        return print_moves(choices);
    text = generate_program(choices, &request->options);
    if (text != NULL && request->from == NULL)
        text = leave_open(request, text);
    if (text != NULL)
        fputs(text, stdout);
    free(text);
    return text != NULL;
}

// The code, unless what was printed did not arrive.
static int finish(int code)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    fprintf(stderr, "heddle-gen: cannot write standard output: %s\n",
            strerror(errno));
    return code == FINE ? FAILED : code;
}

int main(int argc, char **argv)
{
    request request = {.from = NULL};
    choices choices = {0};
    int code = read_request(argc, argv, &request);
    uint8_t *bytes;

    if (code >= 0)
        return finish(code);
    if (!request.seeded)
        request.seed = (uint64_t)time(NULL);
    code = open_choices(&request, &bytes, &choices.length);
    if (code != FINE)
        return code;
    choices.byte = bytes;
    code = print_program(&request, &choices) ? FINE : run_out();
    free(bytes);
    return finish(code);
}

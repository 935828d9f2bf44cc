// The heddle command: finds the command that is asked for, and sees to it that
// what it printed arrived.
#include "commands.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static outcome run_version(const command *command, int argc, char **argv);
static outcome run_help(const command *command, int argc, char **argv);

static const command version_command = {
    .name = "version",
    .operands = "",
    .summary = "Prints the version of the tool and of the text form.",
    .about = "",
    .run = run_version,
};

static const command help_command = {
    .name = "help",
    .operands = "[COMMAND]",
    .summary = "Explains a command, or lists them all.",
    .about = "",
    .run = run_help,
};

static const command *const commands[] = {
    &dump_command,  &check_command, &simulate_command, &run_command,
    &bench_command, &env_command,   &version_command,  &help_command,
};
enum { NCOMMANDS = sizeof commands / sizeof *commands };

static void print_overview(FILE *to)
{
    fprintf(to,
            "usage: heddle COMMAND [options] [FILE]\n\n"
            "A host-IR compiler and runtime for pipelined communication.\n\n"
            "commands:\n");
    for (int i = 0; i < NCOMMANDS; i++)
        fprintf(to, "  %-8s  %s\n", commands[i]->name, commands[i]->summary);
    fprintf(to, "\n'heddle help COMMAND' explains one.\n"
                "exit codes: 0 fine, 1 a program or file is wrong, 2 usage,\n"
                "            3 the run failed, 4 it timed out\n");
}

static outcome find_command(const char *name, const command **out)
{
    const char *names[NCOMMANDS];
    const char *guess;

    for (int i = 0; i < NCOMMANDS; i++) {
        names[i] = commands[i]->name;
        if (strcmp(name, names[i]) == 0) {
            *out = commands[i];
            return FINE;
        }
    }
    guess = nearest(name, names, NCOMMANDS);
    if (guess)
        return complain(USAGE, "unknown command '%s'; did you mean '%s'?", name,
                        guess);
    return complain(USAGE, "unknown command '%s'; 'heddle help' lists them",
                    name);
}

static outcome run_version(const command *command, int argc, char **argv)
{
    int n;

    TRY(options_take(command, argc, argv, NULL, &n));
    printf("heddle %s (text form %d)\n", hd_version(), HD_FORMAT);
    return FINE;
}

static outcome run_help(const command *command, int argc, char **argv)
{
    const char *name;

    TRY(options_take_one(command, argc, argv, NULL, &name));
    if (!name) {
        print_overview(stdout);
        return FINE;
    }
    TRY(find_command(name, &command));
    command_help(command);
    return FINE;
}

// --help wins wherever it stands before `--`, even beside an option that is
// wrong.
static bool wants_help(int argc, char **argv)
{
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return true;
    return false;
}

static outcome run_command_line(int argc, char **argv)
{
    const command *command = NULL;

    if (argc < 2) {
        print_overview(stderr);
        return USAGE;
    }
    if (strcmp(argv[1], "--version") == 0)
        return run_version(&version_command, argc - 2, argv + 2);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return run_help(&help_command, 0, NULL);
    if (argv[1][0] == '-')
        return complain(
            USAGE, "unknown option '%s'; options follow the command", argv[1]);
    TRY(find_command(argv[1], &command));
    if (wants_help(argc - 2, argv + 2)) {
        command_help(command);
        return FINE;
    }
    return command->run(command, argc - 2, argv + 2);
}

// A file that is opened must not become a standard stream that was closed: the
// messages would go there. Whoever closed one is told when it is used, since
// what takes its place cannot be used so.
static void hold_standard_streams(void)
{
    bool no_input = fcntl(STDIN_FILENO, F_GETFD) < 0;
    int fd;

    do {
        fd = open("/dev/null", no_input ? O_WRONLY : O_RDONLY);
        no_input = false;
    } while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
}

// What a stream says of a write that failed is that one did, not why: standard
// output notes the first reason where `context` points.
static ssize_t write_output(void *context, const char *bytes, size_t length)
{
    int *why = context;
    size_t done = 0;

    while (done < length) {
        ssize_t n = write(STDOUT_FILENO, bytes + done, length - done);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            *why = *why ? *why : errno;
            break;
        }
        done += (size_t)n;
    }
    return (ssize_t)done;
}

static void watch_output(int *why)
{
    FILE *stream =
        fopencookie(why, "w", (cookie_io_functions_t){.write = write_output});

    if (!stream)
        out_of_memory();
    setvbuf(stream, NULL, isatty(STDOUT_FILENO) ? _IOLBF : _IOFBF, BUFSIZ);
    stdout = stream;
}

int main(int argc, char **argv)
{
    outcome result;
    int why = 0;

    hold_standard_streams();
    watch_output(&why);
    // So that a closed pipe, or a file beyond the user's limit, is an error
    // like any other.
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    result = run_command_line(argc, argv);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        complain(WRONG, "cannot write standard output: %s",
                 strerror(why ? why : EIO));
        if (result == FINE)
            result = WRONG;
    }
    return (int)result;
}

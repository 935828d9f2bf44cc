// The heddle command: from a command line to the command that is asked for, and
// sees to it that what it printed arrived.
#include "commands.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

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
        command_overview(stderr);
        return USAGE;
    }
    if (strcmp(argv[1], "--version") == 0)
        return version_command.run(&version_command, argc - 2, argv + 2);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return help_command.run(&help_command, 0, NULL);
    if (argv[1][0] == '-')
        return complain(
            USAGE, "unknown option '%s'; options follow the command", argv[1]);
    TRY(command_find(argv[1], &command));
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
    sigset_t pipe;
    outcome result;
    int why = 0;

    hold_standard_streams();
    watch_output(&why);
    // So that a closed pipe, or a file beyond the user's limit, is an error
    // like any other, and what was begun is ended.
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    sigprocmask(SIG_BLOCK, &pipe, NULL);
    signal(SIGXFSZ, SIG_IGN);
    result = run_command_line(argc, argv);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        if (!pipe_is_broken())
            complain(WRONG, "cannot write standard output: %s",
                     strerror(why ? why : EIO));
        if (result == FINE)
            result = WRONG;
    }
    // Whoever read has enough, as in `heddle dump FILE | head`: the usual end.
    if (pipe_is_broken())
        sigprocmask(SIG_UNBLOCK, &pipe, NULL);
    return (int)result;
}

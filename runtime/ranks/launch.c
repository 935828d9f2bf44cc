// Forks the ranks of a program on this host and sees them to their end.
//
// Launcher and ranks share one anonymous memory, the shared page: through it
// the ranks gather each other's addresses, and say how they ended and why. It
// goes away with its last process, as do the ranks with their launcher: the
// kernel kills them when it dies, however it dies.
//
// The launcher watches the ranks through pidfds and takes the terminal's
// signals as input, so that all of this is one loop over one poll.
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <heddle/launch.h>

#include "base/diag.h"
#include "runtime/ranks/doorbell.h"
#include "runtime/ranks/frame.h"
#include "runtime/ranks/group.h"
#include "runtime/ranks/list.h"

#define SLOT_BYTES 256
#define SLOT_MESSAGES 8
#define MESSAGE_BYTES 512
#define GRACE_SECONDS 1.0

static const int ending_signals[] = {SIGINT, SIGTERM, SIGHUP};
enum { NENDING = sizeof ending_signals / sizeof *ending_signals };

// One rank's part of the shared page. Only that rank writes to it.
typedef struct hd_slot {
    char data[2][SLOT_BYTES]; // of allgather rounds, even and odd
    _Atomic uint64_t rounds;  // that the rank has come to
    int32_t status;           // what the rank's function returned
    int32_t returned;         // it did return
    int32_t nmessages;
    struct {
        int32_t severity;
        char text[MESSAGE_BYTES];
    } message[SLOT_MESSAGES];
} hd_slot;

typedef struct hd_shared_page {
    hd_doorbell doorbell;
    _Atomic uint64_t arrived; // ranks times rounds
    atomic_bool broken;       // a rank is gone: nobody waits any longer
    hd_slot slot[];           // by rank
} hd_shared_page;

typedef struct child {
    pid_t pid;   // 0 once reaped
    int pidfd;   // owned; -1 once reaped
    int how;     // as waitpid has it
    bool killed; // by us, since another rank had failed
} child;

typedef struct launcher {
    int nranks;
    double timeout;       // of what ranks wait for each other
    hd_shared_page *page; // owned
    size_t page_bytes;
    child *child;       // owned
    struct pollfd *ask; // owned: one a rank, then `signals`
    int running;
    int signals;          // owned signalfd
    int interrupted;      // the signal that ends us, or 0
    int64_t deadline;     // of the ranks
    int64_t end_of_grace; // INT64_MAX while no rank has failed
    bool late;
    int culprit; // the rank whose failure is reported, -1 if none
    sigset_t mask_before;
    struct sigaction child_before;
    hd_diag *diag;
} launcher;

// --------------------------------------------------------- in a rank

typedef struct rendezvous {
    hd_shared_page *page;
    int rank, nranks;
    uint64_t rounds; // so far
    double timeout;
    int64_t deadline;
    hd_diag *diag; // borrowed, may be NULL
} rendezvous;

static bool all_arrived(const rendezvous *rendezvous)
{
    return atomic_load_explicit(&rendezvous->page->arrived,
                                memory_order_seq_cst) >=
           rendezvous->rounds * (uint64_t)rendezvous->nranks;
}

static bool is_broken(const rendezvous *rendezvous)
{
    return atomic_load_explicit(&rendezvous->page->broken,
                                memory_order_seq_cst);
}

// HD_OK if they have all come by now.
static hd_status report_absent(const rendezvous *rendezvous)
{
    const hd_slot *slot = rendezvous->page->slot;
    hd_rank_list absent = {.n = 0};

    // Acquires the slots.
    for (int i = 0; i < rendezvous->nranks; i++) {
        if (atomic_load_explicit(&slot[i].rounds, memory_order_acquire) <
            rendezvous->rounds)
            hd_rank_list_add(&absent, i);
    }
    if (absent.n == 0)
        return HD_OK;
    return hd_fail(rendezvous->diag, HD_ERROR_TIMEOUT,
                   "rank %d waits for rank%s %s to connect, for %g s now",
                   rendezvous->rank, absent.n > 1 ? "s" : "", absent.text,
                   rendezvous->timeout);
}

static hd_status await_round(const rendezvous *rendezvous)
{
    hd_doorbell *doorbell = &rendezvous->page->doorbell;

    while (hd_clock() < rendezvous->deadline) {
        uint32_t seen = hd_doorbell_arm(doorbell);
        bool over = all_arrived(rendezvous) || is_broken(rendezvous);

        if (!over)
            hd_doorbell_sleep(doorbell, seen,
                              rendezvous->deadline - hd_clock());
        hd_doorbell_disarm(doorbell);
        if (over)
            return all_arrived(rendezvous) ? HD_OK : HD_ERROR_PEER;
    }
    return report_absent(rendezvous);
}

// Two slots a rank are enough: whoever is two rounds ahead of a reader would
// have passed a round at which that reader has not arrived.
static hd_status gather_round(rendezvous *rendezvous, const char *mine,
                              size_t bytes, char *all, size_t stride)
{
    hd_shared_page *page = rendezvous->page;
    uint64_t parity = rendezvous->rounds++ & 1;

    memcpy(page->slot[rendezvous->rank].data[parity], mine, bytes);
    atomic_store_explicit(&page->slot[rendezvous->rank].rounds,
                          rendezvous->rounds, memory_order_release);
    // Releases the slot, and all that was read in the round before.
    atomic_fetch_add_explicit(&page->arrived, 1, memory_order_seq_cst);
    hd_doorbell_ring(&page->doorbell);
    HD_TRY(await_round(rendezvous));
    for (int i = 0; i < rendezvous->nranks; i++)
        memcpy(all + (size_t)i * stride, page->slot[i].data[parity], bytes);
    return HD_OK;
}

static hd_status gather_on_page(void *context, const void *mine, size_t bytes,
                                void *all)
{
    for (size_t done = 0; done < bytes; done += SLOT_BYTES) {
        size_t part = bytes - done < SLOT_BYTES ? bytes - done : SLOT_BYTES;

        HD_TRY(gather_round(context, (const char *)mine + done, part,
                            (char *)all + done, bytes));
    }
    return HD_OK;
}

// The rank must not outlive the launcher, not even one that died before this
// was asked for, and leaves the terminal's signals to their usual effect.
static void bind_to_launcher(const launcher *launcher, pid_t parent)
{
    struct sigaction action;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(HD_ERROR_PEER);
    for (int i = 0; i < NENDING; i++) {
        sigaction(ending_signals[i], NULL, &action);
        if (action.sa_handler != SIG_IGN)
            signal(ending_signals[i], SIG_DFL);
    }
    sigaction(SIGCHLD, &launcher->child_before, NULL);
    sigprocmask(SIG_SETMASK, &launcher->mask_before, NULL);
    close(launcher->signals);
    for (int i = 0; i < launcher->nranks; i++) {
        if (launcher->child[i].pidfd >= 0)
            close(launcher->child[i].pidfd);
    }
}

// What the rank said into the launcher's diag, of which it has a copy, is
// carried to the launcher's own.
static void post_messages(hd_slot *slot, const hd_diag *diag)
{
    hd_message message = HD_EMPTY(hd_message);

    for (size_t i = 0; diag != NULL && i < hd_diag_count(diag) &&
                       slot->nmessages < SLOT_MESSAGES;
         i++) {
        if (!hd_diag_message(diag, i, &message))
            break;
        char *text = slot->message[slot->nmessages].text;

        slot->message[slot->nmessages].severity = (int32_t)message.severity;
        if (message.line > 0)
            snprintf(text, MESSAGE_BYTES, "%s:%d:%d: %s", message.file,
                     message.line, message.column, message.text);
        else
            snprintf(text, MESSAGE_BYTES, "%s", message.text);
        slot->nmessages++;
    }
}

static _Noreturn void run_rank(const launcher *launcher, int rank,
                               hd_rank_fn *fn, void *context)
{
    hd_slot *slot = &launcher->page->slot[rank];
    rendezvous rendezvous = {.page = launcher->page,
                             .rank = rank,
                             .nranks = launcher->nranks,
                             .timeout = launcher->timeout,
                             .deadline = hd_clock_after(launcher->timeout),
                             .diag = launcher->diag};
    hd_oob oob = {sizeof oob, &rendezvous, rank, launcher->nranks,
                  gather_on_page};
    hd_group *group = NULL;
    hd_status status;

    // It is this process's copy, and what it holds the launcher's has too.
    if (launcher->diag != NULL)
        hd_diag_clear(launcher->diag);
    status = hd_group_create(&oob, launcher->timeout, launcher->diag, &group);
    if (status == HD_OK)
        status = hd_group_status(fn(context, group), "its function", rank,
                                 launcher->diag);
    if (status != HD_OK)
        post_messages(slot, launcher->diag);
    if (status != HD_OK && group != NULL)
        hd_group_give_up(group, status, launcher->diag, 0);
    hd_group_destroy(group);
    slot->status = (int32_t)status;
    slot->returned = 1;
    fflush(NULL);
    _exit((int)status);
}

// ---------------------------------------------------- in the launcher

static hd_status check_launch(int nranks, double timeout, hd_rank_fn *fn,
                              hd_diag *diag)
{
    if (fn == NULL)
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "the ranks have no function to run");
    if (nranks < 1 || nranks > HD_MAX_RANKS)
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "%d ranks; there may be 1 to %d", nranks, HD_MAX_RANKS);
    if (!(timeout > 0))
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "a timeout of %g s is not above 0", timeout);
    return HD_OK;
}

static hd_status prepare(launcher *launcher)
{
    size_t n = (size_t)launcher->nranks;
    void *page;

    launcher->child = calloc(n, sizeof *launcher->child);
    launcher->ask = calloc(n + 1, sizeof *launcher->ask);
    if (launcher->child == NULL || launcher->ask == NULL)
        return hd_fail(launcher->diag, HD_ERROR_NO_MEMORY,
                       "no memory for %zu ranks", n);
    for (size_t i = 0; i < n; i++)
        launcher->child[i].pidfd = -1;
    launcher->page_bytes = sizeof(hd_shared_page) + n * sizeof(hd_slot);
    page = mmap(NULL, launcher->page_bytes, PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return hd_system_error(launcher->diag, "mmap of %zu bytes",
                               launcher->page_bytes);
    launcher->page = page;
    return HD_OK;
}

// From here on the terminal's signals arrive as input, and ranks are ours to
// reap whatever the caller does with its other children.
// A signal that the caller ignores, as a hang-up under nohup, ends nothing.
static hd_status take_signals(launcher *launcher)
{
    struct sigaction usual = {.sa_handler = SIG_DFL};
    struct sigaction action;
    sigset_t ours;

    sigemptyset(&ours);
    for (int i = 0; i < NENDING; i++) {
        sigaction(ending_signals[i], NULL, &action);
        if (action.sa_handler != SIG_IGN)
            sigaddset(&ours, ending_signals[i]);
    }
    launcher->signals = signalfd(-1, &ours, SFD_CLOEXEC | SFD_NONBLOCK);
    if (launcher->signals < 0)
        return hd_system_error(launcher->diag, "signalfd");
    sigaction(SIGCHLD, &usual, &launcher->child_before);
    sigprocmask(SIG_BLOCK, &ours, &launcher->mask_before);
    return HD_OK;
}

// Hands the signals back. The one that ended us takes its usual effect on the
// caller now, when no rank is left.
static void return_signals(launcher *launcher)
{
    if (launcher->signals < 0)
        return;
    close(launcher->signals);
    sigaction(SIGCHLD, &launcher->child_before, NULL);
    if (launcher->interrupted != 0)
        raise(launcher->interrupted);
    sigprocmask(SIG_SETMASK, &launcher->mask_before, NULL);
}

static void kill_all(launcher *launcher)
{
    for (int i = 0; i < launcher->nranks; i++) {
        child *child = &launcher->child[i];

        if (child->pid > 0) {
            child->killed = true;
            kill(child->pid, SIGKILL);
        }
    }
}

static hd_status start_all(launcher *launcher, hd_rank_fn *fn, void *context)
{
    pid_t self = getpid();

    // What is buffered now would else be written by every rank.
    fflush(NULL);
    for (int i = 0; i < launcher->nranks; i++) {
        pid_t pid = fork();

        if (pid < 0)
            return hd_system_error(launcher->diag, "fork of rank %d", i);
        if (pid == 0) {
            bind_to_launcher(launcher, self);
            run_rank(launcher, i, fn, context);
        }
        launcher->child[i].pid = pid;
        launcher->running++;
        launcher->child[i].pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
        if (launcher->child[i].pidfd < 0)
            return hd_system_error(launcher->diag, "pidfd_open of rank %d", i);
    }
    return HD_OK;
}

static bool failed(const child *child)
{
    return child->pid == 0 && !child->killed && child->how != 0;
}

// A rank that only says that a peer failed is not the cause.
static bool is_cause(const child *child)
{
    return !WIFEXITED(child->how) || WEXITSTATUS(child->how) != HD_ERROR_PEER;
}

static void blame(launcher *launcher, int rank)
{
    int before = launcher->culprit;

    if (before < 0 || (!is_cause(&launcher->child[before]) &&
                       is_cause(&launcher->child[rank])))
        launcher->culprit = rank;
}

static void reap(launcher *launcher, int rank)
{
    child *child = &launcher->child[rank];

    if (waitpid(child->pid, &child->how, 0) < 0 && errno == EINTR)
        return;
    child->pid = 0;
    if (child->pidfd >= 0)
        close(child->pidfd);
    child->pidfd = -1;
    launcher->running--;
    if (!failed(child))
        return;
    blame(launcher, rank);
    atomic_store_explicit(&launcher->page->broken, true, memory_order_seq_cst);
    hd_doorbell_ring(&launcher->page->doorbell);
    if (launcher->end_of_grace == INT64_MAX)
        launcher->end_of_grace = hd_clock_after(GRACE_SECONDS);
}

static void take_interrupt(launcher *launcher)
{
    struct signalfd_siginfo info;

    if (read(launcher->signals, &info, sizeof info) != sizeof info)
        return;
    launcher->interrupted = (int)info.ssi_signo;
    kill_all(launcher);
}

static void kill_if_late(launcher *launcher)
{
    int64_t now = hd_clock();

    if (now >= launcher->end_of_grace) {
        kill_all(launcher);
        launcher->end_of_grace = INT64_MAX - 1; // once is enough
    } else if (now >= launcher->deadline) {
        launcher->late = launcher->culprit < 0;
        kill_all(launcher);
        launcher->deadline = INT64_MAX;
    }
}

static void see_to_the_end(launcher *launcher)
{
    int n = launcher->nranks;

    while (launcher->running > 0) {
        for (int i = 0; i < n; i++)
            launcher->ask[i] = (struct pollfd){.fd = launcher->child[i].pidfd,
                                               .events = POLLIN};
        launcher->ask[n] =
            (struct pollfd){.fd = launcher->signals, .events = POLLIN};
        hd_poll(launcher->ask, (nfds_t)n + 1,
                launcher->end_of_grace < launcher->deadline
                    ? launcher->end_of_grace
                    : launcher->deadline);
        for (int i = 0; i < n; i++) {
            if (launcher->ask[i].fd >= 0 && launcher->ask[i].revents != 0)
                reap(launcher, i);
        }
        if (launcher->ask[n].revents != 0)
            take_interrupt(launcher);
        kill_if_late(launcher);
    }
    // Ctrl-C reaches the ranks too, and they may end before it is read here.
    take_interrupt(launcher);
}

// Those that a failed start left running; some may have no pidfd.
static void abandon(launcher *launcher)
{
    kill_all(launcher);
    for (int i = 0; i < launcher->nranks; i++) {
        while (launcher->child[i].pid > 0)
            reap(launcher, i);
    }
}

static hd_status report_returned(launcher *launcher, int rank)
{
    hd_slot *slot = &launcher->page->slot[rank];
    hd_status status = (hd_status)slot->status;
    const hd_loc nowhere = {0};
    bool reasoned = false;

    for (int i = 0; i < slot->nmessages && i < SLOT_MESSAGES; i++) {
        char *text = slot->message[i].text;

        text[MESSAGE_BYTES - 1] = '\0';
        if (slot->message[i].severity == HD_SEVERITY_NOTE)
            hd_note(launcher->diag, nowhere, "%s", text);
        else if (slot->message[i].severity == HD_SEVERITY_WARNING)
            hd_warning(launcher->diag, HD_CODE_NONE, nowhere, "rank %d: %s",
                       rank, text);
        else if (strncmp(text, "rank ", 5) == 0)
            status = hd_fail(launcher->diag, status, "%s", text);
        else
            status = hd_fail(launcher->diag, status, "rank %d: %s", rank, text);
        reasoned |= slot->message[i].severity == HD_SEVERITY_ERROR;
    }
    if (reasoned)
        return status;
    return hd_fail(launcher->diag, status, "rank %d failed: %s", rank,
                   hd_status_text(status));
}

static hd_status report_culprit(launcher *launcher)
{
    int rank = launcher->culprit;
    int how = launcher->child[rank].how;

    if (WIFSIGNALED(how))
        return hd_fail(launcher->diag, HD_ERROR_PEER,
                       "rank %d was killed by signal %d (%s)", rank,
                       WTERMSIG(how), strsignal(WTERMSIG(how)));
    if (!launcher->page->slot[rank].returned)
        return hd_fail(launcher->diag, HD_ERROR_PEER,
                       "rank %d exited with code %d before its function "
                       "returned",
                       rank, WEXITSTATUS(how));
    return report_returned(launcher, rank);
}

static hd_status report_late(launcher *launcher, double deadline)
{
    hd_rank_list late = {.n = 0};

    for (int i = 0; i < launcher->nranks; i++) {
        if (launcher->child[i].killed)
            hd_rank_list_add(&late, i);
    }
    return hd_fail(launcher->diag, HD_ERROR_TIMEOUT,
                   "rank%s %s still ran after %g s and %s killed",
                   late.n > 1 ? "s" : "", late.text, deadline,
                   late.n > 1 ? "were" : "was");
}

static hd_status report_outcome(launcher *launcher, double deadline)
{
    int signal = launcher->interrupted;

    if (signal != 0)
        return hd_fail(launcher->diag, HD_ERROR_SYSTEM,
                       "ended by signal %d (%s)", signal, strsignal(signal));
    if (launcher->culprit >= 0)
        return report_culprit(launcher);
    if (launcher->late)
        return report_late(launcher, deadline);
    return HD_OK;
}

hd_status hd_launch(int nranks, double timeout, double deadline, hd_rank_fn *fn,
                    void *context, hd_diag *diag)
{
    launcher launcher = {.nranks = nranks,
                         .timeout = timeout,
                         .signals = -1,
                         .deadline = deadline > 0 ? hd_clock_after(deadline)
                                                  : INT64_MAX,
                         .end_of_grace = INT64_MAX,
                         .culprit = -1,
                         .diag = diag};
    hd_status status;

    HD_TRY(check_launch(nranks, timeout, fn, diag));
    status = prepare(&launcher);
    if (status == HD_OK)
        status = take_signals(&launcher);
    if (status == HD_OK) {
        status = start_all(&launcher, fn, context);
        if (status != HD_OK)
            abandon(&launcher);
        else
            see_to_the_end(&launcher);
    }
    if (status == HD_OK)
        status = report_outcome(&launcher, deadline);
    return_signals(&launcher);
    if (launcher.page != NULL)
        munmap(launcher.page, launcher.page_bytes);
    free(launcher.ask);
    free(launcher.child);
    return status;
}

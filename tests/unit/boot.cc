// Ranks that a launcher has started: what its variables say, and how the ranks
// find each other.
#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <functional>
#include <poll.h>
#include <random>
#include <sched.h>
#include <string>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <heddle/launch.h>

#include "runtime/ranks/boot.h"
#include "runtime/ranks/frame.h"
#include "tests/clock.h"
#include "tests/seed.h"
#include "tests/unit/ranks.h"

namespace
{

// ------------------------------------------------------------- places

const char *const kVariables[] = {"RANK",
                                  "WORLD_SIZE",
                                  "LOCAL_RANK",
                                  "LOCAL_WORLD_SIZE",
                                  "MASTER_ADDR",
                                  "MASTER_PORT",
                                  "TORCHELASTIC_RUN_ID",
                                  "TORCHELASTIC_RESTART_COUNT",
                                  "OMPI_COMM_WORLD_RANK",
                                  "OMPI_COMM_WORLD_SIZE",
                                  "OMPI_COMM_WORLD_LOCAL_RANK",
                                  "OMPI_COMM_WORLD_LOCAL_SIZE",
                                  "OMPI_MCA_ess_base_jobid",
                                  "PMIX_NAMESPACE",
                                  "PMI_RANK",
                                  "PMI_SIZE",
                                  "MPI_LOCALRANKID",
                                  "MPI_LOCALNRANKS",
                                  "SLURM_PROCID",
                                  "SLURM_NTASKS",
                                  "SLURM_LOCALID",
                                  "SLURM_NODEID",
                                  "SLURM_JOB_ID",
                                  "SLURM_STEP_ID",
                                  "SLURM_STEP_NODELIST",
                                  "SLURM_STEP_NUM_TASKS",
                                  "SLURM_STEP_TASKS_PER_NODE",
                                  "HEDDLE_ADDR",
                                  "HEDDLE_HOST"};

// Exactly these variables of launchers, "NAME=value NAME=value": a value may be
// in quotes.
void SetEnvironment(const std::string &text)
{
    size_t at = 0;

    for (const char *name : kVariables)
        unsetenv(name);
    while (at < text.size()) {
        size_t equals = text.find('=', at);
        bool quoted = text[equals + 1] == '\'';
        size_t start = equals + 1 + quoted;
        size_t end = text.find(quoted ? '\'' : ' ', start);

        end = end == std::string::npos ? text.size() : end;
        setenv(text.substr(at, equals - at).c_str(),
               text.substr(start, end - start).c_str(), 1);
        at = end + quoted;
        while (at < text.size() && text[at] == ' ')
            at++;
    }
}

struct Found {
    hd_status status;
    bool found;
    hd_place place = HD_EMPTY(hd_place);
    std::string text;
};

Found Find(const std::string &environment)
{
    Found result = {HD_OK, false, HD_EMPTY(hd_place), ""};
    hd_diag *diag = hd_diag_create();

    SetEnvironment(environment);
    memset(&result.place, 0x5a, sizeof(result.place));
    result.place.size = sizeof(result.place);
    result.status = hd_place_find(diag, &result.found, &result.place);
    result.text = hd_diag_text(diag);
    hd_diag_destroy(diag);
    SetEnvironment("");
    return result;
}

const std::string kTorchrun =
    "RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 "
    "MASTER_ADDR=node7 MASTER_PORT=29500 TORCHELASTIC_RUN_ID=17";
const std::string kOpenMpi =
    "OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=3 "
    "OMPI_COMM_WORLD_LOCAL_RANK=2 OMPI_COMM_WORLD_LOCAL_SIZE=3 "
    "PMIX_NAMESPACE=4711";
const std::string kPmi =
    "PMI_RANK=1 PMI_SIZE=4 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=4";
const std::string kSlurm =
    "SLURM_JOB_ID=77 SLURM_STEP_ID=0 SLURM_PROCID=3 SLURM_NTASKS=5 "
    "SLURM_LOCALID=0 SLURM_NODEID=1 SLURM_STEP_TASKS_PER_NODE=3,2 "
    "SLURM_STEP_NODELIST=n[1-2]";

struct GoodPlace {
    std::string environment;
    const char *launcher; // nullptr: none
    int rank, size, local_rank, local_size;
};

TEST(Place, IsFoundInTheVariablesOfALauncher)
{
    const GoodPlace cases[] = {
        {"", nullptr, 0, 0, 0, 0},
        {kTorchrun, "torchrun", 5, 8, 1, 4},
        {"RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1", "torchrun", 0,
         1, 0, 1},
        {"RANK=4095 WORLD_SIZE=4096 LOCAL_RANK=7 LOCAL_WORLD_SIZE=8",
         "torchrun", 4095, 4096, 7, 8},
        {kOpenMpi, "Open MPI", 2, 3, 2, 3},
        {kPmi, "PMI", 1, 4, 1, 4},
        {"PMI_RANK=1 PMI_SIZE=4", "PMI", 1, 4, -1, 0},
        {kSlurm, "Slurm", 3, 5, 0, 2},
        {"SLURM_JOB_ID=77 SLURM_STEP_ID=1 SLURM_PROCID=8 SLURM_NTASKS=9 "
         "SLURM_LOCALID=1 SLURM_NODEID=3 "
         "SLURM_STEP_TASKS_PER_NODE='2(x3),3'",
         "Slurm", 8, 9, 1, 3},
        {"SLURM_JOB_ID=77 SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_NTASKS=3 "
         "SLURM_LOCALID=1 SLURM_STEP_NODELIST=n1",
         "Slurm", 1, 3, 1, 3},
        {"SLURM_JOB_ID=77 SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_NTASKS=3 "
         "SLURM_LOCALID=1 SLURM_STEP_NODELIST=n1,n2",
         "Slurm", 1, 3, 1, 0},
        // Of the step, where the allocation has more.
        {kSlurm + " SLURM_NTASKS=40 SLURM_STEP_NUM_TASKS=5", "Slurm", 3, 5, 0,
         2},
        // An allocation, a batch script, and the shell of an allocation.
        {"SLURM_JOB_ID=77 SLURM_NTASKS=4", nullptr, 0, 0, 0, 0},
        {"SLURM_JOB_ID=77 SLURM_NTASKS=4 SLURM_PROCID=0 SLURM_LOCALID=0",
         nullptr, 0, 0, 0, 0},
        {"SLURM_JOB_ID=77 SLURM_NTASKS=4 SLURM_PROCID=0 SLURM_LOCALID=0 "
         "SLURM_STEP_ID=4294967290",
         nullptr, 0, 0, 0, 0},
        {"WORLD_SIZE=4", nullptr, 0, 0, 0, 0},
        {"LOCAL_WORLD_SIZE=4 MASTER_ADDR=a", nullptr, 0, 0, 0, 0},
        // srun passes for PMI; sets that agree are one.
        {kSlurm + " PMI_RANK=3 PMI_SIZE=5", "Slurm", 3, 5, 0, 2},
        {kOpenMpi + " RANK=2 WORLD_SIZE=3 LOCAL_RANK=2 LOCAL_WORLD_SIZE=3",
         "torchrun", 2, 3, 2, 3},
        // Slurm started what started this process.
        {kSlurm + " " + kTorchrun, "torchrun", 5, 8, 1, 4},
        {kSlurm + " " + kOpenMpi, "Open MPI", 2, 3, 2, 3},
        {kSlurm + " " + kPmi, "PMI", 1, 4, 1, 4},
    };

    for (const GoodPlace &c : cases) {
        Found got = Find(c.environment);

        ASSERT_EQ(got.status, HD_OK) << c.environment << ": " << got.text;
        ASSERT_EQ(got.found, c.launcher != nullptr) << c.environment;
        if (c.launcher == nullptr)
            continue;
        EXPECT_STREQ(got.place.launcher, c.launcher) << c.environment;
        EXPECT_EQ(got.place.rank, c.rank) << c.environment;
        EXPECT_EQ(got.place.nranks, c.size) << c.environment;
        EXPECT_EQ(got.place.local_rank, c.local_rank) << c.environment;
        EXPECT_EQ(got.place.local_size, c.local_size) << c.environment;
    }
}

struct BadPlace {
    std::string environment;
    std::vector<const char *> words; // of the message
};

TEST(Place, IsRefusedWhereVariablesAreMissingOrWrong)
{
    const std::string rest = " WORLD_SIZE=4 LOCAL_RANK=0 LOCAL_WORLD_SIZE=4";
    const BadPlace cases[] = {
        {"RANK=3", {"RANK is '3'", "WORLD_SIZE is not set"}},
        {"LOCAL_RANK=0 WORLD_SIZE=4", {"LOCAL_RANK is '0'", "RANK is not set"}},
        {"RANK=0 WORLD_SIZE=4 LOCAL_RANK=0", {"LOCAL_WORLD_SIZE is not set"}},
        {"RANK=''" + rest, {"RANK is ''", "not a number from 0 to 4095"}},
        {"RANK=-1" + rest, {"RANK is '-1'"}},
        {"RANK=+1" + rest, {"RANK is '+1'"}},
        {"RANK='1 '" + rest, {"RANK is '1 '"}},
        {"RANK=' 1'" + rest, {"RANK is ' 1'"}},
        {"RANK=0x1" + rest, {"RANK is '0x1'"}},
        {"RANK=1.0" + rest, {"RANK is '1.0'"}},
        {"RANK=two" + rest, {"RANK is 'two'"}},
        {"RANK=4" + rest, {"RANK is 4", "WORLD_SIZE, 4,"}},
        {"RANK=4294967296" + rest, {"RANK is '4294967296'"}},
        {"RANK=18446744073709551617" + rest, {"RANK is '184467"}},
        {"RANK=0 WORLD_SIZE=0 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1",
         {"WORLD_SIZE is '0'", "from 1 to 4096"}},
        {"RANK=0 WORLD_SIZE=4097 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1",
         {"WORLD_SIZE is '4097'"}},
        {"RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=1",
         {"LOCAL_RANK is 1", "LOCAL_WORLD_SIZE, 1,"}},
        {"RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=3",
         {"LOCAL_WORLD_SIZE is 3", "WORLD_SIZE, 2,"}},
        {"RANK=0 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2",
         {"LOCAL_RANK is 1", "RANK, 0,"}},
        {kTorchrun + " MASTER_PORT=70000", {"MASTER_PORT is '70000'"}},
        {kTorchrun + " MASTER_PORT=0", {"MASTER_PORT is '0'"}},
        {kTorchrun + " MASTER_ADDR=''",
         {"MASTER_ADDR is ''", "a host of 1 to 255 characters"}},
        {"RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=a",
         {"MASTER_ADDR is 'a'", "MASTER_PORT is not set"}},
        {"OMPI_COMM_WORLD_SIZE=3",
         {"OMPI_COMM_WORLD_SIZE is '3'", "OMPI_COMM_WORLD_RANK is not set"}},
        {"OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=3",
         {"OMPI_COMM_WORLD_LOCAL_RANK is not set"}},
        {"PMI_RANK=1", {"PMI_RANK is '1'", "PMI_SIZE is not set"}},
        {"PMI_SIZE=1", {"PMI_SIZE is '1'", "PMI_RANK is not set"}},
        {"PMI_RANK=1 PMI_SIZE=4 MPI_LOCALNRANKS=4",
         {"MPI_LOCALRANKID is not set"}},
        {"SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_JOB_ID=7",
         {"SLURM_PROCID is '0'", "SLURM_NTASKS is not set"}},
        {"SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_NTASKS=1 SLURM_LOCALID=0",
         {"SLURM_JOB_ID is not set"}},
        {"SLURM_STEP_ID=x SLURM_PROCID=0",
         {"SLURM_STEP_ID is 'x'", "from 0 to 4294967295"}},
        {kSlurm + " SLURM_NODEID=z",
         {"SLURM_NODEID is 'z'", "from 0 to 2147483647"}},
        {kSlurm + " SLURM_NODEID=2", {"SLURM_STEP_TASKS_PER_NODE is '3,2'"}},
        {kSlurm + " SLURM_LOCALID=2", {"SLURM_STEP_TASKS_PER_NODE is '3,2'"}},
        {kSlurm + " SLURM_NTASKS=4",
         {"SLURM_STEP_TASKS_PER_NODE is '3,2'", "SLURM_NODEID, 1,",
          "SLURM_LOCALID, 0,", "SLURM_NTASKS, 4"}},
        {kSlurm + " SLURM_STEP_TASKS_PER_NODE='2(x'", {"is '2(x'"}},
        {kSlurm + " SLURM_STEP_TASKS_PER_NODE='3,2,'", {"is '3,2,'"}},
        {kSlurm + " SLURM_STEP_TASKS_PER_NODE='3,99999999999999999999'",
         {"is '3,9999"}},
        // Two launchers.
        {kOpenMpi + " " + kTorchrun,
         {"torchrun has RANK = 5", "Open MPI has OMPI_COMM_WORLD_RANK = 2"}},
        {kOpenMpi + " PMI_RANK=2 PMI_SIZE=4",
         {"OMPI_COMM_WORLD_SIZE = 3", "PMI_SIZE = 4"}},
        {kOpenMpi + " RANK=2 WORLD_SIZE=3 LOCAL_RANK=1 LOCAL_WORLD_SIZE=3",
         {"LOCAL_RANK = 1", "OMPI_COMM_WORLD_LOCAL_RANK = 2"}},
        {kSlurm + " PMI_RANK=2 PMI_SIZE=5",
         {"PMI_RANK = 2", "SLURM_PROCID = 3"}},
        {kSlurm + " RANK=3 WORLD_SIZE=4 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2",
         {"WORLD_SIZE = 4", "SLURM_NTASKS = 5"}},
        {kOpenMpi + " HEDDLE_ADDR=host", {"HEDDLE_ADDR is 'host'"}},
        {kOpenMpi + " HEDDLE_ADDR=:80", {"HEDDLE_ADDR is ':80'"}},
        {kOpenMpi + " HEDDLE_ADDR=host:", {"HEDDLE_ADDR is 'host:'"}},
        {kOpenMpi + " HEDDLE_ADDR=host:0", {"HEDDLE_ADDR is 'host:0'"}},
        {kOpenMpi + " HEDDLE_ADDR=host:65536",
         {"HEDDLE_ADDR is 'host:65536'", "a port from 1 to 65535"}},
        {kOpenMpi + " HEDDLE_ADDR=" + std::string(256, 'h') + ":80",
         {"a host of 1 to 255 characters"}},
        {kOpenMpi + " HEDDLE_ADDR=host:8a", {"HEDDLE_ADDR is"}},
        {kOpenMpi + " HEDDLE_ADDR=::1:80", {"HEDDLE_ADDR is '::1:80'"}},
        {kOpenMpi + " HEDDLE_HOST=''", {"HEDDLE_HOST is ''"}},
        {kOpenMpi + " HEDDLE_HOST='a b'", {"HEDDLE_HOST is 'a b'"}},
    };

    for (const BadPlace &c : cases) {
        Found got = Find(c.environment);

        EXPECT_EQ(got.status, HD_ERROR_ARGUMENT) << c.environment;
        for (const char *word : c.words)
            EXPECT_NE(got.text.find(word), std::string::npos)
                << c.environment << "\n  wants: " << word
                << "\n  says: " << got.text;
    }
}

TEST(Place, HasAnAddressThatAllRanksDerive)
{
    std::string other = kTorchrun;
    Found a = Find(kTorchrun), b;
    std::string text;

    other.replace(other.find("RANK=5"), 6, "RANK=1");
    b = Find(other);
    text = a.place.address;
    EXPECT_EQ(text.substr(0, 6), "node7:");
    EXPECT_NE(text, "node7:29500"); // torch's own
    EXPECT_EQ(text, b.place.address);
    EXPECT_EQ(a.place.job, b.place.job);

    EXPECT_EQ(Find(kTorchrun + " HEDDLE_ADDR=[fe80::1]:7").place.address,
              std::string("[fe80::1]:7"));
    text = Find(kTorchrun + " MASTER_ADDR=fe80::1 MASTER_PORT=65535")
               .place.address;
    EXPECT_EQ(text.substr(0, 10), "[fe80::1]:");
    EXPECT_GT(atoi(text.c_str() + 10), 1023);
    EXPECT_LT(atoi(text.c_str() + 10), 65535);
    // Ranks of one host need none, whatever torch uses.
    EXPECT_STREQ(Find("RANK=0 WORLD_SIZE=4 LOCAL_RANK=0 LOCAL_WORLD_SIZE=4 "
                      "MASTER_ADDR=node7 MASTER_PORT=29500")
                     .place.address,
                 "");
}

TEST(Place, TellsJobsApart)
{
    EXPECT_EQ(Find(kOpenMpi).place.job, Find(kOpenMpi).place.job);
    EXPECT_NE(Find(kOpenMpi).place.job,
              Find(kOpenMpi + " PMIX_NAMESPACE=4712").place.job);
    EXPECT_NE(Find(kTorchrun).place.job,
              Find(kTorchrun + " MASTER_PORT=29501").place.job);
    EXPECT_NE(Find(kSlurm).place.job,
              Find(kSlurm + " SLURM_STEP_ID=1").place.job);
    EXPECT_NE(Find(kPmi).place.job, 0u);
}

// -------------------------------------------------------------- ranks

// Processes, each with a status and the words of its diag.
struct Ended {
    int how; // as waitpid has it
    hd_status status;
    char text[1024];
};

typedef std::function<hd_status(const hd_place &, hd_diag *)> PlaceFunction;

uint64_t NewJob()
{
    static std::mt19937_64 random(std::random_device{}());

    return random();
}

hd_place PlaceOf(int rank, int size, uint64_t job, const std::string &address)
{
    hd_place place = HD_EMPTY(hd_place);

    place.launcher = "a test";
    place.rank = place.local_rank = rank;
    place.nranks = place.local_size = size;
    place.job = job;
    snprintf(place.address, sizeof(place.address), "%s", address.c_str());
    return place;
}

// Forks a process for each place, and waits for all of them.
std::vector<Ended> RunPlaces(const std::vector<hd_place> &places,
                             const PlaceFunction &function)
{
    size_t bytes = places.size() * sizeof(Ended);
    Ended *shared =
        static_cast<Ended *>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                  MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    std::vector<pid_t> pids;
    std::vector<Ended> result;

    for (size_t i = 0; i < places.size(); i++) {
        pid_t pid = fork();

        if (pid == 0) {
            hd_diag *diag = hd_diag_create();

            alarm(30);
            signal(SIGPIPE, SIG_DFL);
            shared[i].status = function(places[i], diag);
            snprintf(shared[i].text, sizeof(shared[i].text), "%s",
                     hd_diag_text(diag));
            _exit(shared[i].status);
        }
        pids.push_back(pid);
    }
    for (size_t i = 0; i < places.size(); i++) {
        waitpid(pids[i], &shared[i].how, 0);
        result.push_back(shared[i]);
    }
    munmap(shared, bytes);
    return result;
}

// A port that was free a moment ago.
std::string FreeAddress()
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = sockaddr_in();
    socklen_t bytes = sizeof(address);

    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr *>(&address), bytes), 0);
    EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr *>(&address), &bytes),
              0);
    close(fd);
    return "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
}

std::vector<hd_place> Places(int size, const std::string &address)
{
    std::vector<hd_place> places;
    uint64_t job = NewJob();

    for (int rank = 0; rank < size; rank++)
        places.push_back(PlaceOf(rank, size, job, address));
    return places;
}

hd_status GatherSizes(const hd_place &place, hd_diag *diag)
{
    hd_boot *boot = nullptr;
    size_t n = static_cast<size_t>(place.nranks);

    HD_TRY(hd_boot_connect(&place, 10, diag, &boot));
    for (size_t bytes :
         {size_t{1}, size_t{0}, size_t{100}, size_t{1} << 20, size_t{7}}) {
        const hd_oob *oob = hd_boot_oob(boot);
        std::vector<char> mine(bytes), all(bytes * n, 0x7f);

        RANK_EXPECT(oob->rank == place.rank && oob->nranks == place.nranks);
        for (size_t i = 0; i < bytes; i++)
            mine[i] = static_cast<char>(i * 7 + size_t(place.rank));
        HD_TRY(oob->allgather(oob->context, mine.data(), bytes, all.data()));
        for (size_t i = 0; i < bytes * n; i++)
            RANK_EXPECT(all[i] == static_cast<char>(i % bytes * 7 + i / bytes));
    }
    hd_boot_destroy(boot);
    return HD_OK;
}

void ExpectAllFine(const std::vector<Ended> &ended)
{
    for (const Ended &end : ended)
        EXPECT_EQ(end.how, 0) << end.text;
}

TEST(Boot, EveryRankGathersFromEveryOther)
{
    for (int size : {1, 2, 3, 5}) {
        ExpectAllFine(RunPlaces(Places(size, ""), GatherSizes));
        ExpectAllFine(RunPlaces(Places(size, FreeAddress()), GatherSizes));
    }
}

// A place that a caller has filled by itself.
TEST(Boot, APlaceNeedsNoLauncherButAnAddressThatEnds)
{
    for (bool ends : {true, false}) {
        hd_place place = PlaceOf(0, 2, NewJob(), "");
        hd_diag *diag = hd_diag_create();
        hd_group *group = nullptr;
        std::string text;

        place.launcher = nullptr;
        place.local_size = 1;
        if (!ends)
            memset(place.address, 'a', sizeof(place.address));
        EXPECT_EQ(hd_group_join(&place, 0.2, diag, &group), HD_ERROR_ARGUMENT);
        text = hd_diag_text(diag);
        EXPECT_NE(text.find(ends ? "this place has 2 ranks"
                                 : "the address of rank 0 has no NUL in its "
                                   "272 bytes"),
                  std::string::npos)
            << text;
        hd_diag_destroy(diag);
    }
}

TEST(Boot, TheSameAddressServesAgainAtOnce)
{
    for (const std::string &address : {std::string(), FreeAddress()}) {
        std::vector<hd_place> places = Places(3, address);

        for (int i = 0; i < 3; i++)
            ExpectAllFine(RunPlaces(places, GatherSizes));
    }
}

TEST(Boot, RanksMayComeInAnyOrder)
{
    for (int late : {0, 2}) {
        auto function = [late](const hd_place &place, hd_diag *diag) {
            if (place.rank == late)
                SleepFor(0.3);
            return GatherSizes(place, diag);
        };

        ExpectAllFine(RunPlaces(Places(3, FreeAddress()), function));
    }
}

TEST(Boot, ListensWhereANameIsGiven)
{
    std::string port = FreeAddress().substr(10);

    ExpectAllFine(RunPlaces(Places(2, "localhost:" + port), GatherSizes));
}

// In this process alone, and only if the system lets us.
bool HideHostsFile()
{
    return unshare(CLONE_NEWNS) == 0 &&
           mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
           mount("/dev/null", "/etc/hosts", nullptr, MS_BIND, nullptr) == 0;
}

TEST(Boot, LocalhostNeedsNoHostsFile)
{
    std::string port = FreeAddress().substr(10);
    pid_t child = fork();
    int how = 0;

    if (child == 0)
        _exit(HideHostsFile() ? 0 : 1);
    waitpid(child, &how, 0);
    if (how != 0)
        GTEST_SKIP() << "needs root: /etc/hosts is hidden in a namespace";
    ExpectAllFine(RunPlaces(Places(2, "localhost:" + port),
                            [](const hd_place &place, hd_diag *diag) {
                                RANK_EXPECT(HideHostsFile());
                                return GatherSizes(place, diag);
                            }));
}

hd_status Group(const hd_place &place, hd_diag *diag)
{
    return hd_join(
        &place, 10,
        [](void *context, hd_group *group) {
            const hd_place *at = static_cast<const hd_place *>(context);
            int all[8] = {-1, -1, -1, -1, -1, -1, -1, -1};

            RANK_EXPECT(hd_group_size(group) == at->nranks);
            HD_TRY(hd_group_allgather(group, &at->rank, sizeof(int), all,
                                      nullptr));
            for (int i = 0; i < at->nranks; i++)
                RANK_EXPECT(all[i] == i);
            return HD_OK;
        },
        const_cast<hd_place *>(&place), diag);
}

TEST(Boot, JoinedRanksAreAGroup)
{
    for (int size : {1, 2, 5})
        ExpectAllFine(RunPlaces(Places(size, ""), Group));
    // Where nobody says that they are on one host, they find out.
    for (int size : {1, 3}) {
        std::vector<hd_place> places =
            Places(size, size > 1 ? FreeAddress() : "");

        for (hd_place &place : places) {
            place.local_rank = -1;
            place.local_size = 0;
        }
        ExpectAllFine(RunPlaces(places, Group));
    }
}

// As hd_join does, without giving up control.
TEST(Boot, AGroupMayBeJoinedAndKept)
{
    for (int size : {1, 3})
        ExpectAllFine(RunPlaces(
            Places(size, ""), [](const hd_place &place, hd_diag *diag) {
                hd_group *group = nullptr;
                int all[3] = {-1, -1, -1};

                HD_TRY(hd_group_join(&place, 10, diag, &group));
                HD_TRY(hd_group_allgather(group, &place.rank, sizeof(int), all,
                                          diag));
                for (int i = 0; i < place.nranks; i++)
                    RANK_EXPECT(all[i] == i);
                hd_group_destroy(group);
                return HD_OK;
            }));
}

TEST(Boot, ARankThatFailsTellsTheOthersWhy)
{
    auto function = [](const hd_place &place, hd_diag *diag) {
        return hd_join(
            &place, 10,
            [](void *, hd_group *group) {
                hd_diag *words = hd_diag_create();
                hd_status status = HD_ERROR_INVALID;

                if (hd_group_rank(group) != 1)
                    status =
                        hd_group_allgather(group, nullptr, 0, nullptr, words);
                if (hd_group_rank(group) != 1 &&
                    strstr(hd_diag_text(words), "rank 1 failed: invalid") ==
                        nullptr) {
                    fputs(hd_diag_text(words), stderr);
                    status = HD_ERROR_SYSTEM;
                }
                hd_diag_destroy(words);
                return status;
            },
            nullptr, diag);
    };
    std::vector<Ended> ended = RunPlaces(Places(3, ""), function);

    EXPECT_EQ(ended[0].status, HD_ERROR_PEER);
    EXPECT_EQ(ended[1].status, HD_ERROR_INVALID);
    EXPECT_EQ(ended[2].status, HD_ERROR_PEER);
}

// Two ranks on each of two hosts, as a launcher numbers them.
std::vector<hd_place> PlacesOnTwoHosts()
{
    std::vector<hd_place> places = Places(4, FreeAddress());

    for (hd_place &place : places) {
        place.local_rank = place.rank % 2;
        place.local_size = 2;
    }
    return places;
}

TEST(Boot, JoinedRanksOfSeveralHostsAreAGroup)
{
    auto function = [](const hd_place &place, hd_diag *diag) {
        setenv("HEDDLE_HOST", place.rank < 2 ? "a" : "b", 1);
        return Group(place, diag);
    };

    ExpectAllFine(RunPlaces(PlacesOnTwoHosts(), function));
}

TEST(Boot, ARankOfAnotherHostThatNeverComesIsNamed)
{
    std::vector<hd_place> places = PlacesOnTwoHosts();

    places.pop_back();
    for (const Ended &end :
         RunPlaces(places, [](const hd_place &place, hd_diag *diag) {
             setenv("HEDDLE_HOST", place.rank < 2 ? "a" : "b", 1);
             return hd_join(
                 &place, 1, [](void *, hd_group *) { return HD_OK; }, nullptr,
                 diag);
         })) {
        EXPECT_EQ(end.status, HD_ERROR_TIMEOUT);
        EXPECT_NE(strstr(end.text, "rank 3 of 4 did not come to rank 0"),
                  nullptr)
            << end.text;
    }
}

TEST(Boot, AnAddressIsAskedForWhereHostsAreSeveralOrUnknown)
{
    for (int local_size : {0, 2}) {
        hd_place place = PlaceOf(1, 4, NewJob(), "");
        hd_diag *diag = hd_diag_create();
        hd_boot *boot = nullptr;

        place.local_size = local_size;
        EXPECT_EQ(hd_boot_connect(&place, 10, diag, &boot), HD_ERROR_ARGUMENT);
        EXPECT_NE(strstr(hd_diag_text(diag), "HEDDLE_ADDR"), nullptr);
        hd_diag_destroy(diag);
    }
}

// ------------------------------------------------------------ trouble

hd_status Connect(const hd_place &place, hd_diag *diag, double timeout)
{
    hd_boot *boot = nullptr;
    hd_status status = hd_boot_connect(&place, timeout, diag, &boot);

    hd_boot_destroy(boot);
    return status;
}

// Lets processes wait until another one has come to some point.
class Signal
{
  public:
    Signal()
    {
        EXPECT_EQ(pipe(end_), 0);
    }

    ~Signal()
    {
        close(end_[0]);
        close(end_[1]);
    }

    void Give() const
    {
        EXPECT_EQ(write(end_[1], "", 1), 1);
    }

    void Await() const
    {
        char got;

        EXPECT_EQ(read(end_[0], &got, 1), 1);
    }

  private:
    int end_[2];
};

void ExpectWords(const Ended &end, hd_status status, const char *words)
{
    EXPECT_EQ(end.status, status) << end.text;
    EXPECT_NE(strstr(end.text, words), nullptr) << end.text;
}

TEST(Boot, ARankThatNeverComesIsNamedOnAllRanks)
{
    for (const std::string &address : {std::string(), FreeAddress()}) {
        std::vector<hd_place> places = Places(4, address);
        auto start = Clock::now();
        std::vector<Ended> ended;
        std::chrono::duration<double> took;

        places.erase(places.begin() + 2);
        ended = RunPlaces(places, [](const hd_place &place, hd_diag *diag) {
            return Connect(place, diag, 3);
        });
        took = Clock::now() - start;
        for (const Ended &end : ended)
            ExpectWords(end, HD_ERROR_TIMEOUT,
                        "rank 2 of 4 did not come to rank 0");
        EXPECT_LT(took.count(), 30);
    }
}

// All that are missing are named or counted.
TEST(Boot, RanksThatNeverComeAreNamedAsFarAsThereIsRoom)
{
    const int kRanks = 200;
    std::vector<hd_place> places = Places(kRanks, FreeAddress());

    places.resize(1);
    Ended end = RunPlaces(places, [](const hd_place &place, hd_diag *diag) {
        return Connect(place, diag, 0.2);
    })[0];
    const char *list = strstr(end.text, "ranks 1, 2, 3, ");
    int named = 3, more = 0, length = 0;

    ASSERT_NE(list, nullptr) << end.text;
    list += strlen("ranks 1, 2, 3");
    while (sscanf(list, ", %*d%n", &length) == 0 && length > 0) {
        list += length;
        length = 0;
        named++;
    }
    EXPECT_EQ(sscanf(list, " and %d more of 200 did not come", &more), 1)
        << end.text;
    EXPECT_EQ(named + more, kRanks - 1) << end.text;
}

TEST(Boot, WithoutRankZeroTheOthersSaySo)
{
    for (const std::string &address : {std::string(), FreeAddress()}) {
        std::vector<hd_place> places = Places(3, address);
        std::vector<Ended> ended;

        places.erase(places.begin());
        ended = RunPlaces(places, [](const hd_place &place, hd_diag *diag) {
            return Connect(place, diag, 0.5);
        });
        for (const Ended &end : ended) {
            ExpectWords(end, HD_ERROR_TIMEOUT, "found no rank 0");
            ExpectWords(end, HD_ERROR_TIMEOUT, "Connection refused");
        }
    }
}

// From now on this process may open so many more.
void LimitDescriptors(int more)
{
    rlimit limit{};
    int end = 0;

    for (; more > 0; end++)
        more -= fcntl(end, F_GETFD) < 0;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = rlim_t(end);
    setrlimit(RLIMIT_NOFILE, &limit);
}

// Rank 0 has room for callers that it may not have at once.
TEST(Boot, AFewRanksNeedAFewDescriptors)
{
    ExpectAllFine(
        RunPlaces(Places(3, ""), [](const hd_place &place, hd_diag *diag) {
            LimitDescriptors(12);
            return Group(place, diag);
        }));
}

int CallAddress(const std::string &text);

// More strangers than rank 0 has descriptors for, who say nothing.
TEST(Boot, SilentStrangersGiveWayWhereDescriptorsAreFew)
{
    std::string address = FreeAddress();

    ExpectAllFine(RunPlaces(Places(2, address),
                            [&](const hd_place &place, hd_diag *diag) {
                                if (place.rank == 0)
                                    LimitDescriptors(4);
                                for (int i = 0; place.rank == 1 && i < 20; i++)
                                    RANK_EXPECT(CallAddress(address) >= 0);
                                return GatherSizes(place, diag);
                            }));
}

TEST(Boot, ARankThatRankZeroHasNoDescriptorForIsNotSaidToBeMissing)
{
    std::vector<Ended> ended =
        RunPlaces(Places(2, ""), [](const hd_place &place, hd_diag *diag) {
            if (place.rank == 0)
                LimitDescriptors(1);
            return Connect(place, diag, 1);
        });

    ExpectWords(ended[0], HD_ERROR_SYSTEM,
                "rank 0 of 2 cannot accept another rank: Too many open files "
                "(ulimit -n is ");
    EXPECT_EQ(ended[1].status, HD_ERROR_TIMEOUT);
}

// After they have gathered, and before they have lines of their own.
TEST(Boot, RanksHearWhyTheyCannotBeConnected)
{
    std::vector<Ended> ended =
        RunPlaces(Places(3, ""), [](const hd_place &place, hd_diag *diag) {
            if (place.rank == 0)
                LimitDescriptors(3);
            return hd_join(
                &place, 3, [](void *, hd_group *) { return HD_OK; }, nullptr,
                diag);
        });

    for (const Ended &end : ended) {
        EXPECT_NE(end.status, HD_OK);
        EXPECT_NE(
            std::string(end.text).find("rank 0 cannot accept another rank: "
                                       "Too many open files"),
            std::string::npos)
            << end.text;
    }
}

// Comes to rank 0, is heard, and dies.
[[noreturn]] void ComeAndDie(const hd_place &place)
{
    hd_hello hello = {place.job, static_cast<uint32_t>(place.nranks), 0};
    hd_wire wire = hd_wire();
    char why[HD_WHY_BYTES];

    while ((wire.fd = hd_address_call(&place, INT64_MAX, why)) < 0)
        usleep(10000);
    EXPECT_EQ(hd_wire_call(wire.fd, place.rank, hello, INT64_MAX), HD_OK);
    while (hd_wire_take(&wire, nullptr, 0, 0) == HD_ERROR_TIMEOUT)
        hd_wait_for(wire.fd, POLLIN, INT64_MAX);
    kill(getpid(), SIGKILL);
    abort();
}

// As rank 0, hears two ranks and dies.
[[noreturn]] void HearAndDie(const hd_place &place)
{
    hd_wire wire[2] = {hd_wire(), hd_wire()};
    int listener = -1;

    EXPECT_EQ(hd_address_listen(&place, INT64_MAX, nullptr, &listener), HD_OK);
    for (hd_wire &each : wire) {
        do
            hd_wait_for(listener, POLLIN, INT64_MAX);
        while ((each.fd = hd_address_accept(listener)) < 0);
        while (hd_wire_take(&each, nullptr, 0, 0) == HD_ERROR_TIMEOUT)
            hd_wait_for(each.fd, POLLIN, INT64_MAX);
        EXPECT_EQ(hd_wire_answer(each.fd, 0, INT64_MAX), HD_OK);
    }
    kill(getpid(), SIGKILL);
    abort();
}

TEST(Boot, ARankThatDiesWhileOthersAreAwaitedIsNamed)
{
    for (int dying : {0, 1}) {
        std::vector<hd_place> places = Places(4, FreeAddress());
        std::vector<Ended> ended;

        // One is always awaited; of those who come, all have when one dies.
        places.resize(dying == 0 ? 3 : 2);
        ended =
            RunPlaces(places, [dying](const hd_place &place, hd_diag *diag) {
                if (place.rank == dying && dying == 0)
                    HearAndDie(place);
                if (place.rank == dying)
                    ComeAndDie(place);
                return Connect(place, diag, 20);
            });
        for (int i = 0; i < static_cast<int>(ended.size()); i++) {
            if (i == dying)
                EXPECT_EQ(WTERMSIG(ended[size_t(i)].how), SIGKILL);
            else
                ExpectWords(ended[size_t(i)], HD_ERROR_PEER,
                            dying == 0 ? "rank 0 died" : "rank 1 died");
        }
    }
}

TEST(Boot, ARankThatDiesInAGatherIsNamed)
{
    for (int dying : {0, 2}) {
        auto function = [dying](const hd_place &place, hd_diag *diag) {
            hd_boot *boot = nullptr;
            char all[3], mine = 'm';
            hd_status status = hd_boot_connect(&place, 10, diag, &boot);

            if (status != HD_OK)
                return status;
            const hd_oob *oob = hd_boot_oob(boot);
            status = oob->allgather(oob->context, &mine, 1, all);
            if (status == HD_OK && place.rank == dying)
                raise(SIGKILL);
            if (status == HD_OK)
                status = oob->allgather(oob->context, &mine, 1, all);
            hd_boot_destroy(boot);
            return status;
        };
        std::vector<Ended> ended = RunPlaces(Places(3, ""), function);

        for (int i = 0; i < 3; i++) {
            if (i != dying)
                ExpectWords(ended[size_t(i)], HD_ERROR_PEER,
                            dying == 0 ? "rank 0 died" : "rank 2 died");
        }
    }
}

TEST(Boot, ARankThatDoesNotGatherIsNamedInTime)
{
    for (int idle : {0, 1}) {
        auto function = [idle](const hd_place &place, hd_diag *diag) {
            hd_boot *boot = nullptr;
            char all[3], mine = 'm';
            hd_status status = hd_boot_connect(&place, 3, diag, &boot);
            const hd_oob *oob;

            if (status != HD_OK)
                return status;
            oob = hd_boot_oob(boot);
            if (place.rank == idle)
                SleepFor(7.5); // beyond their patience
            else
                status = oob->allgather(oob->context, &mine, 1, all);
            hd_boot_destroy(boot);
            return status;
        };
        std::vector<Ended> ended = RunPlaces(Places(3, ""), function);

        for (int i = 0; i < 3; i++) {
            if (i != idle)
                ExpectWords(ended[size_t(i)], HD_ERROR_TIMEOUT,
                            idle == 0 ? "waits for rank 0"
                                      : "rank 0 waits for rank 1 in");
        }
    }
}

TEST(Boot, RanksThatGatherOtherSizesAreToldSo)
{
    auto function = [](const hd_place &place, hd_diag *diag) {
        hd_boot *boot = nullptr;
        char all[64] = {0}, mine[16] = {0};
        hd_status status = hd_boot_connect(&place, 10, diag, &boot);

        if (status != HD_OK)
            return status;
        const hd_oob *oob = hd_boot_oob(boot);
        status =
            oob->allgather(oob->context, mine, place.rank == 1 ? 16 : 8, all);
        hd_boot_destroy(boot);
        return status;
    };

    for (const Ended &end : RunPlaces(Places(3, ""), function))
        ExpectWords(end, HD_ERROR_ARGUMENT, "rank 1 passes 16 bytes");
}

TEST(Boot, TwoProcessesOfOneRankAreTold)
{
    std::vector<hd_place> places = Places(3, "");
    std::vector<Ended> ended;
    Signal told;
    int fine = 0, refused = 0;

    places.push_back(places[1]);
    ended = RunPlaces(places, [&](const hd_place &place, hd_diag *diag) {
        hd_status status;

        if (place.rank == 2)
            told.Await();
        status = Connect(place, diag, 10);
        if (status == HD_ERROR_ARGUMENT)
            told.Give();
        return status;
    });
    for (size_t i : {size_t{1}, size_t{3}}) {
        fine += ended[i].status == HD_OK;
        refused += ended[i].status == HD_ERROR_ARGUMENT &&
                   strstr(ended[i].text, "there is a rank 1 already");
    }
    EXPECT_EQ(fine, 1);
    EXPECT_EQ(refused, 1);
    EXPECT_EQ(ended[0].status, HD_OK);
    EXPECT_EQ(ended[2].status, HD_OK);
}

TEST(Boot, ARankOfAnotherSizeIsRefused)
{
    std::vector<hd_place> places = Places(2, "");
    std::vector<Ended> ended;
    Signal told;

    places.push_back(places[1]);
    places[2].nranks = places[2].local_size = 3;
    ended = RunPlaces(places, [&](const hd_place &place, hd_diag *diag) {
        hd_status status;

        if (place.rank == 1 && place.nranks == 2)
            told.Await();
        status = Connect(place, diag, 10);
        if (place.nranks == 3)
            told.Give();
        return status;
    });
    EXPECT_EQ(ended[0].status, HD_OK) << ended[0].text;
    EXPECT_EQ(ended[1].status, HD_OK) << ended[1].text;
    ExpectWords(ended[2], HD_ERROR_ARGUMENT,
                "started as one of 3, and rank 0 as");
}

TEST(Boot, AnotherJobsRankIsNoneOfOurs)
{
    std::vector<hd_place> places = Places(2, FreeAddress());
    std::vector<Ended> ended;
    Signal tried;

    places.push_back(places[1]);
    places[2].job++;
    ended = RunPlaces(places, [&](const hd_place &place, hd_diag *diag) {
        bool ours = place.job == places[0].job;
        hd_status status;

        if (place.rank == 1 && ours)
            tried.Await();
        status = Connect(place, diag, ours ? 10 : 1);
        if (!ours)
            tried.Give();
        return status;
    });
    EXPECT_EQ(ended[0].status, HD_OK) << ended[0].text;
    EXPECT_EQ(ended[1].status, HD_OK) << ended[1].text;
    ExpectWords(ended[2], HD_ERROR_TIMEOUT, "found no rank 0");
}

// Calls whatever listens there, until somebody does.
int CallAddress(const std::string &text)
{
    sockaddr_in address = sockaddr_in();
    int fd = -1;

    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port =
        htons(static_cast<uint16_t>(atoi(text.c_str() + text.find(':') + 1)));
    for (int i = 0; i < 500; i++) {
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(fd, reinterpret_cast<sockaddr *>(&address),
                    sizeof(address)) == 0)
            return fd;
        close(fd);
        usleep(10000);
    }
    return -1;
}

TEST(Boot, StrangersAreHungUpOnAndKeepNobodyOut)
{
    std::string address = FreeAddress();
    std::vector<hd_place> places = Places(3, address);
    std::vector<Ended> ended;
    unsigned seed = Seed();

    ended = RunPlaces(places, [&](const hd_place &place, hd_diag *diag) {
        if (place.rank == 1) {
            std::mt19937_64 random(seed);

            // More silent ones than have room, and as many that babble.
            for (int i = 0; i < 100; i++) {
                int silent = CallAddress(address), loud = CallAddress(address);
                char garbage[1000];

                for (char &c : garbage)
                    c = static_cast<char>(random());
                RANK_EXPECT(silent >= 0 && loud >= 0);
                send(loud, garbage, 1 + random() % sizeof(garbage),
                     MSG_NOSIGNAL);
            }
        }
        return GatherSizes(place, diag);
    });
    ExpectAllFine(ended);
}

// Whether rank 0 answers these bytes. It has all of them when they end.
bool Answers(const std::string &address, const void *bytes, size_t n)
{
    int fd = CallAddress(address);
    char answer;
    bool answers = send(fd, bytes, n, MSG_NOSIGNAL) == ssize_t(n) &&
                   shutdown(fd, SHUT_WR) == 0 && recv(fd, &answer, 1, 0) > 0;

    close(fd);
    return answers;
}

struct Hello {
    hd_frame frame;
    hd_hello hello;

    void Sum()
    {
        frame.checksum = XXH3_64bits_withSeed(
            &hello, sizeof(hello),
            XXH3_64bits(&frame, offsetof(hd_frame, checksum)));
    }
};

// As a rank would send it.
hd_status MakeHello(const hd_place &place, Hello *out)
{
    int pair[2];

    *out = Hello();
    RANK_EXPECT(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    out->hello.secret = place.job;
    out->hello.size = static_cast<uint32_t>(place.nranks);
    HD_TRY(hd_wire_call(pair[0], place.rank, out->hello, INT64_MAX));
    RANK_EXPECT(recv(pair[1], out, sizeof(*out), MSG_WAITALL) ==
                ssize_t(sizeof(*out)));
    close(pair[0]);
    close(pair[1]);
    return HD_OK;
}

TEST(Boot, AHelloThatDoesNotFitIsNotHeard)
{
    std::string address = FreeAddress();
    std::vector<hd_place> places = Places(2, address);
    std::vector<Ended> ended =
        RunPlaces(places, [&](const hd_place &place, hd_diag *diag) {
            Hello hello;
            char *bytes = reinterpret_cast<char *>(&hello);

            if (place.rank == 0)
                return GatherSizes(place, diag);
            HD_TRY(MakeHello(place, &hello));
            // Changed on its way.
            for (size_t i = 0; i < sizeof(hello); i += 3) {
                bytes[i] ^= 0x10;
                RANK_EXPECT(!Answers(address, bytes, sizeof(hello)));
                bytes[i] ^= 0x10;
            }
            // Meant otherwise.
            for (uint32_t *field :
                 {&hello.frame.magic, &hello.frame.kind, &hello.hello.wanted}) {
                ++*field;
                hello.Sum();
                RANK_EXPECT(!Answers(address, bytes, sizeof(hello)));
                --*field;
            }
            hello.hello.secret++;
            hello.Sum();
            RANK_EXPECT(!Answers(address, bytes, sizeof(hello)));
            hello.hello.secret--;
            // One who is no rank is told so.
            for (uint32_t rank : {0u, 2u, ~0u}) {
                hello.frame.rank = rank;
                hello.Sum();
                RANK_EXPECT(Answers(address, bytes, sizeof(hello)));
            }
            return GatherSizes(place, diag);
        });

    ExpectAllFine(ended);
}

// One that falls silent after its first answer has said all the same what it
// is: the deadline, which may cut any call short, does not unsay it.
TEST(Boot, SomethingElseThatListensThereIsNotTakenForRankZero)
{
    for (int answers : {0, 1, INT_MAX}) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        sockaddr_in address = sockaddr_in();
        socklen_t bytes = sizeof(address);
        std::vector<hd_place> places;
        std::vector<Ended> ended;

        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr *>(&address), bytes), 0);
        ASSERT_EQ(
            getsockname(fd, reinterpret_cast<sockaddr *>(&address), &bytes), 0);
        ASSERT_EQ(listen(fd, 100), 0);
        pid_t server = fork();

        if (server == 0) {
            alarm(30);
            for (int i = 0;; i++) {
                int caller =
                    i < answers ? accept(fd, nullptr, nullptr) : pause();

                send(caller, "HTTP/1.1 400 Bad Request\r\n\r\n", 28,
                     MSG_NOSIGNAL);
                close(caller);
            }
        }
        places =
            Places(2, "127.0.0.1:" + std::to_string(ntohs(address.sin_port)));
        places.erase(places.begin());
        ended = RunPlaces(places, [](const hd_place &place, hd_diag *diag) {
            return Connect(place, diag, 0.5);
        });
        ExpectWords(ended[0], HD_ERROR_TIMEOUT,
                    answers > 0 ? "another program, listens there"
                                : "says nothing");
        kill(server, SIGKILL);
        waitpid(server, nullptr, 0);
        close(fd);
    }
}

TEST(Boot, AnAddressInUseOrElsewhereIsReported)
{
    hd_diag *diag = hd_diag_create();
    hd_boot *boot = nullptr;
    hd_place place = PlaceOf(0, 2, NewJob(), "192.0.2.1:4711");
    hd_place other = HD_EMPTY(hd_place);
    int fd, port;

    EXPECT_EQ(hd_boot_connect(&place, 5, diag, &boot), HD_ERROR_SYSTEM);
    EXPECT_NE(strstr(hd_diag_text(diag),
                     "rank 0 cannot listen at 192.0.2.1:4711: Cannot assign"),
              nullptr)
        << hd_diag_text(diag);
    hd_diag_clear(diag);

    other = PlaceOf(0, 2, NewJob(), FreeAddress());
    port = atoi(strchr(other.address, ':') + 1);
    ASSERT_EQ(hd_address_listen(&other, INT64_MAX, diag, &fd), HD_OK);
    snprintf(place.address, sizeof(place.address), "localhost:%d", port);
    EXPECT_EQ(hd_boot_connect(&place, 0.3, diag, &boot), HD_ERROR_SYSTEM);
    EXPECT_NE(strstr(hd_diag_text(diag), "Address already in use"), nullptr)
        << hd_diag_text(diag);
    close(fd);
    hd_diag_destroy(diag);
}

TEST(Boot, AnAddressThatIsAboutToBeFreeIsAwaited)
{
    for (const std::string &address : {std::string(), FreeAddress()}) {
        hd_place place = PlaceOf(0, 2, NewJob(), address);
        int before = -1, after = -1;

        ASSERT_EQ(hd_address_listen(&place, INT64_MAX, nullptr, &before),
                  HD_OK);
        std::thread leaving([before] {
            SleepFor(0.1);
            close(before);
        });
        EXPECT_EQ(hd_address_listen(&place, INT64_MAX, nullptr, &after), HD_OK);
        leaving.join();
        close(after);
    }
}

TEST(Boot, NothingStaysOpen)
{
    std::vector<hd_place> places = Places(2, "");
    size_t before = OpenDescriptors();
    hd_boot *boot[2] = {nullptr, nullptr};
    std::thread other([&] {
        EXPECT_EQ(hd_boot_connect(&places[1], 10, nullptr, &boot[1]), HD_OK);
    });

    EXPECT_EQ(hd_boot_connect(&places[0], 10, nullptr, &boot[0]), HD_OK);
    other.join();
    EXPECT_EQ(OpenDescriptors(), before + 2);
    hd_boot_destroy(boot[0]);
    hd_boot_destroy(boot[1]);
    EXPECT_EQ(OpenDescriptors(), before);
    EXPECT_EQ(hd_boot_connect(&places[0], 0.1, nullptr, &boot[0]),
              HD_ERROR_TIMEOUT);
    EXPECT_EQ(OpenDescriptors(), before);
}

} // namespace

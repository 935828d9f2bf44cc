// Where a launcher has put this process. Each launcher says so in variables of
// its own, and each must say it whole: a set with a gap, a number that is none,
// or two sets that disagree are errors, since a rank that guesses wrong waits
// for others that never come.
//
// Launchers nest: Slurm starts one torchrun, mpirun daemon or hydra proxy a
// host, which starts the ranks, and these see both sets. The inner one counts.
// Slurm's is compared with it only where both may speak of the same processes.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <heddle/launch.h>

#include "base/diag.h"
#include "base/setting.h"
#include "base/sized.h"
#include "runtime/ranks/boot.h"
#include "runtime/ranks/host.h"

// From here on Slurm numbers steps of its own: the batch script, the shell of
// an allocation. They are no launch.
#define SLURM_OWN_STEPS 4294967280

enum { RANK, SIZE, LOCAL_RANK, LOCAL_SIZE, NNUMBERS };

// What one launcher's variables say. `name` is NULL for what it never says.
typedef struct hd_claim {
    const char *launcher;
    const char *name[NNUMBERS];
    int value[NNUMBERS]; // -1 where it is not said
    bool found;
} hd_claim;

enum { TORCHRUN, OPEN_MPI, PMI, SLURM, NCLAIMS }; // the first found counts

static bool is_set(const char *name)
{
    return hd_setting(name) != NULL;
}

// Digits and nothing else: what strtol takes besides is no launcher's.
static bool read_digits(const char *text, int64_t most, int64_t *out)
{
    int64_t value = 0;

    if (*text == '\0')
        return false;
    for (; *text != '\0'; text++) {
        if (*text < '0' || *text > '9')
            return false;
        value = value * 10 + (*text - '0');
        if (value > most)
            return false;
    }
    *out = value;
    return true;
}

static hd_status read_number(hd_diag *diag, const char *name, int low, int high,
                             int *out)
{
    int64_t value;

    if (!read_digits(hd_setting(name), high, &value) || value < low)
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "%s is '%.64s', which is not a number from %d to %d",
                       name, hd_setting(name), low, high);
    *out = (int)value;
    return HD_OK;
}

static hd_status report_gap(hd_diag *diag, const char *there, const char *gap)
{
    return hd_fail(diag, HD_ERROR_ARGUMENT,
                   "%s is '%.64s' and %s is not set: all of a launcher's "
                   "variables must be, or none",
                   there, hd_setting(there), gap);
}

static hd_status check_below(hd_diag *diag, const hd_claim *claim, int low,
                             int high, bool may_equal)
{
    int a = claim->value[low], b = claim->value[high];

    if (a < 0 || b < 0 || a < b || (may_equal && a == b))
        return HD_OK;
    return hd_fail(diag, HD_ERROR_ARGUMENT,
                   "%s is %d, which %s, %d, does not allow", claim->name[low],
                   a, claim->name[high], b);
}

// `needed` of the numbers must be there, and of the others all or none.
static hd_status read_claim(hd_diag *diag, hd_claim *claim, int needed,
                            const char *trigger)
{
    bool local = false;

    claim->found = true;
    for (int i = needed; i < NNUMBERS; i++)
        local |= claim->name[i] != NULL && is_set(claim->name[i]);
    for (int i = 0; i < NNUMBERS; i++) {
        bool size = i == SIZE || i == LOCAL_SIZE;

        if (claim->name[i] == NULL || (i >= needed && !local))
            continue;
        if (!is_set(claim->name[i]))
            return report_gap(diag, trigger, claim->name[i]);
        HD_TRY(read_number(diag, claim->name[i], size,
                           size ? HD_MAX_RANKS : HD_MAX_RANKS - 1,
                           &claim->value[i]));
    }
    HD_TRY(check_below(diag, claim, RANK, SIZE, false));
    HD_TRY(check_below(diag, claim, LOCAL_RANK, LOCAL_SIZE, false));
    HD_TRY(check_below(diag, claim, LOCAL_RANK, RANK, true));
    return check_below(diag, claim, LOCAL_SIZE, SIZE, true);
}

// The first of the names that is set, NULL if none is.
static const char *first_set(const char *const *name, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (is_set(name[i]))
            return name[i];
    }
    return NULL;
}

// Sizes alone are often left in a shell, and say nothing.
static hd_status read_torchrun(hd_diag *diag, hd_claim *claim)
{
    const char *const tell_tale[] = {"RANK", "LOCAL_RANK"};
    const char *trigger = first_set(tell_tale, 2);

    return trigger == NULL ? HD_OK : read_claim(diag, claim, NNUMBERS, trigger);
}

static hd_status read_open_mpi(hd_diag *diag, hd_claim *claim)
{
    const char *trigger = first_set(claim->name, NNUMBERS);

    return trigger == NULL ? HD_OK : read_claim(diag, claim, NNUMBERS, trigger);
}

static hd_status read_pmi(hd_diag *diag, hd_claim *claim)
{
    const char *trigger = first_set(claim->name, LOCAL_RANK);

    return trigger == NULL ? HD_OK
                           : read_claim(diag, claim, LOCAL_RANK, trigger);
}

// ------------------------------------------------------------- Slurm

static hd_status report_layout(hd_diag *diag, const hd_claim *claim,
                               const char *layout, int node)
{
    return hd_fail(diag, HD_ERROR_ARGUMENT,
                   "SLURM_STEP_TASKS_PER_NODE is '%.64s', which does not fit "
                   "SLURM_NODEID, %d, %s, %d, and %s, %d",
                   layout, node, claim->name[LOCAL_RANK],
                   claim->value[LOCAL_RANK], claim->name[SIZE],
                   claim->value[SIZE]);
}

// "2(x3),1": the tasks of each node, of which `node` has `here`.
static bool read_layout(const char *text, int64_t node, int *here, int *total)
{
    int64_t first = 0, sum = 0;

    *here = 0;
    while (first >= 0) {
        char *end;
        long tasks = strtol(text, &end, 10), times = 1;

        if (end == text || *text < '0' || *text > '9')
            return false;
        if (end[0] == '(' && end[1] == 'x' && end[2] >= '0' && end[2] <= '9') {
            times = strtol(end + 2, &end, 10);
            if (*end++ != ')')
                return false;
        }
        if (tasks > HD_MAX_RANKS || times > HD_MAX_RANKS)
            return false;
        if (node >= first && node < first + times)
            *here = (int)tasks;
        first += times;
        sum += tasks * times;
        if (sum > HD_MAX_RANKS || (*end != ',' && *end != '\0'))
            return false;
        if (*end == '\0')
            break;
        text = end + 1;
    }
    *total = (int)sum;
    return *here > 0;
}

// How many of the tasks are on this node; unknown if Slurm is too old to say.
static hd_status read_local_size(hd_diag *diag, hd_claim *claim)
{
    const char *layout = hd_setting("SLURM_STEP_TASKS_PER_NODE");
    const char *nodes = hd_setting("SLURM_STEP_NODELIST");
    int node = 0, total;

    if (layout != NULL && is_set("SLURM_NODEID")) {
        HD_TRY(read_number(diag, "SLURM_NODEID", 0, INT32_MAX, &node));
        if (!read_layout(layout, node, &claim->value[LOCAL_SIZE], &total) ||
            total != claim->value[SIZE] ||
            claim->value[LOCAL_RANK] >= claim->value[LOCAL_SIZE])
            return report_layout(diag, claim, layout, node);
    } else if (nodes != NULL && strpbrk(nodes, ",[") == NULL) {
        claim->value[LOCAL_SIZE] = claim->value[SIZE];
    }
    return HD_OK;
}

// An allocation alone sets most of the variables, a batch script even a rank.
static hd_status read_slurm(hd_diag *diag, hd_claim *claim)
{
    const char *const step = hd_setting("SLURM_STEP_ID");
    int64_t number;

    if (step == NULL || !is_set("SLURM_PROCID"))
        return HD_OK;
    if (!read_digits(step, UINT32_MAX, &number))
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "SLURM_STEP_ID is '%.64s', which is not a number from 0 "
                       "to %u",
                       step, UINT32_MAX);
    if (number >= SLURM_OWN_STEPS)
        return HD_OK;
    if (is_set("SLURM_STEP_NUM_TASKS")) // SLURM_NTASKS may be the allocation's
        claim->name[SIZE] = "SLURM_STEP_NUM_TASKS";
    if (!is_set("SLURM_JOB_ID"))
        return report_gap(diag, "SLURM_PROCID", "SLURM_JOB_ID");
    HD_TRY(read_claim(diag, claim, NNUMBERS, "SLURM_PROCID"));
    return read_local_size(diag, claim);
}

// ---------------------------------------------------------- together

static bool same_process(const hd_claim *a, const hd_claim *b)
{
    return a->value[RANK] == b->value[RANK] && a->value[SIZE] == b->value[SIZE];
}

static hd_status compare(hd_diag *diag, const hd_claim *a, const hd_claim *b)
{
    for (int i = 0; i < NNUMBERS; i++) {
        if (a->value[i] < 0 || b->value[i] < 0 || a->value[i] == b->value[i])
            continue;
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "%s has %s = %d and %s has %s = %d: unset those of the "
                       "launcher that did not start this process",
                       a->launcher, a->name[i] != NULL ? a->name[i] : "size",
                       a->value[i], b->launcher,
                       b->name[i] != NULL ? b->name[i] : "size", b->value[i]);
    }
    return HD_OK;
}

// Whether Slurm's tasks are launchers, of which `inner` is one's rank. torchrun
// numbers its hosts in an order of its own, so that even equal sizes say
// nothing; RANK without its run id comes from a script, and is one of Slurm's.
static bool slurm_is_outside(const hd_claim *inner, const hd_claim *slurm)
{
    if (strcmp(inner->launcher, "torchrun") == 0)
        return is_set("TORCHELASTIC_RUN_ID");
    return inner->value[SIZE] != slurm->value[SIZE];
}

static hd_status choose(hd_diag *diag, hd_claim *claim, const hd_claim **out)
{
    const hd_claim *inner = NULL;

    // srun passes for PMI as well.
    if (claim[SLURM].found && claim[PMI].found &&
        same_process(&claim[SLURM], &claim[PMI]))
        claim[PMI].found = false;
    for (int i = TORCHRUN; i < NCLAIMS; i++) {
        if (!claim[i].found)
            continue;
        if (inner == NULL)
            inner = &claim[i];
        else if (i != SLURM || !slurm_is_outside(inner, &claim[SLURM]))
            HD_TRY(compare(diag, inner, &claim[i]));
    }
    *out = inner;
    return HD_OK;
}

static uint64_t hash_text(const char *text, uint64_t seed)
{
    return XXH3_64bits_withSeed(text, strlen(text), seed);
}

static uint64_t hash_variables(uint64_t hash, const char *const *name, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char *value = hd_setting(name[i]);

        hash = hash_text(value != NULL ? value : "", hash);
    }
    return hash;
}

// Names the launch by what its launcher calls it. Where it says nothing, its
// ranks on one host are told from others by their parent.
static uint64_t hash_job(const hd_claim *claim)
{
    static const char *const torchrun[] = {"TORCHELASTIC_RUN_ID", "MASTER_ADDR",
                                           "MASTER_PORT",
                                           "TORCHELASTIC_RESTART_COUNT"};
    static const char *const open_mpi[] = {"PMIX_NAMESPACE",
                                           "OMPI_MCA_ess_base_jobid"};
    static const char *const slurm[] = {"SLURM_JOB_ID", "SLURM_STEP_ID"};
    uint64_t hash = hash_text(claim->launcher, 0);
    pid_t parent = getppid();

    if (strcmp(claim->launcher, "Slurm") == 0)
        return hash_variables(hash, slurm, 2);
    if (strcmp(claim->launcher, "torchrun") == 0 && is_set("MASTER_PORT"))
        return hash_variables(hash, torchrun, 4);
    if (strcmp(claim->launcher, "Open MPI") == 0 &&
        first_set(open_mpi, 2) != NULL)
        return hash_variables(hash, open_mpi, 2);
    if (claim->value[LOCAL_SIZE] != claim->value[SIZE])
        return hash;
    return XXH3_64bits_withSeed(&parent, sizeof parent, hash);
}

// ----------------------------------------------------------- address

static hd_status take_address(hd_diag *diag, const char *text, hd_place *place)
{
    char host[HD_HOST_BYTES], port[HD_PORT_BYTES];

    if (!hd_address_split(text, host, port))
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "HEDDLE_ADDR is '%.64s', which is not host:port: a host "
                       "of 1 to %d characters, an IPv6 address in [], and a "
                       "port from 1 to 65535",
                       text, HD_HOST_BYTES - 1);
    snprintf(place->address, sizeof place->address, "%s", text);
    return HD_OK;
}

// MASTER_PORT itself is torch's own. A port nearby, which depends on the job,
// is likely to be free and to pass where that one does.
static hd_status derive_address(hd_diag *diag, hd_place *place)
{
    const char *host = hd_setting("MASTER_ADDR");
    int port = 0;

    HD_TRY(read_number(diag, "MASTER_PORT", 1, 65535, &port));
    if (*host == '\0' || strlen(host) >= HD_HOST_BYTES)
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "MASTER_ADDR is '%.64s', which is not a host of 1 to %d "
                       "characters",
                       host, HD_HOST_BYTES - 1);
    port += 1 + (int)(place->job % 256);
    if (port > 65535)
        port -= 1024;
    snprintf(place->address, sizeof place->address,
             strchr(host, ':') != NULL ? "[%s]:%d" : "%s:%d", host, port);
    return HD_OK;
}

// On one host a Unix socket needs no port, and no stranger can reach it.
static hd_status find_address(hd_diag *diag, hd_place *place)
{
    const char *given = hd_setting("HEDDLE_ADDR");

    if (is_set("MASTER_ADDR") != is_set("MASTER_PORT"))
        return is_set("MASTER_ADDR")
                   ? report_gap(diag, "MASTER_ADDR", "MASTER_PORT")
                   : report_gap(diag, "MASTER_PORT", "MASTER_ADDR");
    if (given != NULL)
        return take_address(diag, given, place);
    if (place->local_size != place->nranks && is_set("MASTER_ADDR"))
        return derive_address(diag, place);
    return HD_OK;
}

static hd_status read_all(hd_diag *diag, hd_claim *claim)
{
    HD_TRY(read_torchrun(diag, &claim[TORCHRUN]));
    HD_TRY(read_open_mpi(diag, &claim[OPEN_MPI]));
    HD_TRY(read_pmi(diag, &claim[PMI]));
    return read_slurm(diag, &claim[SLURM]);
}

hd_status hd_place_find(hd_diag *diag, bool *found, hd_place *out)
{
    hd_claim claim[NCLAIMS] = {
        {"torchrun",
         {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
         {-1, -1, -1, -1},
         false},
        {"Open MPI",
         {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
          "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
         {-1, -1, -1, -1},
         false},
        {"PMI",
         {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
         {-1, -1, -1, -1},
         false},
        {"Slurm",
         {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", NULL},
         {-1, -1, -1, -1},
         false}};
    const hd_claim *mine;
    hd_place place = HD_EMPTY(hd_place);
    hd_host host; // a wrong one is better told before ranks wait

    HD_REQUIRE(diag, found);
    HD_REQUIRE(diag, out);
    HD_TRY(read_all(diag, claim));
    HD_TRY(choose(diag, claim, &mine));
    if (mine != NULL) {
        place.launcher = mine->launcher;
        place.rank = mine->value[RANK];
        place.nranks = mine->value[SIZE];
        place.local_rank = mine->value[LOCAL_RANK];
        place.local_size =
            mine->value[LOCAL_SIZE] > 0 ? mine->value[LOCAL_SIZE] : 0;
        place.job = hash_job(mine);
        HD_TRY(find_address(diag, &place));
        HD_TRY(hd_host_find(diag, &host));
        hd_sized_write(&place, sizeof place, out);
    }
    *found = mine != NULL;
    return HD_OK;
}

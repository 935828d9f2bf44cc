// Every variable of the environment that the library reads is read here, so
// that a caller may say without it what it would. What was said belongs to the
// process, as the environment does.
#include "base/setting.h"

#include <stdlib.h>
#include <string.h>

static const hd_setting_info settings[] = {
    {"HEDDLE_CACHE_DIR", "where kernels and tuned plans are kept; off: nowhere",
     false},
    {"HEDDLE_ATTENTION",
     "cudnn or generated: which of both does attention on cuda", false},
    {"HEDDLE_CHAOS", "delays every stream at random, with this seed", false},
    {"HEDDLE_SHOTS",
     "1 or 2: how often a small all_reduce on cuda goes over the links", false},
    {"HEDDLE_SHARED_DEVICE",
     "1: ranks that are threads of one process may have one CUDA device",
     false},
    {"HEDDLE_ADDR", "where rank 0 is found under a launcher", false},
    {"HEDDLE_HOST", "names the host that this rank is on", false},
    {"CUDA_VISIBLE_DEVICES", "the devices that CUDA shows, in their order",
     true},
    {"CUDA_DEVICE_MAX_CONNECTIONS", "hardware queues of a device", true},
    {"HEDDLE_CUBLASLT_LIB", NULL, false},
    {"HEDDLE_CUBLASMP_LIB", NULL, false},
    {"HEDDLE_CUDA_LIB", NULL, false},
    {"HEDDLE_CUDNN_LIB", NULL, false},
    {"HEDDLE_NCCL_LIB", NULL, false},
    {"HEDDLE_NVRTC_LIB", NULL, false},
    {"HEDDLE_NVSHMEM_LIB", NULL, false},
    {"HEDDLE_OPENBLAS_LIB", NULL, false},
    {"HOME", NULL, false},
    {"PATH", NULL, false},
    {"XDG_CACHE_HOME", NULL, false},
    {"LOCAL_RANK", NULL, false},
    {"LOCAL_WORLD_SIZE", NULL, false},
    {"MASTER_ADDR", NULL, false},
    {"MASTER_PORT", NULL, false},
    {"MPI_LOCALNRANKS", NULL, false},
    {"MPI_LOCALRANKID", NULL, false},
    {"OMPI_COMM_WORLD_LOCAL_RANK", NULL, false},
    {"OMPI_COMM_WORLD_LOCAL_SIZE", NULL, false},
    {"OMPI_COMM_WORLD_RANK", NULL, false},
    {"OMPI_COMM_WORLD_SIZE", NULL, false},
    {"OMPI_MCA_ess_base_jobid", NULL, false},
    {"PMIX_NAMESPACE", NULL, false},
    {"PMI_RANK", NULL, false},
    {"PMI_SIZE", NULL, false},
    {"RANK", NULL, false},
    {"SLURM_JOB_ID", NULL, false},
    {"SLURM_LOCALID", NULL, false},
    {"SLURM_NODEID", NULL, false},
    {"SLURM_NTASKS", NULL, false},
    {"SLURM_PROCID", NULL, false},
    {"SLURM_STEP_ID", NULL, false},
    {"SLURM_STEP_NODELIST", NULL, false},
    {"SLURM_STEP_NUM_TASKS", NULL, false},
    {"SLURM_STEP_TASKS_PER_NODE", NULL, false},
    {"TORCHELASTIC_RESTART_COUNT", NULL, false},
    {"TORCHELASTIC_RUN_ID", NULL, false},
    {"WORLD_SIZE", NULL, false},
};
enum { NSETTINGS = sizeof settings / sizeof *settings };

static char *given[NSETTINGS]; // owned; NULL: as the environment says

const hd_setting_info *hd_setting_get(int i)
{
    return i < NSETTINGS ? &settings[i] : NULL;
}

const char *hd_setting_given(int i)
{
    return given[i];
}

void hd_setting_give(int i, char *value)
{
    free(given[i]);
    given[i] = value;
}

const char *hd_setting(const char *name)
{
    int i = 0;

    while (i < NSETTINGS && strcmp(settings[i].name, name) != 0)
        i++;
    return i < NSETTINGS && given[i] != NULL ? given[i] : getenv(name);
}

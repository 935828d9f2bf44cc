"""launcher.py KIND N COMMAND...: runs the command in N processes, in each with
the variables that a launcher of this kind sets. Prints how each of them ended,
and ends with the largest of their exit codes. A rank that is to be left out is
said behind KIND: slurm-1; {rank} in the command stands for each rank."""

import os
import subprocess
import sys


def variables(kind, rank, n):
    job = str(os.getpid())
    return {
        "torchrun": {
            "RANK": rank,
            "WORLD_SIZE": n,
            "LOCAL_RANK": rank,
            "LOCAL_WORLD_SIZE": n,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": 29500,
            "TORCHELASTIC_RUN_ID": job,
        },
        "openmpi": {
            "OMPI_COMM_WORLD_RANK": rank,
            "OMPI_COMM_WORLD_SIZE": n,
            "OMPI_COMM_WORLD_LOCAL_RANK": rank,
            "OMPI_COMM_WORLD_LOCAL_SIZE": n,
            "PMIX_NAMESPACE": job,
        },
        "slurm": {
            "SLURM_JOB_ID": job,
            "SLURM_STEP_ID": 0,
            "SLURM_PROCID": rank,
            "SLURM_NTASKS": n,
            "SLURM_LOCALID": rank,
            "SLURM_NODEID": 0,
            "SLURM_STEP_TASKS_PER_NODE": n,
            "SLURM_STEP_NODELIST": "here",
        },
        "pmi": {
            "PMI_RANK": rank,
            "PMI_SIZE": n,
            "MPI_LOCALRANKID": rank,
            "MPI_LOCALNRANKS": n,
        },
    }[kind]


kind, _, absent = sys.argv[1].partition("-")
n = int(sys.argv[2])
ranks = [rank for rank in range(n) if str(rank) != absent]
processes = []
for rank in ranks:
    extra = {k: str(v) for k, v in variables(kind, rank, n).items()}
    command = [word.replace("{rank}", str(rank)) for word in sys.argv[3:]]
    processes.append(subprocess.Popen(command, env={**os.environ, **extra}))
codes = [process.wait() for process in processes]
for rank, code in zip(ranks, codes):
    print(f"rank {rank} exits with {code}", flush=True)
sys.exit(max(codes))

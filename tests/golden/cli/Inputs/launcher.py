"""launcher.py KIND N COMMAND...: runs the command in N processes, in each with
the variables that a launcher of this kind sets. Prints how each of them ended,
and ends with the largest of their exit codes. A rank that is to be left out is
said after KIND: slurm-1; {rank} in the command stands for each rank. Ranks of
torchrun@2 are on two hosts, which are this one under two names."""

import os
import socket
import subprocess
import sys


def variables(kind, rank, n, hosts, port):
    job = str(os.getpid())
    local = n // hosts
    host = rank // local
    where = {"HEDDLE_HOST": f"host{host}", "HEDDLE_ADDR": f"127.0.0.1:{port}"}
    return (where if hosts > 1 else {}) | {
        "torchrun": {
            "RANK": rank,
            "WORLD_SIZE": n,
            "LOCAL_RANK": rank % local,
            "LOCAL_WORLD_SIZE": local,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": 29500,
            "TORCHELASTIC_RUN_ID": job,
        },
        "openmpi": {
            "OMPI_COMM_WORLD_RANK": rank,
            "OMPI_COMM_WORLD_SIZE": n,
            "OMPI_COMM_WORLD_LOCAL_RANK": rank % local,
            "OMPI_COMM_WORLD_LOCAL_SIZE": local,
            "PMIX_NAMESPACE": job,
        },
        "slurm": {
            "SLURM_JOB_ID": job,
            "SLURM_STEP_ID": 0,
            "SLURM_PROCID": rank,
            "SLURM_NTASKS": n,
            "SLURM_LOCALID": rank % local,
            "SLURM_NODEID": host,
            "SLURM_STEP_TASKS_PER_NODE": ",".join([str(local)] * hosts),
            "SLURM_STEP_NODELIST": "here" if hosts == 1 else f"n[1-{hosts}]",
        },
        "pmi": {
            "PMI_RANK": rank,
            "PMI_SIZE": n,
            "MPI_LOCALRANKID": rank % local,
            "MPI_LOCALNRANKS": local,
        },
    }[kind]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


kind, _, absent = sys.argv[1].partition("-")
kind, _, hosts = kind.partition("@")
hosts, port = int(hosts or 1), free_port()
n = int(sys.argv[2])
ranks = [rank for rank in range(n) if str(rank) != absent]
processes = []
for rank in ranks:
    extra = {k: str(v) for k, v in variables(kind, rank, n, hosts, port).items()}
    command = [word.replace("{rank}", str(rank)) for word in sys.argv[3:]]
    processes.append(subprocess.Popen(command, env={**os.environ, **extra}))
codes = [process.wait() for process in processes]
for rank, code in zip(ranks, codes):
    print(f"rank {rank} exits with {code}", flush=True)
sys.exit(max(codes))

"""stopped.py COMMAND...: runs the command as two ranks of Open MPI's, and stops
rank 1 as soon as the two are connected, when each has a thread for that. Prints
what rank 0 says, and how it ends by itself."""

import os
import signal
import subprocess
import sys
import time


def start(rank):
    variables = {
        "OMPI_COMM_WORLD_RANK": rank,
        "OMPI_COMM_WORLD_SIZE": 2,
        "OMPI_COMM_WORLD_LOCAL_RANK": rank,
        "OMPI_COMM_WORLD_LOCAL_SIZE": 2,
        "PMIX_NAMESPACE": os.getpid(),
    }
    extra = {k: str(v) for k, v in variables.items()}
    return subprocess.Popen(sys.argv[1:], env={**os.environ, **extra})


def threads(process):
    try:
        return len(os.listdir(f"/proc/{process.pid}/task"))
    except OSError:
        return 0


ranks = [start(0), start(1)]
deadline = time.monotonic() + 60
while min(threads(r) for r in ranks) < 2 and time.monotonic() < deadline:
    time.sleep(0.001)
ranks[1].send_signal(signal.SIGSTOP)
try:
    print("rank 0 exits with", ranks[0].wait(100))
except subprocess.TimeoutExpired:
    print("rank 0 hangs")
for r in ranks:
    r.kill()
    r.wait()

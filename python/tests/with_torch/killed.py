"""A peer is killed in the middle of training steps, N times, 2 or more: the others raise PeerError,
which names it, within 5 s, and end. With its launcher for the first, torchrun.

usage: killed.py N
"""
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

import heddle
import heddle.torch as ht
import torch
import torch.distributed as dist

LIMIT = 5.0  # s from the kill to the other's end


def train(rank, ranks):
    """Steps without an end, and what ends them."""
    w, v = (torch.randn(shape, requires_grad=True) for shape in ((16, 12), (12, 16)))
    x = torch.randn(8, 16)
    try:
        while True:
            y = ht.matmul_reduce_scatter(torch.relu(ht.all_gather_matmul(x, w)), v)
            y.sum().backward()
            yield
    except heddle.PeerError as error:
        return str(error)


def steps(rank, ranks, ready):
    found = train(rank, ranks)
    try:
        next(found)
        ready()
        while True:
            next(found)
    except StopIteration as end:
        return end.value


# --------------------------------------------------------------- forked, N times


def be_rank(rank, ranks, store, pipe):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(store, ranks), rank=rank, world_size=ranks)
    said = steps(rank, ranks, lambda: os.write(pipe, b"ready\n"))
    os.write(pipe, said.encode() + b"\n")


def fork_rank(rank, ranks, store):
    receive, send = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(receive)
            be_rank(rank, ranks, store, send)
            sys.exit(0)  # as a script ends, with atexit
        except SystemExit as end:
            code = end.code or 0
        finally:
            import atexit
            atexit._run_exitfuncs()
            os._exit(code)
    os.close(send)
    return pid, os.fdopen(receive)


def kill_one(draw):
    ranks = draw.choice((2, 3, 4))
    with tempfile.TemporaryDirectory() as folder:
        started = [fork_rank(r, ranks, os.path.join(folder, "store")) for r in range(ranks)]
        for _, pipe in started:
            assert pipe.readline() == "ready\n"
        time.sleep(draw.uniform(0, 0.02))
        victim = draw.randrange(ranks)
        begin = time.monotonic()
        os.kill(started[victim][0], signal.SIGKILL)
        words = [pipe.read() for _, pipe in started]
        codes = [os.waitpid(pid, 0)[1] for pid, _ in started]
        took = time.monotonic() - begin
    for rank in range(ranks):
        if rank != victim:
            assert codes[rank] == 0 and re.search(rf"rank {victim}\b", words[rank]), \
                (rank, victim, codes, words)
    assert took < LIMIT, took
    return took


# --------------------------------------------------------------- under torchrun


def under_torchrun():
    with tempfile.TemporaryDirectory() as folder:
        begin = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", __file__],
            env={**os.environ, "HEDDLE_TEST_FOLDER": folder}, text=True, timeout=120,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        with open(os.path.join(folder, "0"), encoding="utf-8") as file:
            said = file.read()
        assert done.returncode != 0 and "rank 1" in said, (done.stdout, said)
        print(f"under torchrun, {time.monotonic() - begin:.1f} s in all: {said}")


def be_torchruns(folder):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun ends the others when one died
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    dead = [lambda: None, lambda: os.kill(os.getpid(), signal.SIGKILL)][rank]
    said = steps(rank, 2, dead)
    with open(os.path.join(folder, str(rank)), "w", encoding="utf-8") as file:
        file.write(said)


def main():
    times = int(sys.argv[1])
    if times < 2:
        sys.exit(f"killed.py: {times} peers: one is torchrun's, and what the others take is told of 1 or more")
    seed = random.SystemRandom().getrandbits(32)
    print("seed", seed)
    draw = random.Random(seed)
    under_torchrun()
    took = sorted(kill_one(draw) for _ in range(times - 1))
    print(f"{times} peers killed: the others had ended {took[len(took) // 2] * 1e3:.0f} ms later "
          f"(median), {took[-1] * 1e3:.0f} ms (most)")


if "HEDDLE_TEST_FOLDER" in os.environ:
    be_torchruns(os.environ["HEDDLE_TEST_FOLDER"])
else:
    main()

"""Kills one of three ranks at a random moment of what they do together, again and
again: each other rank is told who died, in PeerError and soon, and has afterwards
the threads and descriptors that it had before.

usage: python killed.py [TIMES]
"""
import json
import os
import random
import signal
import sys
import time

import heddle
import numpy as np
from draw import SEED

RANKS = 3
BOUND = 10.0  # s: a machine of many tests is slow
GATHER = """heddle 2 tensor program gather mesh tp=3 in %x : f32[size tp @tp, COUNT]
out %y : f32[size tp, COUNT] { %y = set %x }"""
RANDOM = random.Random(SEED)


def held():
    return sorted(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


def work(group):
    """Until another rank has died: programs small and large, made anew now and then."""
    while True:
        for count in (3, 100_000):
            program = heddle.Program(GATHER.replace("COUNT", str(count)))
            gather = heddle.compile(program, group, {})
            x = np.full((1, count), group.rank, "f4")
            for i in range(20):
                y = gather.start(x).result() if i % 3 == 0 else gather(x)
                assert (y[:, 0] == range(RANKS)).all(), y[:, 0]


def live(rank, job, told):
    before = held()
    group = heddle.Group._join(heddle._group.describe_place(rank, RANKS, job), 30.0)
    os.write(told, b"+")
    try:
        work(group)
    except heddle.Error as error:
        answer = {"kind": type(error).__name__, "text": str(error), "when": time.monotonic()}
    group.close()
    end = time.monotonic() + BOUND  # a thread that has been told to end does so soon
    while held() != before and time.monotonic() < end:
        time.sleep(0.001)
    answer["left"] = held() != before and [before, held()]
    os.write(told, json.dumps(answer).encode())


def start(rank, job):
    get, told = os.pipe()
    process = os.fork()
    if process == 0:
        try:
            live(rank, job, told)
        finally:
            os._exit(0)
    os.close(told)
    return process, get


def kill_one():
    """The longest that another rank took to hear of it, in seconds."""
    shared = os.listdir("/dev/shm")
    job = RANDOM.getrandbits(63)
    ranks = [start(rank, job) for rank in range(RANKS)]
    for _, get in ranks:
        assert os.read(get, 1) == b"+"
    time.sleep(RANDOM.random() ** 2 * 0.06)
    victim = RANDOM.randrange(RANKS)
    begin = time.monotonic()
    os.kill(ranks[victim][0], signal.SIGKILL)
    worst = 0.0
    for rank, (process, get) in enumerate(ranks):
        if rank != victim:
            answer = json.loads(os.read(get, 65536))
            assert answer["kind"] == "PeerError", (victim, answer)
            assert f"rank {victim} " in answer["text"], (victim, answer)
            assert not answer["left"], answer
            worst = max(worst, answer["when"] - begin)
        os.close(get)
        os.waitpid(process, 0)
    assert os.listdir("/dev/shm") == shared
    assert worst < BOUND, worst
    return worst


def main():
    took = []
    for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 500):
        signal.alarm(int(60 + BOUND))  # nothing hangs
        took.append(kill_one())
    took.sort()
    print(f"{len(took)} killed; others heard of it within {took[len(took) // 2] * 1e3:.1f} ms "
          f"(median), {took[-1] * 1e3:.1f} ms (most)")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Kills ranks of runs on GPUs that have no end, and prints how long it took until the
others were told, and until the killed one and all of them had ended.

usage: kills.py [--heddle PATH] [--ranks N] [--kills N] [--jobs N] [--settle SECONDS]
                [--ways eager,graph,nccl]

Each of N jobs runs a small ring on the same GPUs, a rank a device; once all of them have
run for SECONDS, which is not measured, one rank of each is killed. The others are told
when the command says so with the name of that rank, which it does before they give back
what they have on the GPUs. Exits with 1 if a kill was not told within 5 s, or more than
5 % of them took more than 2 s; of jobs that are alone, if any took more than 2 s.
"""
import argparse
import os
import pathlib
import random
import re
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
WAYS = {"eager": [], "graph": ["--graph"], "nccl": ["--transport", "nccl"],
        "nccl_graph": ["--transport", "nccl", "--graph"], "sm": ["--transport", "sm"]}
MOST = 30.0  # s that a job may take to end
TEXT = """heddle 2
tensor program small
mesh tp=2
in   %a : bf16[size tp @tp, 16, 64]
in   %w : bf16[32, 64]
out  %c : bf16[size tp @stream, 16, 32]
temp %g : bf16[size tp @stream, 16, 64]
{
    %g = set %a
    %c = matmul %g, %w tb
}
"""


class Job:
    def __init__(self, heddle, program, ranks, options):
        self.process = subprocess.Popen(
            [heddle, "run", program, "-D", f"tp={ranks}", "--device", "cuda", "--iters",
             "1000000", "--timeout", "30", *options],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            text=True)
        self.rank = None  # that is killed
        self.said = ""
        self.told = MOST
        self.gone = MOST  # when the kernel has taken apart the one that is killed
        self.ended = MOST
        self.reader = threading.Thread(target=self.listen)
        self.reader.start()

    def listen(self):
        """Notes when the killed rank is named first, and when the command ends."""
        for line in self.process.stderr:
            self.said += line
            if self.told == MOST and self.names_it(line):
                self.told = time.monotonic() - self.killed
        self.process.wait()
        if self.rank is not None:
            self.ended = time.monotonic() - self.killed

    def names_it(self, line):
        return self.rank is not None and re.search(
            rf"rank {self.rank} (died|was killed)", line)

    def ranks(self):
        path = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in path.read_text().split()]

    def kill(self, rank):
        victim = self.ranks()[rank]
        self.killed = time.monotonic()
        self.rank = rank
        self.waiter = threading.Thread(target=self.await_end, args=[os.pidfd_open(victim)])
        os.kill(victim, signal.SIGKILL)
        self.waiter.start()

    def await_end(self, pidfd):
        if select.select([pidfd], [], [], MOST)[0]:
            self.gone = time.monotonic() - self.killed
        os.close(pidfd)

    def end(self, latest):
        self.reader.join(max(0, latest - time.monotonic()))
        self.process.kill()
        self.reader.join()
        if self.rank is not None:
            self.waiter.join()


def kill_all(heddle, program, given, options):
    """One round: the jobs, of each of which a rank was killed."""
    jobs = [Job(heddle, program, given.ranks, options) for _ in range(given.jobs)]
    time.sleep(given.settle)
    ended = [job for job in jobs if job.process.poll() is not None]
    if not ended:
        for job in jobs:
            job.kill(random.randrange(given.ranks))
    latest = time.monotonic() + (0 if ended else MOST)
    for job in jobs:
        job.end(latest)
    if ended:
        sys.exit(f"kills.py: a job ended by itself:\n{ended[0].said}")
    return jobs


def spread(took):
    """Sorted seconds as a row: how many are in time, the middle, 95 % and the most."""
    at = (len(took) * 95 + 99) // 100 - 1
    return (f"{sum(seconds <= 2 for seconds in took):4} within 2 s, "
            f"median {took[len(took) // 2]:.3f} s, 95 % {took[at]:.3f} s, "
            f"most {took[-1]:.3f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--heddle", default=str(ROOT / "build/release/tools/heddle"))
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--kills", type=int, default=34)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--settle", type=float, default=4.0)
    parser.add_argument("--ways", default="eager,graph,nccl")
    given = parser.parse_args()
    wrong = False
    with tempfile.NamedTemporaryFile("w", suffix=".hd") as program:
        program.write(TEXT)
        program.flush()
        for way in given.ways.split(","):
            jobs = []
            while len(jobs) < given.kills:
                jobs += kill_all(given.heddle, program.name, given, WAYS[way])
            told = sorted(job.told for job in jobs)
            bad = [job for job in jobs if job.told == MOST]
            late = sum(seconds > 2 for seconds in told)
            print(f"{way:10} {len(jobs):4} kills, {given.jobs} jobs, {len(bad)} not named\n"
                  f"    told:  {spread(told)}\n"
                  f"    gone:  {spread(sorted(job.gone for job in jobs))}\n"
                  f"    ended: {spread(sorted(job.ended for job in jobs))}", flush=True)
            for job in bad[:3]:
                print(f"    rank {job.rank} was killed: "
                      + (job.said or "nothing").strip().replace("\n", "\n    "))
            wrong |= told[-1] > 5 or late * 20 > (len(told) if given.jobs > 1 else 0)
    sys.exit(wrong)


if __name__ == "__main__":
    main()

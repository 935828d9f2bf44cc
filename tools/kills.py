#!/usr/bin/env python3
"""Kills ranks of runs on GPUs that have no end, and prints how long the others took to
say so and to end.

usage: kills.py [--heddle PATH] [--ranks N] [--kills N] [--jobs N] [--settle SECONDS]
                [--ways eager,graph,nccl]

Each of N jobs runs a small ring on the same GPUs, a rank a device; once all of them have
run for SECONDS, which is not measured, one rank of each is killed. It is told if the
command names that rank. Exits with 1 if a kill was not told, or took more than 5 s.
"""
import argparse
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
WAYS = {"eager": [], "graph": ["--graph"], "nccl": ["--transport", "nccl"],
        "nccl_graph": ["--transport", "nccl", "--graph"], "sm": ["--transport", "sm"]}
MOST = 30.0  # s that a job may take to end
TEXT = """heddle 1
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
        self.said = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [heddle, "run", program, "-D", f"tp={ranks}", "--device", "cuda", "--iters",
             "1000000", "--timeout", "30", *options],
            stdin=subprocess.DEVNULL, stdout=self.said, stderr=subprocess.STDOUT)
        self.killed = 0.0
        self.took = None

    def ranks(self):
        path = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in path.read_text().split()]

    def kill(self, rank):
        self.rank = rank
        self.killed = time.monotonic()
        subprocess.run(["kill", "-KILL", str(self.ranks()[rank])], check=True)

    def look(self):
        if self.took is None and self.process.poll() is not None:
            self.took = time.monotonic() - self.killed

    def end(self):
        if self.took is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.took = MOST
        self.said.seek(0)
        return self.said.read()


def kill_all(heddle, program, given, options):
    """One round: of each job how long it took, and what it said if that is wrong."""
    jobs = [Job(heddle, program, given.ranks, options) for _ in range(given.jobs)]
    time.sleep(given.settle)
    for job in jobs:
        if job.process.poll() is not None:
            sys.exit(f"kills.py: a job ended by itself:\n{job.end()}")
    for job in jobs:
        job.kill(random.randrange(given.ranks))
    end = time.monotonic() + MOST
    while any(job.took is None for job in jobs) and time.monotonic() < end:
        time.sleep(0.002)
        for job in jobs:
            job.look()
    for job in jobs:
        said = job.end()
        named = re.search(rf"rank {job.rank} (died|was killed)", said)
        yield job.took, "" if named else f"rank {job.rank} was killed: {said or 'nothing'}"


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
            found = []
            while len(found) < given.kills:
                found += kill_all(given.heddle, program.name, given, WAYS[way])
            took = sorted(seconds for seconds, _ in found)
            bad = [words for _, words in found if words]
            within = sum(seconds <= 2 for seconds in took)
            print(f"{way:10} {len(took):4} kills, {given.jobs} jobs: {within} within 2 s, "
                  f"median {took[len(took) // 2]:.3f} s, most {took[-1]:.3f} s, "
                  f"{len(bad)} not named", flush=True)
            for words in bad[:3]:
                print("    " + words.strip().replace("\n", "\n    "))
            wrong |= bool(bad) or took[-1] > 5
    sys.exit(wrong)


if __name__ == "__main__":
    main()

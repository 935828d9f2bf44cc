"""What a call from Python takes: a relu of four elements on one rank of the cpu,
as bench/embed.c has it in C. Of the package that is installed.

usage: python bench/python.py
"""
import statistics
import time

import heddle
import numpy as np

SAMPLES = 501
TEXT = "heddle 2\nhost program one\nin %x : f32[4]\nout %y : f32[4]\n{\n    %y = relu %x\n}\n"


def report(what, samples):
    cuts = statistics.quantiles(samples, n=10)
    print(f"{what:36} {statistics.median(samples) * 1e6:9.2f} us  "
          f"(10% {cuts[0] * 1e6:.2f}, 90% {cuts[-1] * 1e6:.2f})")


def measure(what, fn, times=1, after=lambda: None):
    samples = []
    for _ in range(SAMPLES):
        begin = time.perf_counter()
        for _ in range(times):
            fn()
        samples.append((time.perf_counter() - begin) / times)
        after()
    report(what, samples)


with heddle.Group.local() as group:
    relu = heddle.compile(heddle.Program(TEXT), group)
    x, y = np.array([1, 2, 3, 4], "f4"), np.empty(4, "f4")
    measure("a call, out= given", lambda: relu(x, out=y))
    measure("a call that makes its output", lambda: relu(x))
    # Not waited for, as hd_session_run alone: 12 of the 16 that may be under way.
    measure("what it takes to issue it", lambda: relu._issue([x, y], None, None), 12, relu.finish)
    measure("start, and the future's result", lambda: relu.start(x, out=y).result())

"""Writes outputs of runs of every kind of size by `heddle run --out`, by forked
ranks and under a launcher, and compares with Python's own lists. Sizes and
numbers are new in each run; the seed is printed where one differs.

usage: sized_outputs.py HEDDLE FOLDER
"""
import os
import random
import subprocess
import sys

import npy

heddle, folder = sys.argv[1:]
launcher = os.path.join(os.path.dirname(os.path.abspath(__file__)), "launcher.py")
seed = int(os.environ.get("HEDDLE_TEST_SEED", 0)) or int.from_bytes(os.urandom(4), "little")
rng = random.Random(seed)
os.chdir(folder)

# Sharded and whole, with the size in front, between and behind others, and
# over one axis of two.
PROGRAM = """heddle 2
tensor program sized_outputs
param m in 0..{most}
mesh dp={dp}, tp={tp}
in  %rows : i32[m @tp, 3]
in  %between : i32[2, m @tp, 2]
in  %behind : i32[{dp} @dp, m @tp]
in  %whole : i32[2, m, 3]
in  %fixed : i32[5 @tp, 2]
out %y_rows : i32[m @tp, 3]
out %y_between : i32[2, m @tp, 2]
out %y_behind : i32[{dp} @dp, m @tp]
out %y_whole : i32[2, m, 3]
out %y_fixed : i32[5 @tp, 2]
out %y_gathered : i32[m, 3]
{{
    %y_rows = neg %rows
    %y_between = neg %between
    %y_behind = neg %behind
    %y_whole = neg %whole
    %y_fixed = neg %fixed
    %y_gathered = set %rows
}}
"""


def shapes(m, dp):
    return {"rows": (m, 3), "between": (2, m, 2), "behind": (dp, m), "whole": (2, m, 3),
            "fixed": (5, 2)}


def count(shape):
    n = 1
    for extent in shape:
        n *= extent
    return n


def compare(how, m, dp, inputs):
    want = {f"y_{name}": [-x for x in values] for name, (_, values) in inputs.items()}
    want["y_gathered"] = list(inputs["rows"][1])
    shape = {f"y_{name}": shape for name, (shape, _) in inputs.items()}
    shape["y_gathered"] = inputs["rows"][0]
    command = ["run", "p.hd", "--run", f"m={m}"]
    for name in inputs:
        command += ["--in", f"{name}={name}.npy"]
    for name in want:
        if os.path.exists(f"{name}.npy"):
            os.unlink(f"{name}.npy")
        command += ["--out", f"{name}={name}.npy"]
    done = subprocess.run([*how, heddle, *command], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, (seed, how, m, done.stdout)
    for name, values in want.items():
        got = npy.read(f"{name}.npy")
        assert got == ("<i4", shape[name], tuple(values)), (seed, how, m, name, got, values)


dp, tp = rng.choice([(1, 2), (2, 2), (1, 4), (1, 3)])
most = tp * rng.randint(2, 6) + rng.randint(0, tp - 1)
room = -(-most // tp)
with open("p.hd", "w") as file:
    file.write(PROGRAM.format(most=most, dp=dp, tp=tp))
sizes = {0, 1, most, most - 1, most // tp, room, room - 1, room + 1, tp, rng.randint(1, most)}
for m in sorted(sizes):
    inputs = {}
    for name, shape in shapes(m, dp).items():
        values = [rng.choice([-1, 1]) * rng.randint(1, 2**31 - 1) for _ in range(count(shape))]
        inputs[name] = shape, values
        npy.write(f"{name}.npy", "<i4", shape, values)
    compare([], m, dp, inputs)
    if m in (0, room, most):
        compare([sys.executable, launcher, rng.choice(["torchrun", "pmi"]), str(dp * tp)], m, dp,
                inputs)

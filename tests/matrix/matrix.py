#!/usr/bin/env python3
"""What moves, in each form, place, family, pipeline and number of ranks, against numpy.

    matrix.py HEDDLE [--all] [--device NAME] [--seed N] [--only ROW] [--jobs N] ..

draws rows of the table FACTORS of case.py so that each pair of levels of any two factors
stands in one of them, and each move in each pipeline, in a loop and in none; or with --all
each triple. A row is a tensor program of its own, on random inputs: it is written and
computed here, by what shares nothing with heddle, and run by the command HEDDLE. Each
element has to be as near to numpy's as roundings can explain (value.py), and one that stood
in the place of another one to be too far off.
"""
import argparse
import collections
import concurrent.futures
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

import numpy as np

import case
import value
from cover import cover

OPTIONS = {"none": [], "get": ["--protocol", "get"], "wire": ["--wire", "f32"],
           "copy-own": ["--copy-own"], "defer-sends": ["--defer-sends"],
           "comm-stream": ["--comm-stream"], "launch": ["--launch"]}
# Chunks need not divide what is drawn, and some operations take no part of a shard.
REFUSED = {"HD0501", "HD0502"}


def words_of(option, drawn):
    if option == "streams":
        return ["--streams", str(drawn.choice((1, 3, 4)))]
    if option == "chunks":
        return ["--chunks", str(drawn.choice((2, 2, 3)))]
    return OPTIONS[option]


def options_of(row, drawn):
    """The row's option, and now and then others beside it."""
    given = {row["option"]} | {each for each in case.FACTORS["option"] if drawn.random() < .1}
    return ["--transfer", row["transfer"],
            *(word for each in sorted(given) for word in words_of(each, drawn))]


def command(*words):
    return subprocess.run([str(word) for word in words], text=True, timeout=500,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)


def run(arguments, program, options, folder):
    """What the command says, and the arrays that it writes, or None where it fails."""
    file = folder / "drawn.hd"
    file.write_text(program.text())
    if arguments.against:
        done = command(arguments.heddle, "check", file, "--against", file, *options)
        if done.returncode != 0:
            return done.stdout, None
    words = [arguments.heddle, "run", file, *options, "--device", arguments.device]
    for t in program.of_role("in"):
        np.save(folder / f"{t.name}.npy", value.to_file((t.before or t.x).v, t.dtype))
        words += ["--in", f"{t.name}={folder}/{t.name}.npy"]
    for t in program.of_role("out"):
        words += ["--out", f"{t.name}={folder}/{t.name}.got.npy"]
    done = command(*words)
    if done.returncode != 0:
        return done.stdout, None
    return done.stdout, {t.name: value.from_file(np.load(folder / f"{t.name}.got.npy"), t.dtype)
                         for t in program.of_role("out")}


def judge(program, got, seen):
    """What is wrong. `seen` counts elements, those that would be found in another's place, and
    those whose neighbour differs from them at all."""
    wrong = []
    for t in program.of_role("out"):
        assert got[t.name].shape == t.dims
        off = value.misses(got[t.name], t.x)
        if off.any():
            at = tuple(int(i) for i in np.argwhere(off)[0])
            wrong.append(f"%{t.name}: {off.sum()} of {off.size} elements, the first at {list(at)}: "
                         f"{got[t.name][at]:.17g}, not {t.x.v[at]:.17g} within {t.x.e[at]:.3g}")
        moved = np.roll(got[t.name].reshape(-1), 1).reshape(t.dims)
        seen["elements"] += moved.size
        seen["found"] += int(value.misses(moved, t.x).sum())
        seen["other"] += int((moved != got[t.name]).sum())
    return wrong


def attempt(arguments, number, row):
    """The outcome of a row: none, or what is wrong with it, and its counts."""
    drawn = random.Random(f"{arguments.seed} {number}")
    program, seen = case.build(row, drawn), collections.Counter()
    options = [*options_of(row, drawn), *arguments.option]
    with tempfile.TemporaryDirectory() as folder:
        said, got = run(arguments, program, options, pathlib.Path(folder))
        if got is None and "--chunks" in options and REFUSED & set(re.findall(r"HD\d+", said)):
            seen["refused"] += 1
            at = options.index("--chunks")
            del options[at:at + 2]
            said, got = run(arguments, program, options, pathlib.Path(folder))
    wrong = [said] if got is None else judge(program, got, seen)
    if not wrong:
        return None, seen
    words = " ".join(f"{name}={level}" for name, level in row.items())
    return (f"row {number} of seed {arguments.seed}: {words}\nheddle run {' '.join(options)}\n"
            f"{program.text()}" + "\n".join(wrong)), seen


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("heddle")
    parser.add_argument("--all", action="store_true", help="all triples, not all pairs")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--option", action="append", default=[],
                        help="one more word of the command")
    parser.add_argument("--leave", action="append", default=[], metavar="FACTOR=LEVEL",
                        help="draw none of these")
    parser.add_argument("--against", action="store_true", help="check --against as well")
    parser.add_argument("--seed", type=int, default=int(os.environ.get("HEDDLE_TEST_SEED") or
                                                        random.SystemRandom().getrandbits(31)))
    parser.add_argument("--only", type=int, help="this row alone")
    parser.add_argument("--part", default="0/1", metavar="I/N", help="every N-th row from the I-th")
    parser.add_argument("--jobs", type=int, default=1)
    return parser.parse_args(words)


def draw(arguments):
    factors = {name: [level for level in levels if f"{name}={level}" not in arguments.leave]
               for name, levels in case.FACTORS.items()}
    names, levels = list(factors), list(factors.values())
    more = tuple(sorted(names.index(each) for each in ("move", "transfer", "stream")))
    rows = cover([len(each) for each in levels], 3 if arguments.all else 2,
                 random.Random(arguments.seed), [more])
    return [{name: of[i] for name, of, i in zip(names, levels, row)} for row in rows]


def main():
    arguments = parse(sys.argv[1:])
    rows = draw(arguments)
    print(f"seed {arguments.seed}: {len(rows)} programs", flush=True)
    first, step = map(int, arguments.part.split("/"))
    numbers = range(first, len(rows), step) if arguments.only is None else [arguments.only]
    failed, seen = 0, collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for wrong, counted in pool.map(lambda i: attempt(arguments, i, rows[i]), numbers):
            seen += counted
            failed += wrong is not None
            if wrong:
                print(wrong, flush=True)
    print(f"{len(numbers)} programs, {failed} wrong; {seen['elements']} elements; of "
          f"{seen['other']} that differ from the one before them {seen['found']} would have been "
          f"found in its place; {seen['refused']} times without chunks, which were refused")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Which tests `tools/test.sh --ci` runs, in which of its builds.

TABLE says it: the first row that knows a test decides. What there is in many
sets or ways, or takes long, is drawn. There are DRAWS draws, and any DRAWS - 1
of them have all tests together; the number of a commit, modulo DRAWS, is its
draw. DRAWS is a prime, so that DRAWS - 1 landings in a row have as many draws,
and all tests, whether each is of one commit or of more, if all are of as many
and these no multiple of DRAWS. Of landings that differ no number of a commit can
promise it: they are as good as drawn at random, and a test of two draws is in
one of 24 landings with 95 %, in one of 37 with 99 %.

    draws.py builds K          prints the builds that draw K has
    draws.py say K             prints what draw K has
    draws.py list K BUILD      prints the tests of build/BUILD that draw K has
                               there, as `ctest -I` reads them
    draws.py check FOLDER      fails if some DRAWS - 1 draws leave out a test
                               that is built in FOLDER, or, where all tests are
                               built, if a row decides on none

K is a draw or the number of a commit.
"""
import functools
import json
import os
import pathlib
import re
import subprocess
import sys
import zlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
DRAWS = 17
BUILDS = ("plain", "asan", "tsan")

# The suites of tests/device on the stand-ins for CUDA: the tests fake.SET.*
SETS = ("copy", "sm.graph", "nccl", "copy.graph", "sm", "nccl.graph")
# How runs of tests/cuda go (tests/cuda/way.h): the tests */WAY and */WAY_*
TRANSPORTS = ("copy", "sm", "nccl")
KINDS = ("", "_graph", "_capturable")
WAYS = [transport + kind for kind in KINDS for transport in TRANSPORTS]


def builds_of(draw):
    """One in four has ThreadSanitizer, which takes longer to build than what it
    tests."""
    return BUILDS if draw % 4 == 0 else BUILDS[:2]


def sets_of(draw, build):
    """One with AddressSanitizer, of which each has two draws; or those with
    ThreadSanitizer, of which each has one, and beside which there is none."""
    if "tsan" in builds_of(draw):
        return SETS[draw // 4 :: 5] if build == "tsan" else ()
    return [SETS[(draw - draw // 4 - 1) % len(SETS)]] if build == "asan" else ()


def ways_of(draw, build):
    """Two, others in each build."""
    first = 2 * (draw // 4 if build == "tsan" else draw) + 4 * BUILDS.index(build)
    return [WAYS[(first + i) % len(WAYS)] for i in range(2)]


# When the tests of a row run in a build: in so many of the draws, or in those that
# have their set or way; or often in those without ThreadSanitizer, and rarely in
# the others; or often, but never beside LONGEST.
NOT, RARELY, OFTEN, EACH = 0, 2, 6, DRAWS
SET, WAY, REST, OTHERS = "set", "way", "rest", "others"
LONGEST = "python_wheel"

TABLE = (
    # label, or how the names of tests begin, or what they ask for  plain asan tsan
    # Long: packages that are built and used, programs without end.
    (LONGEST + "$",                                                (OFTEN, NOT, NOT)),
    ("package_(consumers|debs)$|fuzz_(lower|execute)$",            (OTHERS, NOT, NOT)),
    ("golden[.]cli[.](run|slots|launcher|bench|context_parallel|zigzag|hosts)$",
                                                                   (OFTEN, NOT, NOT)),
    ("docs_patterns_verified$",                                    (OFTEN, NOT, NOT)),
    ("label: second",                                              (OFTEN, NOT, NOT)),
    ("label: golden|package|fuzz|mutation|model|matrix",           (EACH, NOT, NOT)),
    ("include_rule$|docs_|fuzzing_example$|draws$",                (EACH, NOT, NOT)),
    ("asks: HD_NEEDS_PLAIN_MALLOC",                                (EACH, NOT, NOT)),
    ("Sizes[.]DrawnForEachOfManyRuns", # asks for it in part
                                                                   (EACH, EACH, NOT)),
    ("readme_embed$",                                              (NOT, EACH, EACH)),
    # Calls are counted, and compared with what they were.
    ("CudaCosts[.]",                                               (EACH, NOT, NOT)),
    # A request fails, then the next one, and so on: long, and rarely news.
    ("CudaFaults[.]AreToldToBothRanks.+|CudaThreadFaults",         (NOT, RARELY, NOT)),
    ("CudaFixedFaults|Environment",                                (NOT, EACH, NOT)),
    # Many kernels are compiled.
    ("Codegen[.](Counted|AKernelThatMeets|ElementWise|RanksThatReduce|Operands)",
                                                                   (NOT, RARELY, NOT)),
    (r"CodegenSizes[.]ElementWise|\w*Nvrtc[.]",                    (NOT, RARELY, NOT)),
    ("KernelTexts",                                                (NOT, RARELY, NOT)),
    ("CudaSizes[.]WhatIsReducedInSharesByGraphs",                  (NOT, RARELY, NOT)),
    # Large, or in every combination of options.
    ("(fake[.].*)?Attention[.]OfCounted",                          (NOT, RARELY, NOT)),
    ("(fake[.].*)?Conformance[.]LargeReductions",                  (NOT, RARELY, NOT)),
    ("fake[.](copy|sm)([.]graph)?[.]Conformance[.]MatmulRounds",   (NOT, RARELY, NOT)),
    ("All/Patterns",                                               (NOT, OFTEN, NOT)),
    ("All/Pipelines",                                              (NOT, EACH, OFTEN)),
    ("fake[.].*All/",                                              (NOT, RARELY, NOT)),
    ("fake[.](twoshot|threads)",                                   (NOT, RARELY, RARELY)),
    ("fake[.]nccl[.]two_devices",                                  (NOT, EACH, NOT)),
    # Long, of what changes rarely.
    ("(Rank|Process)/|Attention[.]|CudaAttention|Codegen|Chain",   (NOT, OFTEN, NOT)),
    # Long, of one source file that changes rarely.
    ("Pick[.](TopK|Route)|Replay[.].*Large|Order[.]IsTheSame|Pieces[.]OfBlocks",
                                                                   (NOT, OFTEN, NOT)),
    ("Choose[.](HasWhat|TheFirst|SumsOf)|(Fit|Generate|Symmetry|Limits)[.]",
                                                                   (NOT, OFTEN, NOT)),
    ("Cuda(Sharing|Orders|Attends|Sizes)[.]|Boot[.]|Misuse[.]",
                                                                   (NOT, OFTEN, NOT)),
    ("Tiles[.](EachRow|OfProducts)|Steps[.]RanksThat|Lower[.]Random|CudaSharing[.]Many",
                                                                   (NOT, OFTEN, NOT)),
    ("(Check|Lower|Cache)Faults|NoFaults[.]Tuning|CudaMarks[.]OfMany|device[.]threads",
                                                                   (NOT, OFTEN, NOT)),
    # What there is in sets and ways.
    ("fake[.].*(Conformance|Sizes|Counts)[.]",                     (NOT, RARELY, NOT)),
    ("fake[.]",                                                    (NOT, SET, SET)),
    ("(All|By)/",                                                  (NOT, WAY, WAY)),
    ("Conformance[.]MatmulRoundsOnce",                             (NOT, EACH, NOT)),
    ("label: unit|device|faults|fake",                             (NOT, REST, OFTEN)),
)


@functools.cache
def written():
    """File and body of each TEST of the programs that are built of some files."""
    found = {}
    for folder in ("unit", "device", "cuda", "faults"):
        for path in (ROOT / "tests" / folder).glob("*.cc"):
            parts = re.split(r"^TEST(?:_[FP])?\((\w+),\s*(\w+)\)", path.read_text(), flags=re.M)
            for suite, name, body in zip(parts[1::3], parts[2::3], parts[3::3]):
                found[suite, name] = f"/tests/{folder}/{path.name}", body
    return found


def source(test):
    """The file and the body of a test, or None."""
    name = re.fullmatch(r"(?:fake[.].*[.])?(?:\w+/)?(\w+)[.](\w+)(?:/.*)?", test["name"])
    return written().get(name.groups()) if name else None


def knows(row, test):
    what, _, pattern = row[0].rpartition(": ")
    if what == "label":
        return re.fullmatch(pattern, test["label"])
    if what == "asks":
        return source(test) and re.search(pattern, source(test)[1])
    return re.match(pattern, test["name"])


def decide(test):
    """The first row of TABLE that knows the test."""
    for row in TABLE:
        if knows(row, test):
            return row
    sys.exit(f"draws.py: no row of TABLE knows {test['name']}")


def has_set(name, some):
    return any(re.match(rf"fake[.]{one}[.](?!graph[.])", name) for one in some)


def has_way(name, some):
    """The last part of a name begins with its way."""
    known = sorted(WAYS, key=len, reverse=True)
    last = name.rpartition("/")[2]
    ways = [way for way in known if last == way or last.startswith(way + "_")]
    return not ways or ways[0] in some


def draw_of(number):
    return number % DRAWS


def falls(name, draw, many):
    """Which of the draws is the name's, so that a new test moves no other."""
    return (draw + zlib.crc32(name.encode())) % DRAWS < many


def runs(test, draw, build):
    """Whether draw `draw` has the test in `build`, should it be there."""
    when = test["row"][1][BUILDS.index(build)]
    if build not in builds_of(draw):
        return False
    if when == REST:
        return falls(test["name"], draw, RARELY if "tsan" in builds_of(draw) else OFTEN)
    if when == SET:
        return has_set(test["name"], sets_of(draw, build))
    if when == WAY:
        return has_way(test["name"], ways_of(draw, build))
    if when == OTHERS:
        return falls(LONGEST, draw + OFTEN, OFTEN)
    return falls(test["name"], draw, when)


def built(folder):
    """The tests of a build, in the order in which ctest counts them from 1."""
    said = subprocess.run(
        ["ctest", "--test-dir", folder, "--show-only=json-v1"],
        check=True, capture_output=True, text=True,
    )
    tests = []
    for test in json.loads(said.stdout)["tests"]:
        of = {one["name"]: one["value"] for one in test["properties"]}
        tests.append({"name": test["name"], "label": of.get("LABELS", [""])[0]})
        tests[-1]["row"] = decide(tests[-1])
    return tests


def variables(build):
    presets = json.loads((ROOT / "CMakePresets.json").read_text())
    for preset in presets["configurePresets"]:
        if preset["name"] == build:
            return preset["cacheVariables"]
    sys.exit(f"draws.py: CMakePresets.json has no preset {build}")


def is_built(test, build):
    """Whether a test is there in a build of --ci."""
    of = variables(build)
    if test["label"] in ("package", "matrix"):
        return of.get("HEDDLE_PACKAGE_TESTS") == "ON"
    if test["label"] in ("mutation", "model", "second"):
        return of.get("HEDDLE_ORACLES") != "OFF"
    some = of.get("HEDDLE_TEST_FILES")
    return (not some or source(test) is None or
            re.search(f"/tests/({some})[.]cc$", source(test)[0]))


def check(folder):
    tests = built(folder)
    wrong = []
    for test in tests:
        places = [build for build in BUILDS if is_built(test, build)]
        of = [any(runs(test, draw, build) for build in places) for draw in range(DRAWS)]
        if sum(of) < 2:
            wrong.append(f"{test['name']}: in {sum(of)} of {DRAWS} draws, so that {DRAWS - 1} may lack it")
    decided = {test["row"][0] for test in tests}
    cache = (pathlib.Path(folder) / "CMakeCache.txt").read_text()
    if all(re.search(line, cache, re.M) for line in (
            "^HEDDLE_TEST_FILES:STRING=$", "^HEDDLE_ORACLES:BOOL=ON$",
            "^HEDDLE_PACKAGE_TESTS:BOOL=ON$")):
        wrong += [f"no test is of the row {row[0]}" for row in TABLE if row[0] not in decided]
    if wrong:
        sys.exit("\n".join(wrong))
    print(f"{len(tests)} tests: any {DRAWS - 1} of {DRAWS} draws have all of them")


def main():
    what, *arguments = sys.argv[1:] or [""]
    if what == "builds" and len(arguments) == 1:
        print(*builds_of(draw_of(int(arguments[0]))))
    elif what == "say" and len(arguments) == 1:
        draw = draw_of(int(arguments[0]))
        for build in builds_of(draw)[1:]:
            print(f"draw {draw} of {DRAWS}, {build}: sets {' '.join(sets_of(draw, build))};"
                  f" ways {' '.join(ways_of(draw, build))}")
    elif what == "list" and len(arguments) == 2:
        draw, build = draw_of(int(arguments[0])), arguments[1]
        some = [str(i) for i, test in enumerate(built(ROOT / "build" / build), 1)
                if runs(test, draw, build)]
        print(f"0,0,0,{','.join(some)}")
    elif what == "check" and len(arguments) == 1:
        check(arguments[0])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()

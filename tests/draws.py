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
    draws.py options K BUILD   prints what cmake is told of BUILD
    draws.py targets K BUILD   prints what is built of it, nothing for all
    draws.py torch K           prints which tests of heddle.torch draw K has
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

# What a draw has besides, by the third that it is of: what judges the checker,
# what is made of the project for others, or what its pages and commands say
# at length; and the tests of heddle.torch (python/tests/with_torch/run.py).
THIRDS = ("oracles", "packages", "pages")
TORCH = {"oracles": ("cuda", "killed"), "packages": ("4",), "pages": ("2",)}
# What is built with AddressSanitizer, by the part that a draw is of: tests/cuda, the
# suites of tests/device on the stand-ins for CUDA, or the others.
PARTS = {
    "cpu": ("unit_tests", "fault_tests", "device_tests", "readme_embed"),
    "cuda": ("fake_tests", "cuda_tests"),
    "fake": ("device_tests",),
}

# The suites of tests/device on the stand-ins for CUDA: the tests fake.SET.*
SETS = ("copy", "sm.graph", "nccl", "copy.graph", "sm", "nccl.graph")
# How runs of tests/cuda go (tests/cuda/way.h): the tests */WAY and */WAY_*
TRANSPORTS = ("copy", "sm", "nccl")
KINDS = ("", "_graph", "_capturable")
WAYS = [transport + kind for kind in KINDS for transport in TRANSPORTS]


def builds_of(draw):
    """Beside the first one a sanitizer's: one in four has ThreadSanitizer's, the
    others AddressSanitizer's."""
    return ("plain", "tsan" if draw % 4 == 0 else "asan")


def third_of(draw):
    return THIRDS[draw % len(THIRDS)]


def part_of(draw):
    """Of those with AddressSanitizer."""
    return tuple(PARTS)[(draw - draw // 4 - 1) % len(PARTS)]


@functools.cache
def draws_of(build, part):
    """Those that build a part, which only one with AddressSanitizer does not."""
    return [draw for draw in range(DRAWS) if build in builds_of(draw)
            and (build != "asan" or part_of(draw) == part)]


def sets_of(draw, build):
    """Three with AddressSanitizer, one or two with ThreadSanitizer."""
    if build == "tsan":
        return SETS[draw // 4 :: 5]
    if build != "asan" or part_of(draw) != "fake":
        return ()
    at = draws_of(build, "fake").index(draw)
    return [SETS[(3 * at + i) % len(SETS)] for i in range(3)]


def ways_of(draw, build):
    """Five with AddressSanitizer, two with ThreadSanitizer."""
    if build == "asan" and part_of(draw) != "cuda":
        return ()
    many = 5 if build == "asan" else 2
    at = draws_of(build, "cuda").index(draw)
    return [WAYS[(many * at + i) % len(WAYS)] for i in range(many)]


# When the tests of a row run in a build: in two of the draws that build them, in
# half of these, in two thirds, in each; or in those of a third, or that have their
# set or way.
NOT, RARELY, OFTEN, MOSTLY, EACH = 0, 1, 2, 3, 4
SET, WAY = "set", "way"
ORACLES, PACKAGES, PAGES = THIRDS

TABLE = (
    # label, or how the names of tests begin, or what they ask for  plain asan tsan
    ("python_wheel$|package_(consumers|debs)$|fuzz_(lower|execute)$",
                                                                   (PACKAGES, NOT, NOT)),
    ("label: second|mutation|model",                               (ORACLES, NOT, NOT)),
    ("fuzz_(check|against)$",                                      (ORACLES, NOT, NOT)),
    ("golden[.]cli[.](run|slots|launcher|bench|context_parallel|zigzag|hosts|gen)$",
                                                                   (PAGES, NOT, NOT)),
    ("golden[.]cli[.](examples|attention_.*|calibrate|simulate|output|tune|moe)$",
                                                                   (PAGES, NOT, NOT)),
    ("docs_(patterns_verified|blocks|adding|explain)$|dump_json$|view_", (PAGES, NOT, NOT)),
    ("matrix$|include_rule$",                                      (PAGES, NOT, NOT)),
    ("label: golden|package|fuzz",                                 (EACH, NOT, NOT)),
    ("docs_|fuzzing_example$|draws$",                              (EACH, NOT, NOT)),
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
    ("label: unit|device|faults|fake",                             (NOT, MOSTLY, OFTEN)),
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


def falls(name, draws, draw, many):
    """Whether the draw is one of `many` of these, so that a new test moves no other."""
    return (draws.index(draw) + zlib.crc32(name.encode())) % len(draws) < many


def runs(test, draw, build):
    """Whether draw `draw` has the test in `build`, should it be there."""
    when = test["row"][1][BUILDS.index(build)]
    part = "cpu" if test["label"] != "fake" else \
        "fake" if test["name"].startswith("fake.") else "cuda"
    draws = draws_of(build, part)
    if draw not in draws:
        return False
    if when in THIRDS:
        return when == third_of(draw)
    if when == SET:
        return has_set(test["name"], sets_of(draw, build))
    if when == WAY:
        return has_way(test["name"], ways_of(draw, build))
    many = {NOT: 0, RARELY: 2, OFTEN: len(draws) // 2, MOSTLY: 2 * len(draws) // 3, EACH: len(draws)}
    return falls(test["name"], draws, draw, many[when])


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
        # what ctest says of a program that is not built
        tests[-1]["row"] = (None, (NOT,) * len(BUILDS)) \
            if test["name"].endswith("_NOT_BUILT") else decide(tests[-1])
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


def options(draw, build):
    """What of a build is not needed is not built; an earlier draw's stays in its folder."""
    oracles = "ON" if third_of(draw) == ORACLES else "OFF"
    return [f"-DHEDDLE_ORACLES={oracles}"] if build == "plain" else []


def main():
    what, *arguments = sys.argv[1:] or [""]
    draw = int(arguments[0]) % DRAWS if arguments and what != "check" else 0
    if what == "builds" and len(arguments) == 1:
        print(*builds_of(draw))
    elif what == "say" and len(arguments) == 1:
        build = builds_of(draw)[1]
        some = [third_of(draw), build] + [part_of(draw)] * (build == "asan")
        for what, names in (("sets", sets_of(draw, build)), ("ways", ways_of(draw, build))):
            some += [f"{what} {' '.join(names)}"] * bool(names)
        print(f"draw {draw} of {DRAWS}: {', '.join(some)}")
    elif what == "options" and len(arguments) == 2:
        print(*options(draw, arguments[1]))
    elif what == "targets" and len(arguments) == 2:
        print(*(PARTS[part_of(draw)] if arguments[1] == "asan" else ()))
    elif what == "torch" and len(arguments) == 1:
        print(*TORCH[third_of(draw)])
    elif what == "list" and len(arguments) == 2:
        some = [str(i) for i, test in enumerate(built(ROOT / "build" / arguments[1]), 1)
                if runs(test, draw, arguments[1])]
        print(f"0,0,0,{','.join(some)}")
    elif what == "check" and len(arguments) == 1:
        check(arguments[0])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()

"""What --transfer auto announces is what it makes, of examples with options that are drawn.

usage: auto.py EXAMPLES: what is announced are options, with which the same text is made, and
its prediction; those that were given are among them. What fits no pipeline is an error by name, too.
"""
import json
import os
import pathlib
import random
import re
import subprocess
import sys

seed = int(os.environ.get("HEDDLE_TEST_SEED") or random.randrange(2**32))
print("HEDDLE_TEST_SEED", seed)
drawn = random.Random(seed)


def heddle(command, path, *words):
    return subprocess.run(["heddle", command, *words, path], capture_output=True, text=True)


def announced(said):
    found = re.findall(r": auto: (--transfer [^:]*): ([0-9.]+) us predicted on 8 x H200(?:; next --transfer .*)?$", said, re.M)
    assert len(found) == 1, said
    flags, time = found[0]
    return flags.split(), time


def check(path):
    options = [["--streams", str(drawn.randint(1, 4))], ["--chunks", str(drawn.randint(1, 4))], ["--copy-own"],
               ["--defer-sends"], ["--comm-stream"], ["--protocol", drawn.choice(["put", "get"])]]
    given = [word for option in options if drawn.random() < 0.4 for word in option]
    print(path.name, *given)
    automatic = heddle("dump", path, "--transfer", "auto", *given)
    if automatic.returncode != 0:
        assert heddle("dump", path, "--transfer", "ring", *given).returncode != 0
        return
    flags, time = announced(automatic.stderr)
    assert automatic.stdout == heddle("dump", path, *flags).stdout, flags
    predicted = json.loads(heddle("simulate", path, "--transfer", "auto", *given, "--json").stdout)["time"]
    assert f"{predicted * 1e6:.1f}" == time, (predicted, time)
    words = " ".join(flags + ["--protocol", "put"]) + " "
    assert all(" ".join(option) + " " in words for option in options if option[0] in given), words


programs = [path for path in pathlib.Path(sys.argv[1]).glob("*.hd") if "tensor program" in path.read_text()]
for program in drawn.sample(programs, 8):
    check(program)
print("fine")

"""Each tensor program over tp or cp that docs/patterns.md has a prediction for gives
the dense answer by every pipeline, whole and in chunks (or these are refused,
HD0502). Its number of ranks and its data are new in each run: HEDDLE_TEST_SEED
sets them. With HEDDLE_TEST_QUICK=1 each goes three of the eight ways.

usage: verify_patterns.py ROOT HEDDLE
"""
import os
import pathlib
import random
import re
import subprocess
import sys
import time

root, heddle = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
RANKS = [1, 2, 3, 4, 5, 8]
OPTIONS = ["bulk", "fused", "pipelined --chunks 2", "broadcast --chunks 2", "direct",
           "direct --chunks 2", "ring --comm-stream", "ring --chunks 2 --defer-sends"]
seed = os.environ.get("HEDDLE_TEST_SEED") or str(time.time_ns() % 2**31)
drawn = random.Random(seed)
quick = os.environ.get("HEDDLE_TEST_QUICK") == "1"
page = (root / "docs/patterns.md").read_text()
programs = sorted(set(re.findall(r"(?:^\| `|heddle simulate )(examples/\w+\.hd)", page, re.M)))
axes = {p: re.search(r"\ntensor (?:.*\n)*mesh .*\b(tp|cp)=", (root / p).read_text())
        for p in programs}
programs = [p for p in programs if axes[p]]
assert len(programs) > 10, programs
for program in programs:
    text = (root / program).read_text()
    rows = (["--run", f"m={drawn.randint(1, 32)},1,16"] if "param m in" in text
            else ["-D", "rows=16"])
    for options in drawn.sample(OPTIONS, 3 if quick else len(OPTIONS)):
        words = [str(heddle), "run", program, "--verify", "--seed", seed, "-D",
                 f"{axes[program][1]}={drawn.choice(RANKS)}", *rows, "--streams", "3",
                 "--transfer", *options.split()]
        done = subprocess.run(words, capture_output=True, text=True, cwd=root, timeout=300)
        refused = "chunks" in options and "error[HD0502]" in done.stderr
        if done.returncode != 0 and not refused:
            sys.exit(f"{' '.join(words)}\n{done.stdout}{done.stderr}")
print(f"{len(programs)} programs verified, seed {seed}")

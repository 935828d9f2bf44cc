"""What `place` makes of a program of examples/ is predicted to take no longer than the
program by hand that stands here by the same name, in the sizes that docs/ has.

usage: compare.py EXAMPLES BY_HAND [N]

Of N programs, drawn anew each time (6), on 2, 4 or 8 ranks.
"""
import json
import math
import pathlib
import random
import re
import subprocess
import sys

examples, by_hand = map(pathlib.Path, sys.argv[1:3])
programs = sorted(by_hand.glob("*.hd"))
drawn = random.sample(programs, min(int(sys.argv[3]) if len(sys.argv) > 3 else 6, len(programs)))
page = "".join((examples.parent / f"docs/{name}.md").read_text() for name in ("patterns", "lowering"))
MOST = 1.03
# What is predicted to take longer all the same, with how many ranks: of causal
# rows by position the last rank's see most, and `place` counts the mean.
KNOWN = {("attention_heads.hd", 2): 1.30}


def predicted(program, words):
    said = subprocess.run(["heddle", "simulate", program, "--compare", "--json", *words],
                          capture_output=True, text=True, check=True).stdout
    return min(each["time"] for each in json.loads(said))


wrong = 0
for program in drawn:
    found = re.search(rf"examples/{program.name} ((?:-D \w+=\d+ ?)+)", page)
    words = found[1].split() if found else []
    mesh = dict(re.findall(r"(\w+)=(\d+)", re.search(r"^mesh .*", program.read_text(), re.M)[0]))
    axis = next(axis for axis in mesh if axis in ("tp", "ep", "cp"))
    others = math.prod(int(size) for name, size in mesh.items() if name != axis)
    ranks = random.choice([n for n in (2, 4, 8) if n * others <= 8])
    words = [re.sub(rf"^{axis}=.*", f"{axis}={ranks}", word) for word in words]
    times = [predicted(folder / program.name, words) for folder in (examples, by_hand)]
    if times[0] > KNOWN.get((program.name, ranks), MOST) * times[1]:
        print(f"{program.name} {' '.join(words)}: {times[0] * 1e6:.1f} us, by hand "
              f"{times[1] * 1e6:.1f}")
        wrong = 1
sys.exit(wrong)

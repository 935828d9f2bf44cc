"""docs/patterns.md shows what the command prints. Its transcripts ($ heddle ..),
the pictures that they draw and its tables of predictions are made anew from the
repository's root and compared; HEDDLE_UPDATE=1 writes what was made instead.
The statements that it shows stand in programs of examples/, each of which it
links to.

A row of a table whose first cell is `examples/FILE -D ..` has, for the pipeline
that heads each other cell, the least that `simulate --compare` predicts for it,
in us, and in brackets how many chunks that takes, if more than one.

usage: patterns.py ROOT HEDDLE
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

root, heddle = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
update = "HEDDLE_UPDATE" in os.environ
page = root / "docs/patterns.md"
pictures = root / "docs/patterns"
LARGEST = 40_000


def run(line, folder):
    path = f"{heddle.parent}:{os.environ['PATH']}"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=60,
                          cwd=folder, env={**os.environ, "PATH": path, "HEDDLE_CACHE_DIR": "off"})
    return done.stdout + done.stderr


def transcript(block, folder):
    lines = [line for line in block.splitlines() if line.startswith("$ ")]
    return "".join(f"{line}\n{run(line[2:], folder)}" for line in lines)


def least_of(entries):
    best = min(entries, key=lambda entry: entry["time"])
    chunks = f" ({best['chunks']})" if best["chunks"] > 1 else ""
    return f"{best['time'] * 1e6:.0f}{chunks}"


def table_row(program, kinds, folder):
    made = run(f"heddle simulate {program} --compare --json 2> /dev/null", folder)
    entries = json.loads(made)
    one = len({entry["time"] for entry in entries}) == 1
    cells = [least_of([e for e in entries if kind in [e["transfer"], *e["also"]]])
             for kind in kinds]
    if one:  # nothing to choose from
        cells = [cells[0]] + ["-"] * (len(kinds) - 1)
    return f"| `examples/{program.split('examples/')[1]}` | " + " | ".join(cells) + " |"


def remade(text, folder):
    text = re.sub(r"(?<=^```\n)(\$ heddle .*?)(?=^```$)",
                  lambda block: transcript(block[1], folder), text, flags=re.M | re.S)
    kinds, lines = [], []
    for line in text.split("\n"):
        if line.startswith("| program |"):
            kinds = [cell.strip().strip("`") for cell in line.split("|")[2:-1]]
        if line.startswith("| `examples/"):
            line = table_row(line.split("`")[1], kinds, folder)
        lines.append(line)
    return "\n".join(lines)


def is_shown(block, programs):
    return block.startswith("$ ") or any(block in text for text in programs)


def settle(path, want, wrong):
    if update:
        path.write_text(want)
    elif not path.exists() or path.read_text() != want:
        wrong.append(f"{path.relative_to(root)} is not what the command makes now "
                     "(HEDDLE_UPDATE=1 writes it anew; read the difference)")


wrong = []
with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    (folder / "docs/patterns").mkdir(parents=True)
    (folder / "examples").symlink_to(root / "examples")
    settle(page, remade(page.read_text(), folder), wrong)
    drawn = {path.name: path.read_text() for path in (folder / "docs/patterns").iterdir()}
for name, text in sorted(drawn.items()):
    settle(pictures / name, text, wrong)
    if len(text) > LARGEST:
        wrong.append(f"docs/patterns/{name} has {len(text)} bytes: {LARGEST} is the most")
    if f"](patterns/{name})" not in page.read_text():
        wrong.append(f"docs/patterns.md does not show {name}")
programs = [path.read_text() for path in (root / "examples").glob("*.hd")]
for block in re.findall(r"^```\n(.*?)^```$", page.read_text(), re.M | re.S):
    if not is_shown(block, programs):
        wrong.append(f"docs/patterns.md shows what no program of examples/ holds:\n{block}")
for path in pictures.iterdir():
    if path.name not in drawn:
        wrong.append(f"docs/patterns/{path.name} is made by no command of docs/patterns.md")
for path in (root / "examples").glob("*.hd"):
    if f"(../examples/{path.name})" not in page.read_text():
        wrong.append(f"docs/patterns.md does not tell of examples/{path.name}")
print("\n".join(wrong))
sys.exit(bool(wrong))

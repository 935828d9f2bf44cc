"""The mistakes that diagnostics.md shows are found under the code of their
section, and the programs in which they are mended are fine. `heddle explain`
prints that page: each section with its programs, each row of a table. Of operations and
keys it prints what operations.md has.

usage: explain.py ROOT HEDDLE
"""
import pathlib
import re
import subprocess
import sys

root, heddle = pathlib.Path(sys.argv[1]), sys.argv[2]
page = (root / "docs/diagnostics.md").read_text(encoding="utf-8")
rows = re.findall(r"^\| (HD\d+) \| (.*) \| (.*) \|$", page, re.M)
sections = re.findall(r"^### (HD\d+)\n(.*?)(?=^##|\Z)", page, re.M | re.S)
wrong = []


def run(*words, text=None):
    return subprocess.run([heddle, *words], input=text, capture_output=True, text=True, timeout=60)


def words_of(text):
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).replace("```", "").split()


def check_mistake(code, text):
    programs = re.findall(r"^```\n(.*?)^```$", text, re.M | re.S)
    if len(programs) != 2:
        wrong.append(f"{code}: {len(programs)} programs instead of a wrong one and a mended one")
        return
    said = run("check", "-", text=programs[0])
    if said.returncode != 1 or set(re.findall(r"error\[(HD\d+)\]", said.stderr)) != {code}:
        wrong.append(f"{code}: its mistake ends with {said.returncode}:\n{said.stderr}")
    said = run("check", "-", text=programs[1])
    if said.returncode != 0 or said.stderr:
        wrong.append(f"{code}: mended it ends with {said.returncode}:\n{said.stderr}")


texts = dict(sections)
for code, text in sections:
    check_mistake(code, text)
for code, what, remedy in rows:
    said = run("explain", code)
    want = words_of(f"{code}: {what} What to do: {remedy} {texts.get(code, '')}")
    if said.returncode != 0 or said.stderr or said.stdout.split() != want:
        wrong.append(f"heddle explain {code} does not print its row and its section:\n{said.stdout}{said.stderr}")
    for line in said.stdout.splitlines()[1:]:
        if len(line) > 79 and " " in line.strip():
            wrong.append(f"heddle explain {code} has a long line: {line}")
listed = re.findall(r"^  (HD\d+)  (.*)$", run("explain").stdout, re.M)
if listed != [(code, what) for code, what, _ in rows]:
    wrong.append("heddle explain does not list what the tables have")
if [code for code in texts if code not in dict.fromkeys(row[0] for row in rows)] or len(sections) < 12:
    wrong.append(f"there are {len(sections)} sections, or one is of no code")
operations = (root / "docs/operations.md").read_text(encoding="utf-8")
rows_of = {}
for row in re.findall(r"^\| (`\w+` \|.*) \|$", operations, re.M):
    name, *cells = re.sub(r"[`*]", "", row.replace("<br>", " ")).split(" | ")
    rows_of.setdefault(name, []).append(cells)
for name, found in rows_of.items():
    said = run("explain", name)
    missing = [cell for cells in found for cell in cells if cell.strip() not in " ".join(said.stdout.split())]
    if said.returncode != 0 or missing:
        wrong.append(f"heddle explain {name} has no {missing}")
if len(rows_of) < 70:
    wrong.append(f"{len(rows_of)} operations and keys")
for spelling in ("hd0801", "0801", "801", "Hd801"):
    if run("explain", spelling).stdout != run("explain", "HD0801").stdout:
        wrong.append(f"{spelling} is not HD0801")
for line in wrong:
    print(line)
sys.exit(bool(wrong))

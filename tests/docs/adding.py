"""The change that docs/adding-an-op.md shows fits the tree as it stands, and is
all that the compiler asks for: every file with a `switch` over element-wise ops
compiles with it, and the page of operations is made, which says what it lacks
as long as the op has no line there. In a tree that has the op already the change
is taken back first.

usage: adding.py ROOT FOLDER CC..
"""
import pathlib
import re
import shutil
import subprocess
import sys

root, copy, compiler = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3:]
FOLDERS = ["base", "tiles", "ir", "steps", "eval", "lower", "check", "simulate", "codegen", "oracle", "runtime",
           "include", "tools", "docs"]
FLAGS = ["-std=c17", "-D_GNU_SOURCE", "-fsyntax-only", "-Wall", "-Wextra", "-Werror",
         "-Werror=switch-enum", "-I.", "-Iinclude"]

page = (root / "docs/adding-an-op.md").read_text()
diff = re.search(r"^```diff\n(.*?)^```", page, re.M | re.S).group(1)
shutil.rmtree(copy, ignore_errors=True)
for folder in FOLDERS:
    shutil.copytree(root / folder, copy / folder)


def change(*how, part=diff):
    return subprocess.run(["git", "apply", *how, "--unsafe-paths", "--directory", str(copy), "-"],
                          input=part, text=True, cwd="/", capture_output=True)


def operations():
    return subprocess.run([sys.executable, "tools/operations.py", "."], cwd=copy, capture_output=True, text=True)


name = re.search(r'^\+HD_MAP\(\w+, "(\w+)"', diff, re.M)[1]
if f'"{name}"' in (root / "ir/ops.def").read_text():
    # What was followed is taken back, and followed once more.
    assert change("--reverse").returncode == 0, f"'{name}' is there, and not as the page has it"
row = diff[:diff.index("--- a/", 1)]
assert change(part=row).returncode == 0, "the row does not fit"
made = operations()
assert made.returncode == 1 and made.stderr.startswith("operations.py: ") and f"'{name}'" in made.stderr, made.stderr
assert change("--reverse", part=row).returncode == 0
applied = change()
assert applied.returncode == 0, applied.stderr
made = operations()
assert made.returncode == 0 and f"\n| `{name}` | `%y = {name} %x` |" in made.stdout, made
switches = [str(path.relative_to(copy)) for path in sorted(copy.rglob("*.c"))
            if re.search(r"case (HD_)?MAP_TANH:", path.read_text())]
touched = set(re.findall(r"^\+\+\+ b/(.*\.c)$", diff, re.M))
assert touched == set(switches), (touched, switches)
for path in ["ir/op.c", *switches]:
    subprocess.run([*compiler, *FLAGS, path], check=True, cwd=copy)
print(f"{len(switches)} files compile with the op")

# The tables name the files that name the op with a shape of its own, or its key.
named = set()
for row in re.findall(r"^\| `.*", page, re.M):
    named.update(re.findall(r"`([\w./-]*/[\w./-]*|CHANGELOG\.md)`", row))
for path in named:
    assert (root / path).exists(), f"{path} of the tables is not there"
folders = [path for path in named if path.endswith("/")]
naming = re.compile(r"PERMUTE|\bpermute\b|HD_KEY_ORDER|INTS\b|\bnints\b|\border \(2, 0, 1\)")
for path in [*(root / "CHANGELOG.md",), *(path for folder in [*FOLDERS, "python", "tests"]
                                          for path in sorted((root / folder).rglob("*")))]:
    if path.suffix in {".c", ".h", ".def", ".cc", ".py", ".md", ".hd"} and naming.search(path.read_text()):
        at = str(path.relative_to(root))
        assert at in named or at.startswith(tuple(folders)) or at == "docs/adding-an-op.md" or \
            at == "tests/docs/adding.py", f"{at} names the op, and docs/adding-an-op.md does not name it"

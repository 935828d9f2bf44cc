"""The change that docs/adding-an-op.md shows fits the tree as it stands, and is
all that the compiler asks for: every file with a `switch` over element-wise ops
compiles with it.

usage: adding.py ROOT FOLDER CC..
"""
import pathlib
import re
import shutil
import subprocess
import sys

root, copy, compiler = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3:]
FOLDERS = ["base", "ir", "steps", "lower", "check", "simulate", "codegen", "oracle", "runtime",
           "include", "tools"]
FLAGS = ["-std=c17", "-D_GNU_SOURCE", "-fsyntax-only", "-Wall", "-Wextra", "-Werror",
         "-Werror=switch-enum", "-I.", "-Iinclude"]

page = (root / "docs/adding-an-op.md").read_text()
diff = re.search(r"^```diff\n(.*?)^```", page, re.M | re.S).group(1)
shutil.rmtree(copy, ignore_errors=True)
for folder in FOLDERS:
    shutil.copytree(root / folder, copy / folder)
subprocess.run(["git", "apply", "--unsafe-paths", "--directory", str(copy), "-"],
               input=diff, text=True, check=True, cwd="/")
switches = [str(path.relative_to(copy)) for path in sorted(copy.rglob("*.c"))
            if re.search(r"case (HD_)?MAP_TANH:", path.read_text())]
touched = set(re.findall(r"^\+\+\+ b/(.*\.c)$", diff, re.M))
assert touched == set(switches), (touched, switches)
for path in ["ir/op.c", *switches]:
    subprocess.run([*compiler, *FLAGS, path], check=True, cwd=copy)
print(f"{len(switches)} files compile with the op")

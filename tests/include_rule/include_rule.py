#!/usr/bin/env python3
"""Reads every #include of the project and enforces who may know whom.

    base <- ir <- steps <- {lower, simulate}; steps <- eval <- {check, oracle};
    base <- ir <- codegen; tiles <- {codegen, simulate};
    runtime uses ir, codegen, base; compile uses lower,
    ir, base, and the groups of runtime/ranks

lower, check, simulate, runtime and oracle never include one another, the tools
use the public headers and the table of ops, and no header needs another one before it. Within
runtime, ranks knows base alone, and the drivers cpu and cuda know ranks and
runtime's own files, but not each other. Within cuda, rooms have an order, of
which each knows those before it and its own, and what a room defines a header
of its own declares. Another sub-folder keeps to its folder's rule.
With HEDDLE_TEST_QUICK=1 a third of the headers that are not public are compiled,
which HEDDLE_TEST_SEED draws.

usage: include_rule.py ROOT CC CXX
"""
import os
import pathlib
import random
import re
import subprocess
import sys

MAY_USE = {
    "base": {"base"},
    "tiles": {"tiles"},
    "ir": {"base", "ir"},
    "steps": {"base", "ir", "steps"},
    "eval": {"base", "ir", "steps", "eval"},
    "lower": {"base", "ir", "steps", "lower"},
    "check": {"base", "ir", "steps", "eval", "check"},
    "simulate": {"base", "tiles", "ir", "steps", "simulate"},
    "compile": {"base", "ir", "lower", "runtime/ranks", "compile"},
    "codegen": {"base", "tiles", "ir", "codegen"},
    "oracle": {"base", "ir", "steps", "eval", "oracle"},
    "runtime": {"base", "ir", "codegen", "runtime", "runtime/ranks",
                "runtime/cpu", "runtime/cuda/vendor", "runtime/cuda/device",
                "runtime/cuda/memory"},
    "runtime/ranks": {"base", "runtime/ranks"},
    "runtime/cpu": {"base", "ir", "runtime", "runtime/ranks", "runtime/cpu"},
    "tools": set(),
}
TABLES = ["ir/ops.def", "ir/signature.def"]
# Folders whose files call one another in a direction.
STRAIGHT = ["tiles", "steps", "eval", "lower", "simulate", "compile", "codegen", "oracle"]
FUNCTION = re.compile(r"^(?!static)\w[\w *\n]*?\b(hd_\w+)\([^;{]*?\)\n\{", re.M)
# From what knows none of the others to what knows all.
ROOMS = ["runtime/cuda/vendor", "runtime/cuda/device", "runtime/cuda/memory",
         "runtime/cuda/commands", "runtime/cuda/libraries",
         "runtime/cuda/transfers", "runtime/cuda/plan", "runtime/cuda/issue",
         "runtime/cuda"]
for n, room in enumerate(ROOMS):
    MAY_USE[room] = {"base", "ir", "codegen", "runtime", "runtime/ranks",
                     *ROOMS[:n + 1]}
MAY_USE["runtime/cuda/transfers"].remove("runtime/cuda/libraries")
MAY_USE["runtime/cuda/issue"].remove("runtime/cuda/plan")
DECLARED = re.compile(r"^[a-z][\w *\n]*?\b(hd_\w+)\([^;{]*?\);", re.M)
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.M)


def stage_of(folder):
    """The longest part of a folder's path that has a rule; None if none has."""
    parts = folder.split("/")
    for n in range(len(parts), 0, -1):
        if "/".join(parts[:n]) in MAY_USE:
            return "/".join(parts[:n])
    return None


def complaints(root, path):
    """What is wrong with the includes of one file, a line each."""
    stage = stage_of(path.parent.relative_to(root).as_posix())
    for match in INCLUDE.finditer(path.read_text()):
        quote, name = match.groups()
        folder = stage_of(name.rpartition("/")[0])
        if name.startswith("heddle/") or (
                name in TABLES and stage == "tools"):
            continue
        if folder is not None and folder not in MAY_USE[stage]:
            yield f"{path}: {stage} may not include {name}"
        elif quote == '"' and stage == "tools":
            own = [path.parent / name, root / "tools" / name]
            if "/" in name or not any(header.is_file() for header in own):
                yield f"{path}: tools may include their own headers, not {name}"
        elif quote == '"' and folder is None:
            yield f"{path}: {name} is not written from the project's root"


def circles(root, folder):
    """Files of a folder that call one another in a circle, a line each."""
    texts = {path.stem: re.sub("//.*", "", path.read_text())
             for path in sorted((root / folder).glob("*.c"))}
    home = {name: file for file, text in texts.items()
            for name in FUNCTION.findall(text)}
    calls = {file: {home[name] for name in re.findall(r"\bhd_\w+", text)
                    if name in home} - {file} for file, text in texts.items()}
    for file in texts:
        below, ahead = set(), [file]
        while ahead:
            more = calls[ahead.pop()] - below
            below |= more
            ahead += more
        if file in below:
            yield f"{folder}/{file}.c: calls in a circle"


def strays(root):
    """What one room of runtime/cuda defines and another one's header declares."""
    declared = {}
    for path in sorted((root / "runtime/cuda").rglob("*.h")):
        for name in DECLARED.findall(path.read_text()):
            declared[name] = path.parent
    for path in sorted((root / "runtime/cuda").rglob("*.c")):
        for name in FUNCTION.findall(path.read_text()):
            if declared.get(name, path.parent) != path.parent:
                yield f"{path}: {name} is declared in {declared[name]}"


def stands_alone(root, path, compiler, language, standard):
    """Whether a header compiles with nothing before it."""
    command = [compiler, f"-std={standard}", "-D_GNU_SOURCE", "-Wall",
               "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only",
               f"-I{root}", f"-I{root}/include", f"-I{root}/tools",
               "-x", language, "-"]
    text = f'#include "{path}"\n'
    done = subprocess.run(command, input=text, text=True, check=False,
                          stderr=subprocess.PIPE)
    if done.returncode != 0:
        print(done.stderr, file=sys.stderr)
    return done.returncode == 0


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    cc, cxx = sys.argv[2:4]
    wrong, nfiles = list(strays(root)), 0
    quick = os.environ.get("HEDDLE_TEST_QUICK") == "1"
    seed = os.environ.get("HEDDLE_TEST_SEED") or str(random.randrange(2**32))
    drawn = random.Random(seed)

    for stage in (folder for folder in MAY_USE if "/" not in folder):
        for path in sorted((root / stage).rglob("*.[ch]")):
            nfiles += 1
            wrong += complaints(root, path)
            if path.suffix != ".h" or (quick and drawn.randrange(3) > 0):
                continue
            if not stands_alone(root, path, cc, "c", "c17"):
                wrong.append(f"{path}: does not compile alone as C17")
            # A header that C++ may include says so; C's atomics cannot.
            if "HD_BEGIN_DECLS" in path.read_text() and not stands_alone(
                    root, path, cxx, "c++", "c++17"):
                wrong.append(f"{path}: does not compile alone as C++17")
    for public in sorted((root / "include/heddle").glob("*.h")):
        if not stands_alone(root, public, cc, "c", "c99"):
            wrong.append(f"{public}: does not compile alone as C99")
        if not stands_alone(root, public, cxx, "c++", "c++17"):
            wrong.append(f"{public}: does not compile alone as C++17")
    for folder in STRAIGHT + ROOMS:
        wrong += circles(root, folder)
    for line in wrong:
        print(line, file=sys.stderr)
    print(f"{nfiles} files read, {len(wrong)} complaints, seed {seed}")
    sys.exit(bool(wrong) or nfiles < 20)


main()

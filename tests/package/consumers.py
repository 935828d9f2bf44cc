"""Programs of others, examples/backend among them, find, compile, link and run
what is installed, by find_package and by pkg-config, shared and static, where
it was installed and where it was moved to; and a project of others takes this
tree as a part.

usage: consumers.py SOURCE BUILD WORK PROGRAM VERSION

BUILD is what is installed from, PROGRAM one in C that prints `2 4 2 4`.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys

source, build, work, program = map(pathlib.Path, sys.argv[1:5])
version = sys.argv[5]
abi = version.rsplit(".", 1)[0]
consumer = pathlib.Path(__file__).parent / "consumer"
cache = dict(line.split("=", 1) for line in (build / "CMakeCache.txt").read_text().splitlines()
             if "=" in line and line[0] not in "/#")
CC, CXX, LAUNCHER = (next((v for k, v in cache.items() if k.startswith(name + ":")), "")
                     for name in ("CMAKE_C_COMPILER", "CMAKE_CXX_COMPILER", "CMAKE_C_COMPILER_LAUNCHER"))


def run(*words, **more):
    done = subprocess.run([str(word) for word in words], text=True, timeout=250,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **more)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}\nexit code {done.returncode}:\n{done.stdout}")
    return done.stdout


def needs_library(binary):
    return f"libheddle.so.{abi}]" in run("readelf", "-d", binary)


def judge(binary, shared, **more):
    said = run(binary, **more)
    if said != "2 4 2 4\n":
        sys.exit(f"{binary} printed {said!r}")
    if needs_library(binary) != shared:
        sys.exit(f"{binary}: linked {'statically' if shared else 'with the shared library'}")


def configure(name, *options):
    folder = work / name
    run("cmake", "-S", consumer, "-B", folder, "-G", "Ninja", f"-DCMAKE_C_COMPILER={CC}",
        f"-DCMAKE_CXX_COMPILER={CXX}", f"-DPROGRAM={program}", f"-DWANTED={abi}",
        "-DCMAKE_C_FLAGS=-Wall -Wextra -Werror", "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror",
        "-DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF", *options)
    if (folder / "reached").read_text():
        sys.exit(f"{name}: what is linked with heddle is compiled with {(folder / 'reached').read_text()}")
    return folder


def build_consumer(folder, shared):
    run("cmake", "--build", folder)
    for binary in ("in_c", "in_cxx"):
        judge(folder / binary, shared)


def find_package(name, prefix, shared, *options):
    folder = configure(name, "-DMODE=package", f"-DCMAKE_PREFIX_PATH={prefix}", *options)
    build_consumer(folder, shared)


def pkg_config(name, prefix, shared, *options, lib="lib"):
    path = {"PKG_CONFIG_PATH": prefix / lib / "pkgconfig", "PATH": "/usr/bin:/bin",
            "LD_LIBRARY_PATH": prefix / lib}
    path = {key: str(value) for key, value in path.items()}
    words = run("pkg-config", *options, "--cflags", "--libs", "heddle", env=path).split()
    if any("//" in word or not str(prefix.resolve()) in str(pathlib.Path(word[2:]).resolve())
           for word in words if word[:2] in ("-I", "-L")):
        sys.exit(f"pkg-config leads out of {prefix}: {words}")
    for compiler, text in ((CC, program), (CXX, consumer / "main.cc")):
        binary = work / f"{name}_{text.suffix[1:]}"
        run(compiler, "-Wall", "-Wextra", "-Werror", text, "-o", binary, *words)
        judge(binary, shared, env=path)


def check_installed(prefix):
    """Nothing names the folder that it was built in or the one that it was
    installed to, and what is there is what is meant to be."""
    for file in prefix.rglob("*"):
        content = file.read_bytes() if file.is_file() else b""
        if content[:4] in (b"\x7fELF", b"!<ar"):  # whose debugging information does
            continue
        for folder in (build, source, prefix):
            if str(folder).encode() in content:
                sys.exit(f"{file} names {folder}")
    for name in ("bin/heddle", f"lib/libheddle.so.{abi}", "lib/libheddle.a", "include/heddle/heddle.h",
                 "libexec/heddle/heddle-gen", "share/heddle/examples/machines/h200x8.json",
                 "share/man/man1/heddle-run.1", "share/bash-completion/completions/heddle",
                 "share/zsh/site-functions/_heddle", "share/fish/vendor_completions.d/heddle.fish",
                 "share/doc/heddle/LICENSE", "share/doc/heddle/docs/cli.md"):
        if not (prefix / name).exists():
            sys.exit(f"{name} is not installed")
    if [file.name for file in (prefix / "bin").iterdir()] != ["heddle"]:
        sys.exit("bin has more than heddle")
    if "RUNPATH" in run("readelf", "-d", prefix / "bin/heddle"):
        sys.exit("bin/heddle has a RUNPATH")


def judge_backend(binary, *words, **more):
    said = run(binary, *words, "1", "17", "250", "17", **more)
    rows = [re.findall(r"\d+", line.partition(", error")[0]) for line in said.splitlines()[1:]]
    if rows != [["1", "3", "1", "3"], ["17", "3", "5", "3"], ["250", "3", "9", "3"], ["17", "3", "13", "3"]]:
        sys.exit(f"{binary} {words} printed\n{said}")


def backend(prefix):
    """The backend that is installed as an example: forked, as ranks that were
    started by somebody else, and on stand-ins for CUDA, run by run and as graphs
    of its own; and its messages point at its nodes."""
    folder = work / "backend"
    run("cmake", "-S", prefix / "share/heddle/examples/backend", "-B", folder, "-G", "Ninja",
        f"-DCMAKE_CXX_COMPILER={CXX}", f"-DCMAKE_PREFIX_PATH={prefix}",
        "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Wpedantic -Werror", "-DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF")
    run("cmake", "--build", folder)
    judge_backend(folder / "backend")
    fakes = {f"HEDDLE_{name.upper()}_LIB": str(build / f"tests/fake/libfake_{name}.so")
             for name in ("cuda", "nvrtc", "cublaslt", "nccl")}
    for how in ("--cuda", "--graph"):
        judge_backend(folder / "backend", how, env={**os.environ, **fakes})
    ranks = [subprocess.Popen([folder / "backend", "17"], text=True, stdout=subprocess.PIPE,
                              env={**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "4",
                                   "LOCAL_WORLD_SIZE": "4", "TORCHELASTIC_RUN_ID": f"backend{os.getpid()}"})
             for rank in range(4)]
    said = [rank.communicate(timeout=60)[0] for rank in ranks]
    if any(rank.returncode for rank in ranks) or "".join(said[1:]) or "M 17: programs made 3, found 1," not in said[0]:
        sys.exit(f"ranks that were started printed {said}")
    for word in ("--grpah", "17x", "0", "4097", ""):
        refused = subprocess.run([folder / "backend", word], text=True, capture_output=True, timeout=60)
        if refused.returncode != 2 or not refused.stderr.startswith(f"'{word}' is no option, and no number of rows"):
            sys.exit(f"{word} is refused as\n{refused.stderr}")
    wrong = subprocess.run([folder / "backend", "--wrong"], text=True, capture_output=True, timeout=60)
    if wrong.returncode != 1 or "node 9 (matmul): matmul: k is 24 in " not in wrong.stderr:
        sys.exit(f"a wrong graph is told as\n{wrong.stderr}")


def installed():
    first, moved = work / "prefix", work / "moved"
    run("cmake", "--install", build, "--prefix", first)
    check_installed(first)
    find_package("shared", first, True)
    find_package("static", first, False, "-DBUILD_SHARED_LIBS=OFF")
    pkg_config("pc", first, True)
    first.rename(moved)
    find_package("moved_static", moved, False, "-DCOMPONENTS=static;tools")
    find_package("moved_shared", moved, True, "-DCOMPONENTS=shared")
    backend(moved)
    pkg_config("moved_pc", moved, True)
    # Where there is the static library alone, -lheddle is that.
    for file in (moved / "lib").glob("libheddle.so*"):
        file.unlink()
    (moved / "lib/cmake/heddle/heddle-shared.cmake").unlink()
    pkg_config("static_pc", moved, False, "--static")
    find_package("static_alone", moved, False)


def subproject():
    """It is built and not installed, needs neither GoogleTest nor cJSON, and
    its targets are those of the library; the rest is there for who asks."""
    hidden = [f"-DCMAKE_DISABLE_FIND_PACKAGE_{name}=ON" for name in ("GTest", "Python3")]
    folder = configure("subproject", "-DMODE=subproject", f"-DSOURCE={source}", "-DCJSON_LIBRARY=/none",
                       f"-DCMAKE_C_COMPILER_LAUNCHER={LAUNCHER}", *hidden)
    build_consumer(folder, False)
    run("cmake", "--install", folder, "--prefix", work / "only")
    files = sorted(str(f.relative_to(work / "only")) for f in (work / "only").rglob("*") if f.is_file())
    if files != ["bin/in_c"]:
        sys.exit(f"the subproject installs {files}")
    others = [f for f in folder.rglob("*") if f.is_file() and f.stat().st_mode & 0o111
              and f.name not in ("in_c", "in_cxx") and "CMakeFiles" not in f.parts]
    if others:
        sys.exit(f"the subproject builds {others}")
    run("cmake", folder, "-DBUILD_SHARED_LIBS=ON", "-DHEDDLE_TOOLS=ON", "-DHEDDLE_INSTALL=ON", "-UCJSON_LIBRARY",
        "-DCMAKE_INSTALL_LIBDIR=lib/machine")
    build_consumer(folder, True)
    run("cmake", "--install", folder, "--prefix", work / "whole")
    (work / "whole").rename(work / "elsewhere")
    tool = work / "elsewhere/bin/heddle"
    if not run(tool, "version").startswith(f"heddle {version} ") or not needs_library(tool):
        sys.exit("the command is not linked with the shared library")
    pkg_config("elsewhere_pc", work / "elsewhere", True, lib="lib/machine")
    find_package("elsewhere_shared", work / "elsewhere", True,
                 f"-Dheddle_DIR={work}/elsewhere/lib/machine/cmake/heddle")
    run(work / "elsewhere/libexec/heddle/heddle-gen", "--seed", 1)


shutil.rmtree(work, ignore_errors=True)
work.mkdir(parents=True)
installed()
subproject()

"""`pip install` into a fresh environment, and the tests of the package in it.

usage: run.py ROOT BUILD WORK

The library and the command are those of BUILD, so that the wheel has them without
compiling them again. Where no package registry is reached, it is skipped (77); no
test is skipped by itself.
"""
import os
import pathlib
import shutil
import subprocess
import sys

root, build, work = map(pathlib.Path, sys.argv[1:4])
SKIPPED = 77
TOOLS = ["scikit-build-core>=0.10", "cffi>=1.15", "numpy", "ml_dtypes", "mypy"]


def run(*words, **more):
    done = subprocess.run([str(word) for word in words], text=True, timeout=250,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **more)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}\nexit code {done.returncode}:\n{done.stdout}")
    return done.stdout


def make_environment():
    """The environment's Python, with what a wheel is made with and tested against."""
    made = subprocess.run([sys.executable, "-m", "venv", work / "venv"], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if made.returncode != 0:
        print(f"skipped: no environment can be made (python3-venv):\n{made.stdout}")
        sys.exit(SKIPPED)
    python = work / "venv/bin/python"
    got = subprocess.run([python, "-m", "pip", "install", "-q", "--no-compile", "--only-binary",
                          ":all:", *TOOLS],
                         text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if got.returncode != 0:
        print(f"skipped: {', '.join(TOOLS)} cannot be installed:\n{got.stdout}")
        sys.exit(SKIPPED)
    return python


shutil.rmtree(work, ignore_errors=True)
work.mkdir(parents=True)
python = make_environment()
run(python, "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps", "-w", work / "dist",
    "-C", f"cmake.define.HEDDLE_BUILT={build}", "-C", f"build-dir={work / 'build'}",
    "-C", "cmake.build-type=Debug", root)
(wheel,) = (work / "dist").glob("heddle-*-cp39-abi3-*.whl")
run(python, "-m", "pip", "install", "-q", "--no-deps", wheel)
said = run(python, "-m", "unittest", "discover", "-v", root / "python/tests", cwd=work,
           env={**os.environ, "HEDDLE_ROOT": str(root), "HEDDLE_FAKES": str(build / "tests/fake")})
print(said)
sys.exit("a test was skipped" if "skipped=" in said else 0)

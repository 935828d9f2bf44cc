"""`pip install` into a fresh environment, and the tests of the package in it.

usage: run.py ROOT BUILD WORK [--environment]

The library and the command are those of BUILD, so that the wheel has them without
compiling them again. --environment makes the environment alone, for the next run, which
needs no registry then. The one wheel is tested in the Python that runs this, and in
OLDEST, the first whose interface it uses, if this machine has that, on PATH or from
pyenv; with HEDDLE_TEST_QUICK=1 a third of the tests there, which HEDDLE_TEST_SEED draws.
Where no package registry is reached, it is skipped (77); no test is skipped by
itself.
"""
import concurrent.futures
import glob
import os
import pathlib
import random
import shutil
import subprocess
import sys

root, build, work = map(pathlib.Path, sys.argv[1:4])
SKIPPED = 77
NEEDED = ["cffi>=1.15", "numpy", "ml_dtypes"]
TOOLS = ["scikit-build-core>=0.10", "mypy", "jax"]
OLDEST = "python3.9"


def run(*words, **more):
    done = subprocess.run([str(word) for word in words], text=True, timeout=900,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **more)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}\nexit code {done.returncode}:\n{done.stdout}")
    return done.stdout


def make_environment(base, folder, packages):
    """The Python of an environment of `base` with these packages."""
    made = subprocess.run([base, "-m", "venv", folder], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    if made.returncode != 0:
        print(f"skipped: no environment can be made (python3-venv):\n{made.stdout}")
        sys.exit(SKIPPED)
    python = folder / "bin/python"
    got = subprocess.run([python, "-m", "pip", "install", "-q", "--no-compile", "--only-binary",
                          ":all:", *packages],
                         text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if got.returncode != 0:
        print(f"skipped: {', '.join(packages)} cannot be installed:\n{got.stdout}")
        sys.exit(SKIPPED)
    return python


def find_python(name):
    """One that works: pyenv has a command on PATH for each, whether or not it is to be
    had by it."""
    home = os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv"))
    for found in (shutil.which(name), *glob.glob(f"{home}/versions/*/bin/{name}")):
        if found and subprocess.run([found, "-c", "import ensurepip, venv"],
                                    capture_output=True).returncode == 0:
            return found
    return None


def test(python, wheel, names):
    run(python, "-m", "pip", "install", "-q", "--no-deps", wheel)
    said = run(python, "-m", "unittest", "-v", *names, cwd=work,
               env={**os.environ, "HEDDLE_ROOT": str(root), "HEDDLE_CACHE_DIR": "off",
                    "PYTHONPATH": str(root / "python/tests"),
                    "HEDDLE_FAKES": str(build / "tests/fake")})
    print(run(python, "--version"), said)
    if "skipped=" in said:
        sys.exit("a test was skipped")


ready = work / "ready"  # an environment that no test has been in
if ready.exists():
    python = work / "venv/bin/python"
else:
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    python = make_environment(sys.executable, work / "venv", NEEDED + TOOLS)
if sys.argv[4:] == ["--environment"]:
    ready.touch()
    sys.exit()
ready.unlink(missing_ok=True)
run(python, "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps", "-w", work / "dist",
    "-C", f"cmake.define.HEDDLE_BUILT={build}", "-C", f"build-dir={work / 'build'}",
    "-C", "cmake.build-type=Debug", root)
(wheel,) = (work / "dist").glob("heddle-*-cp39-abi3-*.whl")
names = sorted(file.stem for file in (root / "python/tests").glob("test_*.py"))


def test_oldest():
    base = find_python(OLDEST)
    if base is None:
        return print(f"there is no {OLDEST} here")
    # What mypy says of the package is the same in each, and JAX is for newer ones.
    mine = [each for each in names if each not in ("test_types", "test_jax")]
    if os.environ.get("HEDDLE_TEST_QUICK") == "1":
        seed = os.environ.get("HEDDLE_TEST_SEED") or str(random.randrange(2**32))
        print(f"HEDDLE_TEST_SEED={seed}")
        mine = random.Random(seed).sample(mine, (len(mine) + 2) // 3)
    test(make_environment(base, work / OLDEST, NEEDED), wheel, mine)


with concurrent.futures.ThreadPoolExecutor() as pool:
    tested = [pool.submit(test, python, wheel, names), pool.submit(test_oldest)]
for each in tested:
    each.result()

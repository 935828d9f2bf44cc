"""heddle.torch on the cpu: PyTorch in an environment of its own, and tests under torchrun.

usage: run.py ROOT BUILD WORK [--environment | KILLS [TEST..]]

The wheel has the library and the command of BUILD. KILLS is how many peers are
killed, 20 unless it is given; TEST is one of 2, 4, cuda and killed, all if none is
named. An environment that is in WORK already is used as it is, with the wheel made
anew; --environment makes that and no more. Where no package registry is reached,
exit code 77.

PyTorch's wheel for Linux is linked against CUDA's libraries, 4 GB that the cpu has
no use for. So it is installed without them, and beside its own libraries go stand-ins
that have their names and symbols: each call says that there is no device.
"""
import collections
import os
import pathlib
import re
import subprocess
import sys
import time

TORCH = "torch>=2.15"
NEEDED = ["filelock", "typing-extensions>=4.13", "sympy>=1.13.3", "networkx", "jinja2", "fsspec",
          "numpy", "cffi>=1.15", "scikit-build-core>=0.10"]
NO_DEVICE = 100  # cudaErrorNoDevice, CUDA_ERROR_NO_DEVICE
UNVERSIONED = "libcufile.so.0"  # which gets all symbols without a version
SKIPPED = 77
TESTS = ("2", "4", "cuda", "killed")
begin = time.monotonic()


def tell(what):
    print(f"{time.monotonic() - begin:6.1f} s  {what}", flush=True)


def run(*words, **more):
    done = subprocess.run([str(word) for word in words], text=True, timeout=600,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **more)
    return done.returncode, done.stdout


def must(*words, **more):
    code, said = run(*words, **more)
    if code != 0:
        sys.exit(f"{' '.join(map(str, words))}\nexit code {code}:\n{said}")
    return said


def may(*words):
    code, said = run(*words)
    if code != 0:
        print(f"skipped: {' '.join(map(str, words))}\n{said}")
        sys.exit(SKIPPED)


# ------------------------------------------------------------------- stand-ins


def symbols_of_cuda(folder):
    """The libraries of CUDA's that those in `folder` need, each with what they want of
    it. A symbol has its library's name as its version, or none."""
    files = sorted(folder.glob("*.so"))
    needed = set(re.findall(r"NEEDED.*\[(lib(?:cu|nv|nccl).*)\]", must("readelf", "-dW", *files)))
    defined = set(re.findall(r" [A-Z] (\w+)", must("nm", "-D", "--defined-only", *files)))
    wanted = collections.defaultdict(set)
    for symbol in re.findall(r" U (\S+)", must("nm", "-D", "--undefined-only", *files)):
        name, version = (symbol.replace("@@", "@") + "@").split("@")[:2]
        if version in needed or version == "NVSHMEM":
            wanted[version].add(name)
        elif not version and re.match("cu|nccl", name) and name not in defined:
            wanted[UNVERSIONED].add(name)
    wanted["libnvshmem_host.so.3"] = wanted.pop("NVSHMEM", set())
    return {library: wanted[library] for library in needed}


def make_stand_in(folder, library, names):
    version = "NVSHMEM" if "nvshmem" in library else library
    text = "".join(
        f'const char *{name}(void) {{ return "no CUDA here"; }}\n' if "String" in name else
        f"int {name}(void) {{ return {NO_DEVICE}; }}\n" for name in sorted(names))
    script = folder / "stand-in.map"
    script.write_text("{ global: *; };" if library == UNVERSIONED else f"{version} {{ *; }};")
    must("gcc", "-shared", "-w", "-nostdlib", "-fno-builtin", f"-Wl,-soname,{library}",
         f"-Wl,--version-script={script}", "-o", folder / library, "-x", "c", "-", input=text)


# ----------------------------------------------------------------- environment


def make_environment(work):
    may(sys.executable, "-m", "venv", work)
    python = work / "bin/python"
    install = [python, "-m", "pip", "install", "-q", "--no-compile", "--only-binary", ":all:"]
    may(*install, *NEEDED)
    may(*install, "--no-deps", TORCH)
    tell("PyTorch is installed")
    (library,) = work.glob("lib/python*/site-packages/torch/lib")
    for name, names in symbols_of_cuda(library).items():
        make_stand_in(library, name, names)
    (work / "complete").touch()


def install_wheel(root, build, work):
    python = work / "bin/python"
    must(python, "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps", "-w",
         work / "dist", "-C", f"cmake.define.HEDDLE_BUILT={build}", "-C",
         f"build-dir={work / 'build'}", "-C", "cmake.build-type=Debug", root)
    (wheel,) = (work / "dist").glob("heddle-*-abi3-*.whl")
    must(python, "-m", "pip", "install", "-q", "--no-deps", "--force-reinstall", wheel)


def main():
    root, build, work = (pathlib.Path(word).resolve() for word in sys.argv[1:4])
    some = sys.argv[5:] or TESTS
    if not set(some) <= set(TESTS):
        sys.exit(f"run.py: the tests are {', '.join(TESTS)}, not {' '.join(some)}")
    kills = sys.argv[4] if len(sys.argv) > 4 else "20"
    if not (work / "complete").exists():
        make_environment(work)
    if kills == "--environment":
        return
    install_wheel(root, build, work)
    tell("the wheel is installed")
    here, failed = root / "python/tests/with_torch", 0
    more = {"cwd": work, "env": {**os.environ, "HEDDLE_ROOT": str(root), "OMP_NUM_THREADS": "1"}}
    torchrun = [work / "bin/torchrun", "--nproc-per-node"]
    tests = {
        "2": ("2 ranks", [*torchrun, "2", here / "ranks.py"]),
        "4": ("4 ranks", [*torchrun, "4", here / "ranks.py", "test_ops.py"]),
        "cuda": ("the script for CUDA, on the cpu",
                 [work / "bin/python", here / "on_cuda.py", "--device", "cpu", "--only",
                  "operators"]),
        "killed": ("killed peers", [work / "bin/python", here / "killed.py", kills]),
    }
    for what, words in map(tests.__getitem__, some):
        code, said = run(*words, **more)
        failed += code != 0
        print(said if code else "\n".join(re.findall("^(?:seed|Ran|[0-9]+ peers).*$", said, re.M)))
        tell(f"{what}: {'FAILED' if code else 'passed'}")
    print(f"{len(some) - failed} passed, {failed} failed")
    sys.exit(failed > 0)


main()

"""The packages for Debian: which there are, what is in them, what they need, and
that the command runs from where they put it. lintian finds no error, if it is
installed.

usage: debs.py BUILD WORK VERSION
"""
import pathlib
import re
import shutil
import subprocess
import sys

build, work = map(pathlib.Path, sys.argv[1:3])
version = sys.argv[3]
abi = version.rsplit(".", 1)[0]


def run(*words):
    done = subprocess.run([str(word) for word in words], text=True, timeout=250,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}\nexit code {done.returncode}:\n{done.stdout}")
    return done.stdout


def field(deb, name):
    return run("dpkg-deb", "-f", deb, name).strip()


# What each must need, and some of what each must hold; a path of one is in no
# other.
WANTED = {
    f"libheddle{abi}": (["libc6"], [f"lib/libheddle.so.{abi}", f"lib/libheddle.so.{version}"]),
    "libheddle-dev": ([f"libheddle{abi} (= {version})", "libc6-dev"],
                      ["include/heddle/heddle.h", "lib/libheddle.so", "lib/libheddle.a", "lib/pkgconfig/heddle.pc",
                       "lib/cmake/heddle/heddleConfig.cmake", "share/doc/heddle/CHANGELOG.md"]),
    "heddle-tools": (["libc6", "libcjson1"],
                     ["bin/heddle", "share/man/man1/heddle.1.gz", "libexec/heddle/heddle-gen",
                      "share/heddle/examples/machines/h200x8.json", "lib/cmake/heddle/heddle-tools.cmake"]),
}


def check(deb, seen):
    name = field(deb, "Package")
    needs, files = WANTED[name]
    depends = [entry.strip() for entry in field(deb, "Depends").split(",")]
    for need in needs:
        if need not in depends and not any(entry.startswith(need + " (") for entry in depends):
            sys.exit(f"{name} depends on {depends}, and not on {need}")
    if len(depends) != len(needs):
        sys.exit(f"{name} depends on {depends}, which is more than {needs}")
    held = {line.split(" -> ")[0].split("./", 1)[1] for line in run("dpkg-deb", "-c", deb).splitlines()
            if not line.startswith("d")}
    for file in [*files, f"share/doc/{name}/copyright", f"share/doc/{name}/changelog.gz"]:
        if "usr/" + file not in held:
            sys.exit(f"{name} lacks usr/{file}")
    if held & seen:
        sys.exit(f"{name} holds what another holds: {held & seen}")
    if any(not re.match("usr/(bin|include|lib|libexec|share)/", file) for file in held):
        sys.exit(f"{name} holds what is out of place: {held}")
    seen |= held
    run("dpkg-deb", "-x", deb, work / "root")


shutil.rmtree(work, ignore_errors=True)
work.mkdir(parents=True)
run("cpack", "--config", build / "CPackConfig.cmake", "-G", "DEB", "-B", work)
debs = sorted(work.glob("*.deb"))
if sorted(field(deb, "Package") for deb in debs) != sorted(WANTED):
    sys.exit(f"packages: {debs}")
seen = set()
for deb in debs:
    check(deb, seen)
if run(work / "root/usr/bin/heddle", "version") .split()[:2] != ["heddle", version]:
    sys.exit("the command does not tell its version")
library = next(deb for deb in debs if field(deb, "Package") == f"libheddle{abi}")
if f"libheddle {abi} libheddle{abi} (>= {version})" not in run("dpkg-deb", "-I", library, "shlibs"):
    sys.exit(f"{library} does not say what a program that is linked with it needs")
if shutil.which("lintian"):
    # Whoever builds packages gives their own address (CPACK_PACKAGE_CONTACT).
    run("lintian", "--allow-root", "--fail-on", "error", "--suppress-tags",
        "bogus-mail-host,bogus-mail-host-in-debian-changelog", *debs)

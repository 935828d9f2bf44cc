"""The pages that are made of the commands' rows say what --help says: pages of
the manual, which troff reads without a warning, and the completion of shells,
which is asked what it completes. Shells that are not installed are left out.

usage: pages.py HEDDLE PAGES
"""
import pathlib
import re
import shutil
import subprocess
import sys

heddle, pages = sys.argv[1], pathlib.Path(sys.argv[2])
wrong = []


def said(*words):
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    if done.returncode != 0 or done.stderr:
        wrong.append(f"{' '.join(map(str, words))[:200]}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout


def options(command):
    return re.findall(r"^  (?:-\w, |    )(--[a-z-]+)", said(heddle, command, "--help"), re.M)


def expect(what, got, want):
    if sorted(got) != sorted(want):
        wrong.append(f"{what}: {sorted(got)} instead of {sorted(want)}")


def check_man(command):
    name = f"heddle-{command}" if command else "heddle"
    page = pages / f"man1/{name}.1"
    said("groff", "-man", "-Tascii", "-ww", "-z", str(page))
    text = said("groff", "-man", "-Tascii", "-P-bcou", "-rLL=200n", str(page))
    first = said(heddle, "help", *([command] if command else []))
    expect(f"{page.name}: options", re.findall(r"^       (?:-\w, )?(--[a-z-]+)", text, re.M),
           options(command) if command else [])
    if "\\" in text:
        wrong.append(f"{page.name} shows a backslash")
    about = first.split("\n\n")[1].strip().rstrip(".")
    if " ".join(about.split())[:60].lower() not in " ".join(text.split()).lower():
        wrong.append(f"{page.name} does not say {about}")
    if not re.search(rf"^NAME\n +{name} - [a-z].*[^.]$", text, re.M):
        wrong.append(f"{page.name}: NAME is not one line without a full stop")


def bash(*words):
    script = ('source "$1"; shift; COMP_WORDS=(heddle "$@"); COMP_CWORD=$#; _heddle; '
              'printf "%s\\n" "${COMPREPLY[@]}"')
    file = pages / "bash-completion/completions/heddle"
    return said("bash", "--norc", "-c", script, "bash", str(file), *words).split()


def fish(*words):
    file = pages / "fish/vendor_completions.d/heddle.fish"
    line = " ".join(("heddle", *words))
    found = said("fish", "--no-config", "-c", f"source {file}; complete -C '{line}'")
    return [line.split("\t")[0] for line in found.splitlines()]


def check_completion(complete, equals):
    name = complete.__name__
    expect(f"{name}: commands", [w for w in complete("") if w[0] != "-"], commands)
    expect(f"{name}: d", complete("d"), ["dump"])
    for command in commands:
        got = {w for w in complete(command, "--") if len(w) > 2 and w.startswith("--")}
        expect(f"{name}: options of {command}", got - {"--help"}, options(command))
    stages = ["steps", "stream"]
    expect(f"{name}: --stage st", complete("dump", "--stage", "st"), stages)
    expect(f"{name}: --stage=st", complete("dump", *equals("--stage", "st")),
           stages if complete is bash else ["--stage=" + stage for stage in stages])
    expect(f"{name}: --device c", complete("run", "--device", "c"), ["cpu", "cuda"])


overview = said(heddle, "help")
commands = re.findall(r"^  ([a-z]+) ", overview, re.M)
documented = [command for command in commands if command not in ("version", "help")]
expect("pages", [file.name for file in (pages / "man1").iterdir()],
       ["heddle.1"] + [f"heddle-{c}.1" for c in documented])
if shutil.which("groff"):
    for command in ["", *documented]:
        check_man(command)
check_completion(bash, lambda option, value: (option, "=", value))
expect("bash: a list", bash("bench", "--transfer", "ring,bulk,d"), ["ring,bulk,direct"])
expect("bash: nothing of its own, so files", bash("dump", "x"), [])
expect("bash: help", bash("help", "s"), ["simulate"])
expect("bash: explain", bash("explain", "HD011"), [])
expect("bash: explain", bash("explain", "HD0708"), ["HD0708"])
if shutil.which("fish"):
    expect("fish: explain", fish("explain", "HD0708"), ["HD0708"])
    check_completion(fish, lambda option, value: (f"{option}={value}",))
if shutil.which("zsh"):
    said("zsh", "-n", str(pages / "zsh/site-functions/_heddle"))
for line in wrong:
    print(line)
sys.exit(bool(wrong))

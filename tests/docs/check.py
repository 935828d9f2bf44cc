"""What the pages say can be followed: their links lead to files and headings,
and their commands exist with the options that stand behind them (blocks.py runs
what they show). The map of design.md has a place for each source file, and no file
that is not there. semantics.md names each operation and key. No file has the marks
of a conflict.

usage: check.py ROOT HEDDLE
"""
import pathlib
import re
import subprocess
import sys

root, heddle = pathlib.Path(sys.argv[1]), sys.argv[2]
wrong = []
SOURCES = {".c", ".h", ".def", ".cc", ".cu", ".py", ".sh"}


def run(*words):
    return subprocess.run([heddle, *words], capture_output=True, text=True, timeout=60)


def slugs(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    heads = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in heads}


def check_links(page, text):
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path) if path else page
        if not file.exists():
            wrong.append(f"{page.name}: {target} is not there")
        elif anchor and anchor not in slugs(file):
            wrong.append(f"{page.name}: {target} has no such heading")


helps = {}


def check_command(page, line):
    words = line.split("#")[0].split("|")[0].split()
    if len(words) < 2 or not re.fullmatch(r"[a-z]+", words[1]) or words[1] in ("help", "version"):
        return
    if words[1] not in helps:
        helps[words[1]] = run(words[1], "--help")
    if helps[words[1]].returncode != 0:
        wrong.append(f"{page.name}: there is no command '{line}'")
        return
    for option in re.findall(r"(?<=\s)--[a-z][a-z-]*", line):
        if option != "--help" and option + " " not in helps[words[1]].stdout:
            wrong.append(f"{page.name}: heddle {words[1]} has no {option}")


def check_map(text):
    """Headings name folders; the first cell of a row names files without their
    ending, or folders with a slash, whose files then need no row."""
    part = text.split("## In which order to read it", 1)[1].split("\n## ", 1)[0]
    mapped = set()
    for section in re.split(r"^### ", part, flags=re.M)[1:]:
        folder = root / section.split("`")[1]
        here = {file.name.split(".")[0] for file in folder.iterdir() if file.suffix in SOURCES}
        for cell in re.findall(r"^\|([^|]*)\|", section, re.M):
            for name in re.findall(r"`([^`]*)`", cell):
                if name.endswith("/"):
                    mapped.update((folder / name).rglob("*"))
                elif name not in here:
                    wrong.append(f"design.md: {folder.relative_to(root)}/{name} is not there, or twice on the map")
                here.discard(name)
        for name in sorted(here):
            wrong.append(f"design.md: {folder.relative_to(root)}/{name} has no place on the map")
        mapped.update(folder.iterdir())
    for top in (f for f in root.iterdir() if not re.match(r"\.|build|examples", f.name)):
        for file in top.rglob("*") if top.is_dir() else []:
            if file.suffix in SOURCES and file not in mapped:
                wrong.append(f"design.md: {file.relative_to(root)} is in a folder that the map lacks")


def check_words(rows, text):
    named = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]*)`", text))))
    for word in re.findall(r'^HD_\w+\(\w+, "(\w+)"', rows, re.M):
        if word not in named:
            wrong.append(f"semantics.md does not name {word} of ir/ops.def")


def check_typed():
    """What the README has typed is what its demo builds, and says so."""
    demo = (root / "tools/demo.sh").read_text()
    typed = re.search(r'`export PATH="\$PWD/([^:]*):\$PATH"`', (root / "README.md").read_text(encoding="utf-8"))
    built = re.search(r"^build=\$root/(.*)$", demo, re.M)
    said = re.search(r"""^printf '.*export PATH="%s:\$PATH"\\n' \\\n.*"\$build/(\w+)"$""", demo, re.M)
    if not typed or not said or typed[1] != f"{built[1]}/{said[1]}":
        wrong.append("README.md and tools/demo.sh do not put the same folder on PATH")


def check_site():
    """A command that is not there is told, and nothing is installed for it."""
    absent = root / "no/heddle"
    made = subprocess.run([root / "tools/site.sh", absent], capture_output=True, text=True)
    if made.returncode != 2 or made.stderr != f"site.sh: there is no command {absent}: build it, or name none, and site.sh does\n":
        wrong.append(f"site.sh: {made}")


check_typed()
check_site()
check_words((root / "ir/ops.def").read_text(), (root / "docs/semantics.md").read_text(encoding="utf-8"))
check_map((root / "docs/design.md").read_text(encoding="utf-8"))
for page in [root / "README.md", root / "examples/ddlb/README.md",
             *sorted((root / "docs").glob("*.md"))]:
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```[^\n`]*\n(.*?)^```$", text, re.M | re.S)
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    check_links(page, prose)
    for line in re.findall(r"`(heddle [^`]*)`", " ".join(prose.split())):
        check_command(page, line)
    for block in blocks:
        for line in re.findall(r"^(?:\$ )?(?:\S*/)?(heddle [a-z][^\n]*)", block, re.M):
            if not line.startswith("heddle 2"):
                check_command(page, line)
marked = subprocess.run(["git", "grep", "-lE", "^(<{7}|>{7}) "], cwd=root, capture_output=True, text=True)
wrong += [f"{name} has the marks of a conflict" for name in marked.stdout.split()]
for line in wrong:
    print(line)
sys.exit(bool(wrong))

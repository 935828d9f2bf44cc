"""Gathers the pages for mkdocs.yml: docs/, the README as the first page, the files
that they link to, and pages made of base/codes.def and `--help`.

usage: site.py ROOT HEDDLE OUT
"""
import pathlib
import re
import shutil
import subprocess
import sys

root, heddle, out = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2], pathlib.Path(sys.argv[3])
MADE = "Made from `{}` when the site is built.\n\n"
linked = set()  # paths outside of docs/


def place_of(path):
    """Where on the site a path of the repository is."""
    if path.is_relative_to(root / "docs"):
        return path.relative_to(root / "docs")
    if path == root / "README.md":
        return pathlib.Path("index.md")
    linked.add(path)
    return pathlib.Path("files", path.relative_to(root), "index.md" if path.is_dir() else "")


def relinked(text, file):
    """`text` of the repository's `file`, with links as they are on the site."""
    up = "../" * (len(place_of(file).parts) - 1)

    def link(found):
        path, hash_, anchor = found[1].partition("#")
        if re.match(r"[a-z]+:", path) or not path:
            return found[0]
        return f"]({up}{place_of((file.parent / path).resolve())}{hash_}{anchor})"

    parts = re.split(r"(^```.*?^```$)", text, flags=re.M | re.S)
    return "".join(part if part.startswith("```") else spaced(re.sub(r"\]\(([^)\s]+)\)", link, part))
                   for part in parts)


def spaced(prose):
    """With an empty line before each list, which not every Markdown needs."""
    return re.sub(r"^((?!- |  |\|).+)\n(?=- )", r"\1\n\n", prose, flags=re.M)


def write(name, text):
    path = out / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def copy(path):
    """A file that a page leads to, or a list of those of a folder."""
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.is_file())
        names = "".join(f"- [{file.name}]({file.name})\n" for file in files)
        write(place_of(path), f"# {path.relative_to(root)}\n\n{names}")
        linked.update(files)
    elif path.suffix == ".md":
        write(place_of(path), relinked(path.read_text(encoding="utf-8"), path))
    else:
        (out / place_of(path)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, out / place_of(path))


def commands():
    def said(*words):
        return subprocess.run([heddle, *words], capture_output=True, text=True, check=True).stdout

    names = re.findall(r"^  (?:heddle )?([a-z]+) ", said("help"), re.M)
    names = [name for name in dict.fromkeys(names) if name not in ("help", "version")]
    assert "dump" in names, names
    pages = "".join(f"## heddle {name}\n\n```text\n{said(name, '--help')}```\n\n" for name in names)
    return "# What the command says of itself\n\n" + MADE.format("heddle COMMAND --help") + pages


def codes():
    page = (root / "docs/diagnostics.md").read_text(encoding="utf-8")
    rows = re.findall(r'^HD_CODE\((\d+),\s*"(.*?)"\)', (root / "base/codes.def").read_text(),
                      re.M | re.S)
    lines = ["| code | |", "|---|---|"]
    for number, words in rows:
        code = f"HD{number}"
        shown = f"[{code}](diagnostics.md#{code.lower()})" if f"### {code}\n" in page else code
        lines.append(f"| {shown} | {' '.join(words.split())} |")
    assert len(lines) > 60, len(lines)
    return ("# Every code\n\n" + MADE.format("base/codes.def") +
            "What to do: [diagnostics](diagnostics.md), or `heddle explain CODE`.\n\n" +
            "\n".join(lines) + "\n")


shutil.rmtree(out, ignore_errors=True)
shutil.copytree(root / "docs", out)
for page in [root / "README.md", *sorted((root / "docs").glob("*.md"))]:
    write(place_of(page), relinked(page.read_text(encoding="utf-8"), page))
copied = set()
while linked - copied:
    for path in sorted(linked - copied):
        copied.add(path)
        copy(path)
write("commands.md", commands())
write("codes.md", codes())

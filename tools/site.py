"""Gathers the pages for mkdocs.yml: docs/, the README as the first page, the files
that they link to, and pages made of ir/ops.def, base/codes.def and `--help`.

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


def rows_of(text, kinds):
    """(kind, arguments) of each row of a table of macros."""
    text = re.sub(r"^#.*|//.*", "", text, flags=re.M)
    for kind, row in re.findall(rf"^HD_({kinds})\(((?:[^()]|\([^()]*\))*)\)", text, re.M):
        yield kind, [" ".join(cell.split()) for cell in re.split(r",(?![^()]*\))", row)]


def operation(kind, row):
    """Level, results, operands and keys, as the comments of ops.def say them."""
    if kind == "OP":
        least, most, fewest, many = row[4:8]
        return row[3], (least, most), (fewest, many), row[8]
    if kind == "MAP":
        return "BOTH", ("1", "1"), (row[4], row[4]), row[5]
    if kind == "FOLD":
        return "BOTH", ("1", "1"), ("1", "HD_MAX_OPERANDS - 1"), "K(DIM)"
    if kind == "PICK":
        return "BOTH", (row[2], row[2]), (row[3], row[3]), "0"
    if kind == "ATTEND":
        return "BOTH", (row[2], row[2]), (row[3], row[3]), row[4]
    if kind == "MOVE":
        return "HOST", tuple(row[2:4]), tuple(row[4:6]), row[6]
    if kind == "FUSED":
        return "HOST", ("1", "1"), ("2", "2"), row[2]
    results, operands = ((min(n, "1"), n) for n in row[2:4])  # one at least, of several
    return "HOST", results, operands, "0"


def operations():
    text = (root / "ir/ops.def").read_text()
    keys = {row[0]: row[1].strip('"') for _, row in rows_of(text, "KEY")}
    most = int(re.search(r"#define HD_MAX_OPERANDS (\d+)", (root / "ir/op.h").read_text())[1])

    def number(text):
        """"3", "HD_MAX_OPERANDS" or that less a number."""
        less = re.fullmatch(r"HD_MAX_OPERANDS(?: - (\d+))?", text)
        return most - int(less[1] or 0) if less else int(text)

    def count(bounds):
        least, last = map(number, bounds)
        return f"{least} to {last}" if least < last else f"{last}"

    where = {"TENSOR": "tensor", "HOST": "host", "BOTH": "tensor, host"}
    lines = ["| operation | programs | results | operands | keys |", "|---|---|---|---|---|"]
    for kind, row in rows_of(text, "OP|MAP|FOLD|PICK|ATTEND|MOVE|FUSED|SYNC"):
        level, results, operands, taken = operation(kind, row)
        names = " ".join(f"`{keys[key]}`" for key in re.findall(r"K\((\w+)\)", taken))
        name = row[1].strip('"')
        lines.append(f"| `{name}` | {where[level]} | {count(results)} | {count(operands)} | {names} |")
    assert len(lines) > 50, len(lines)
    return ("# Operations\n\n" + MADE.format("ir/ops.def") +
            "What each means: [semantics](semantics.md#operations).\n\n" + "\n".join(lines) + "\n")


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
write("operations.md", operations())
write("codes.md", codes())

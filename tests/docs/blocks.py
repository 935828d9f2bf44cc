"""Every block of code of the README and of docs/ holds. A block is, by the language
behind its ``` and by what is in it, one of

- a program, which `heddle check` finds nothing in;
- what a command prints: under a comment `<!-- $ COMMAND -->` a part of it, which
  may stand further left, and under `<!-- ~ COMMAND -->` one with other numbers;
- `console`, or lines behind `$ `: commands, each with all that it prints;
- `sh`: a script, which is run;
- `json`, `python`, `py`: read; Python runs in the tests that HELD names;
- messages of heddle, each made of what stands in its sources.

Three dots stand for anything that is printed. Commands run in a folder of their
page, with examples/, what a block has a title for, and what PREPARED has. What
else there is stands in HELD, with the test that holds it, or in NOT_RUN, with the
reason; a block in no class is a mistake, and so is a row that no block needs.

usage: blocks.py ROOT BUILD
"""
import ast
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

root, build = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()

HELD = {  # page, language (of all blocks, or of those that begin so): by which test
    ("README.md", "c", ""): "readme_embed",
    ("README.md", "python", ""): "python_wheel",
    ("adding-an-op.md", "diff", ""): "docs_adding",
    ("diagnostics.md", "", ""): "docs_explain",
    ("embedding.md", "c", ""): "docs_embedding",
    ("embedding.md", "cpp", ""): "docs_embedding",
    ("embedding.md", "", "seed "): "package_consumers",
    ("embedding.md", "", "rank 0: node 9 "): "package_consumers",
    ("embedding.md", "sh", "cmake "): "package_consumers",
    ("fuzzing.md", "c", ""): "fuzzing_example",
    ("install.md", "cmake", ""): "package_consumers",
    ("install.md", "sh", "cmake -S . -B build/release"): "package_consumers",
    ("install.md", "sh", "export PKG_CONFIG_PATH"): "package_consumers",
    ("install.md", "sh", "cmake -S . -B build/deb"): "package_debs",
    ("launch.md", "c", ""): "docs_launch",
    ("patterns.md", "", ""): "docs_patterns_golden",
    ("python.md", "", ""): "python_wheel",
    ("python.md", "python", ""): "python_wheel",
    ("python.md", "py", "gather = heddle.jax.call("): "python_wheel",
    ("torch.md", "", ""): "with_torch",
    ("torch.md", "python", ""): "with_torch",
    ("tutorial.md", "console", "$ python "): "python_wheel",
    ("tutorial.md", "python", ""): "python_wheel",
}
NOT_RUN = {  # page, how the block begins: why
    ("README.md", "tools/demo.sh"): "builds; what the demo ends with is compared",
    ("bench.md", "heddle bench --suite"): "for GPUs",
    ("cuda.md", "nsys "): "NVIDIA's, for GPUs",
    ("embedding.md", "graph ── builder"): "a picture",
    ("fuzzing.md", "tests/fuzz/run.sh"): "a stage of tools/test.sh",
    ("fuzzing.md", "cmake --preset dev && cmake --build --preset dev --target"): "builds",
    ("fuzzing.md", "cmake --preset dev && cmake --build --preset dev &&"): "builds and installs",
    ("install.md", "pip install"): "installs; the test python_wheel does so",
    ("launch.md", "torchrun --nproc-per-node"): "launchers of others",
    ("launch.md", "torchrun --nnodes"): "launchers of others, for two hosts",
    ("launch.md", "HEDDLE_ADDR="): "Slurm, for two hosts",
    ("python.md", "pip install"): "installs; the test python_wheel does so",
    ("python.md", "layer = heddle.compile("): "for GPUs",
    ("signals.md", "sender "): "a picture",
    ("signals.md", "rank 0: says here"): "what ranks do, as the model of it finds",
    ("semantics.md", "%c = set %n"): "statements beside their shapes",
    ("testing.md", "HEDDLE_MUTANTS="): "takes minutes",
    ("testing.md", "HEDDLE_SECOND_PROGRAMS="): "takes minutes",
    ("testing.md", "HEDDLE_AGAINST_PROGRAMS="): "takes minutes",
    ("testing.md", "HEDDLE_TEST_DEVICE="): "for GPUs",
    ("text-form.md", "file    = "): "the grammar",
}
PREPARED = {  # page: name of a file: whence
    "fuzzing.md": {"my_pass": build / "tests/fuzz/fuzzing_example", "FILE": root / "examples/ag_matmul.hd"},
    "checking.md": {"ring.hd": root / "tests/golden/check/ring_two_slots.hd",
                    "own_chunk.hd": root / "tests/golden/against/own_chunk.hd",
                    "linear.tensor": root / "tests/golden/against/linear.tensor"},
    "lowering.md": {"by_hand": root / "tests/golden/place/Inputs",
                    "exchange.hd": root / "tests/golden/blocks/exchange.hd",
                    "columns.hd": root / "tests/golden/blocks/columns.hd"},
    "troubleshooting.md": {"ring_without_group.hd": root / "tests/golden/check/ring_without_group.hd"},
    "simulate.md": {"a3.hd": root / "tests/golden/simulate/ring.hd"},
    "README.md": {"random_npy.py": root / "tools/random_npy.py"},
}
FEWER = "#!/bin/sh\n# The numbers of a long search, as far as it takes to try it.\n/usr/bin/seq $(($1 < 8 ? $1 : 8))\n"
STEP = r"^rank \d+: |\w+ at \w+\.hd:\d+:\d+ \(step \d+, (stream \d+|the caller's stream)|\)?( for [\d.]+ s)?$"
BLOCK = r"(?:^<!-- ([$~]) ([^\n]*) -->\n)?^```(\w*)(?: title=\"([^\"\n]*)\")?\n(.*?)^```$"

wrong, used = [], set()


def run(typed, folder):
    path = os.pathsep.join([str(folder / ".bin"), str(build / "tools"), str(build / "tools/gen"), os.environ["PATH"]])
    done = subprocess.run(["sh", "-c", typed], cwd=folder, env={**os.environ, "PATH": path, "HEDDLE_CACHE_DIR": "off"}, timeout=120,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


def part_of(shown):
    """What finds the lines of `shown` in a text, perhaps further right."""
    first, *others = shown.splitlines()
    return "^(?P<by> *)" + re.escape(first) + "".join(
        rf"\n(?:(?P=by){re.escape(line)})" if line else r"\n" for line in others) + "$"


def anything(pattern):
    return pattern.replace(re.escape("..."), r"(?s:.*)")


def check_printed(kind, typed, shown, folder):
    said = run(typed, folder)[1]
    pattern = anything(part_of(shown))
    if kind == "~":
        pattern = re.sub(r"(?:\\-)?\d+(?:\\\.\d+)?", r"-?[\\d.]+", pattern)
    return None if re.search(pattern, said, re.M) else f"'{typed}' prints no such thing, but\n{said}"


def check_console(text, folder, held=lambda typed: False):
    for typed, printed in re.findall(r"^\$ ((?:.*[\\|]\n)*.*)\n((?:(?!\$ ).*\n)*)", text, re.M):
        if held(typed):
            continue
        said = run(typed, folder)[1]
        if not re.fullmatch(anything(re.escape(printed)), said):
            return f"'{typed}' prints\n{said}"
    return None


def check_script(text, folder):
    code, said = run(("" if "$?" in text else "set -e\n") + text, folder)
    return f"exit code {code}\n{said}" if code else None


def check_program(text):
    done = subprocess.run([build / "tools/heddle", "check", "-"], input=text, capture_output=True, text=True, timeout=60)
    return done.stderr if done.returncode else None


def formats_of_sources():
    """Texts of the C sources, as what finds that which they print."""
    found = set()
    for folder in ("base", "tiles", "ir", "lower", "check", "simulate", "codegen", "runtime", "steps", "eval", "oracle", "tools", "compile"):
        for file in (root / folder).rglob("*.[ch]"):
            for texts in re.findall(r'(?:"(?:[^"\\\n]|\\.)*"\s*)+', file.read_text()):
                whole = "".join(re.findall(r'"((?:[^"\\\n]|\\.)*)"', texts))
                pieces = re.split(r"%[-+#0 .\d*]*(?:[hlz]{0,2})[a-zA-Z]", whole.replace("%%", "%"))
                if sum(len(re.findall("[A-Za-z]", piece)) for piece in pieces) > 7:
                    found.add(".*?".join(map(re.escape, pieces)) + (".*" if not pieces[-1] else ""))
    return [re.compile(one) for one in found]


def check_messages(text):
    """Each line is made of texts of the sources, but for a tenth of it and which rank
    is at which step."""
    for line in text.splitlines():
        bare = re.sub(r"^heddle: (error: |note: )?", "", line)
        if max(covered(bare), covered(re.sub(STEP, "", bare))) < 0.9:
            return f"no source has the text of: {line}"
    return None


def covered(line):
    made = bytearray(len(line))
    for one in formats:
        for found in one.finditer(line):
            made[found.start():found.end()] = b"\1" * (found.end() - found.start())
    return sum(made) / len(made)


def row_of(table, page, *key):
    for row in table:
        if row[0] == page and row[1:-1] == key[:-1] and key[-1].startswith(row[-1]):
            used.add(row)
            return row
    return None


def check_block(page, kind, typed, language, title, text, folder):
    """None, or what is wrong."""
    if kind:
        said = check_printed(kind, typed, text, folder)
        if said:
            return said
    if title:
        (folder / title).write_text(text)
    if language in ("python", "py"):
        ast.parse(text)
    if row_of(NOT_RUN, page, text) or language != "console" and row_of(HELD, page, language, text):
        return None
    if text.startswith("heddle 2\n"):
        return check_program(text)
    if kind:
        return None
    if language == "console" or text.startswith("$ "):
        return check_console(text, folder, lambda typed: row_of(HELD, page, language, f"$ {typed}"))
    if language == "sh":
        return check_script(text, folder)
    if language == "json":
        json.loads(text)
        return None
    if not language:
        return check_messages(text)
    return "is of no class"


def check_page(page, folder):
    (folder / ".bin").mkdir()
    (folder / ".bin/seq").write_text(FEWER)
    (folder / ".bin/seq").chmod(0o755)
    (folder / "examples").symlink_to(root / "examples")
    for name, file in PREPARED.get(page.name, {}).items():
        assert file.exists(), file
        (folder / name).symlink_to(file)
    text, count = page.read_text(encoding="utf-8"), 0
    for block in re.finditer(BLOCK, text, re.M | re.S):
        line, count = text[:block.start(5)].count("\n"), count + 1
        try:
            said = check_block(page.name, *(part or "" for part in block.groups()), folder)
        except (SyntaxError, ValueError, subprocess.TimeoutExpired) as error:
            said = str(error)
        if said:
            wrong.append(f"{page.relative_to(root)}:{line}: {said}")
    fences = len(re.findall(r"^\s*```|^~~~|^\t+```", text, re.M))
    if fences != 2 * count:
        wrong.append(f"{page.relative_to(root)}: {fences} fences are not {count} blocks: begin each at the left, with a word at most")
    return count


formats, total = formats_of_sources(), 0
for page in [root / "README.md", *sorted((root / "docs").glob("*.md"))]:
    with tempfile.TemporaryDirectory() as name:
        total += check_page(page, pathlib.Path(name))
wrong += [f"{row[0]} has no block for {row}" for row in [*HELD, *NOT_RUN] if row not in used]
tests = " ".join(file.read_text() for file in (root / "tests").rglob("CMakeLists.txt"))
wrong += [f"there is no test {test}" for test in sorted(set(HELD.values()))
          if f"NAME {test}" not in tests and not (root / "python/tests" / test).is_dir()]
print("\n".join(wrong) or f"{total} blocks hold")
sys.exit(bool(wrong))

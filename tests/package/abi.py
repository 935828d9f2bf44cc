"""The binary interface of the library is the one that stands in heddle-N.abi, N
being its version without the patch: what is exported and under which version,
how each function is declared, and where the members of each struct lie, as the
compiler says. HEDDLE_UPDATE=1 writes the file.

usage: abi.py HEADERS LIBRARY COMPILER WORK
"""
import difflib
import os
import pathlib
import re
import subprocess
import sys

folder, library, compiler, work = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3], pathlib.Path(sys.argv[4])


def run(*words):
    return subprocess.run([str(word) for word in words], check=True, text=True, timeout=60,
                          stdout=subprocess.PIPE).stdout


def declarations(text):
    """What stands between two semicolons outside of braces, without functions that have a body."""
    start = depth = 0
    for i, letter in enumerate(text):
        depth += (letter == "{") - (letter == "}")
        if letter == ";" and depth == 0:
            yield " ".join(text[start:i].split())
            start = i + 1
        elif letter == "}" and depth == 0 and "static inline" in text[start:i]:
            start = i + 1


def members(body):
    """The type of each member and its name."""
    for declared in (" ".join(one.split()) for one in body.split(";") if one.strip()):
        called = re.search(r"\(\*(\w+)\)", declared)
        first, *others = [declared] if called else declared.split(",")
        head = first if called else re.sub(r"\w+(?:\[[^]]*\])*$", "", first)
        for one in [first, *others]:
            yield head.strip(), called[1] if called else re.search(r"(\w+)(?:\[[^]]*\])*$", one)[1]


def print_struct(name, body):
    yield f'printf("struct {name}: %zu bytes\\n", sizeof({name}));'
    for head, member in members(body):
        yield (f'printf("    {member} at %zu, %zu bytes: {head}\\n", offsetof({name}, {member}), '
               f"sizeof((({name} *)0)->{member}));")


def print_enum(name, body):
    yield f'printf("enum {name}: %zu bytes\\n", sizeof({name}));'
    for one in filter(str.strip, body.split(",")):
        word = one.split("=")[0].strip()
        yield f'printf("    {word} = %lld\\n", (long long){word});'


def read(text):
    """Lines about functions, and statements in C that print those about types."""
    text = re.sub(r"//.*|^\s*#(.*\\\n)*.*", "", text, flags=re.M)
    functions, statements = [], []
    for declared in declarations(text):
        shape = re.search(r"\btypedef (struct|enum) \w+ \{(.*)\} (\w+)$", declared)
        exported = re.search(r"\bHD_API (.*)$", declared)
        if shape:
            statements += (print_struct if shape[1] == "struct" else print_enum)(shape[3], shape[2])
        elif exported:
            functions.append(re.sub(r"HD_MUST_USE |\bextern ", "", exported[1]))
        elif re.search(r"\btypedef .*\(", declared):
            functions.append(re.sub(r".*\btypedef", "typedef", declared))
    return functions, statements


def types(statements):
    program = work / "layout.c"
    program.write_text("".join(f'#include "{header}"\n' for header in headers) + "#include <stdio.h>\nint main(void)\n{\n" + "\n".join(statements) +
                       "\nreturn 0;\n}\n")
    run(compiler, "-Wall", "-Wextra", "-Werror", f"-I{folder.parent}", program, "-o", work / "layout")
    return run(work / "layout").splitlines()


work.mkdir(parents=True, exist_ok=True)
headers = sorted(folder.glob("*.h"), key=lambda header: (header.name != "heddle.h", header.name))
text = "".join(header.read_text() for header in headers)
version = re.search(r'HD_VERSION "(\d+\.\d+)', text)[1]
functions, statements = read(text)
exported = [line.split()[2] for line in run("nm", "-D", "--defined-only", library).splitlines()]
got = [*types(statements), *sorted(functions), *sorted(f"exports {name}" for name in exported)]
declared = {re.search(r"(\w+)\(", line)[1] for line in functions if not line.startswith("typedef")}
missed = declared ^ {name.split("@")[0] for name in exported if name.startswith("hd_")}
if missed:
    sys.exit(f"declared and not exported, or exported and not declared: {sorted(missed)}")
file = pathlib.Path(__file__).parent / f"heddle-{version}.abi"
if os.environ.get("HEDDLE_UPDATE"):
    file.write_text("\n".join(got) + "\n")
want = file.read_text().splitlines() if file.exists() else []
if got != want:
    print("\n".join(difflib.unified_diff(want, got, file.name, "built", lineterm="", n=1)))
    sys.exit(f"""the ABI of {version} changed. If a release has it, programs that were linked with that would break unless
only functions or enumerators were added: raise the minor version (HD_VERSION in heddle.h, and CHANGELOG.md).
If not, or when that is done: HEDDLE_UPDATE=1 ctest --preset dev -R package_abi""")

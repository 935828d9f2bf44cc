"""Makes docs/operations.md of the rows of ir/ops.def and ir/signature.def, with how each
operation is written from docs/semantics.md, and for the wheel heddle/_maps.py: a function for
each operation on elements, and the forms of all. A test holds that the page is what this prints.

usage: operations.py ROOT > docs/operations.md
       operations.py ROOT --python > _maps.py
"""
import keyword
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
table = (root / "ir/ops.def").read_text()
signatures = (root / "ir/signature.def").read_text()
header = (root / "ir/op.h").read_text()
semantics = (root / "docs/semantics.md").read_text(encoding="utf-8")

MOST = int(re.search(r"#define HD_MAX_OPERANDS (\d+)", header)[1])
PROGRAMS = {"TENSOR": "tensor", "HOST": "host", "BOTH": "tensor, host"}
ONE = ("1", "1")
# Of each family, what its rows do not say.
RULES = {
    "COPY": "Operand and result have the same elements. In what they may differ each says.",
    "MAP": "Operands repeat along dimensions of the result that they lack in front or have with "
           "one index. Of several some may be numbers, `sub 1, %x`. The result may lie exactly over an operand. The last column says which "
           "numbers: of *any* dtype, alike in all; *floating* point only; *compared*, of any "
           "dtype, with a result of `u8`; *picked*, the first operand `u8` and the others as "
           "the result; *truths*, all `u8`.",
    "FOLD": "Several operands, of which some may be numbers, are joined element by element in the "
            "order written, or all indices of dimension `dim` of one, in tensor programs "
            "without it of all. Their dtypes may be narrower than the result's.",
    "TRANSPOSE": "Marks travel with their dimension.",
    "TAKE": "The indices are data, read when the step runs.",
    "IOTA": "Of no operand: how long the result is its declaration says, or `to [m, n]` "
            "behind it.",
    "PRODUCT": "Computed in fp32 or better, and rounded once. `scale_a` and `scale_b` have the "
               "dimensions of their operand, each of which may be missing in front or have one "
               "index; of rows, columns and `k` one index may be of `grain` of the operand's.",
    "PICK": "Views lead with the dimensions of a batch, alike in all, and each element of it is "
            "done by itself.",
    "ATTEND": "Views lead with the dimensions of a batch, along which operands may repeat, and "
              "each element of it is done by itself; how many rows and keys it has counts may say.",
    "CALL": "What its results become depends on its operands, on its name and on `over`, and on "
            "nothing else.",
    "MOVE": "Transfers along one axis of the mesh, `send@tp`, of n ranks. The last column says "
            "which views lead with a dimension of n; whose memory peers touch, without `get`; "
            "and how the result may lie in place: exactly over the *same* elements, or one of "
            "both as the own *piece* of the other.",
    "SYNC": "Orders streams, and computes nothing. Where events stand left or right there is "
            "one at least.",
}
NOTATION = (
    "A form has a letter for each dimension of its views. One letter is as long and placed alike "
    "wherever it stands; `R..` is any number of dimensions. Upper case and `h^` may lie over ranks, lower "
    "case is on each rank whole. `B..?` may be missing in front, or have one index that every rank "
    "has; `B..*` may have one index in each; `B..<` its first dimensions, or all; `R..~` all, in the order that keys say; `k+` is what is "
    "joined, of tensor programs also over ranks where it is `K+` or the result `[..]+`; `one` is one index or no dimension; `own` what `over` "
    "counts; `[..]@` is placed in any way in tensor programs, `[..]+` where what is joined is over ranks. `(S)` is, in tensor programs "
    "where what is joined is over ranks, one index for each of these, of which each has its part of the sums.")
VALUES = {
    "FLAG": "none", "EXPR": "an integer expression", "READ": "a view, read",
    "WRITE": "a view, written", "EVENT": "an event, recorded", "INT": "a number", "INTS": "numbers, in parentheses",
    "LEFT": "a view along the first operand, read", "RIGHT": "a view along the second operand, read",
    "FACTOR": "a number such as `1 / n`, or a view of one element, read", "COUNTS": "a view of counts, read",
    "ACT": "`relu`, `gelu`, `gelu_erf` or `silu`",
}
NUMBERS = {"ANY": "any", "FLOAT": "floating", "TEST": "compared", "PICK": "picked",
           "LOGIC": "truths"}
LEADS = {"NONE": [], "BOTH": ["both lead"], "RESULT": ["result leads"],
         "OPERAND": ["operand leads"]}


def rows():
    """(kind, arguments) of each row."""
    text = re.sub(r"^#.*(?:\\\n.*)*|//.*", "", table.replace("\\\n", ""), flags=re.M)
    kinds = "OP|MAP|FOLD|PICK|ATTEND|MOVE|SYNC"
    for kind, row in re.findall(rf"^HD_({kinds})\(((?:[^()]|\([^()]*\))*)\)", text, re.M):
        yield kind, [" ".join(cell.split()) for cell in re.split(r",(?![^()]*\))", row)]


def number(text):
    """"3", "HD_MAX_OPERANDS" or that less a number."""
    less = re.fullmatch(r"HD_MAX_OPERANDS(?: - (\d+))?", text)
    return MOST - int(less[1] or 0) if less else int(text)


def count(bounds):
    least, last = map(number, bounds)
    return f"{least} to {last}" if least < last else f"{last}"


def moved(led, touched, place):
    placed = [] if place == "NEVER" else [place.lower()]
    return ", ".join([*LEADS[led], f"{touched.lower()} touched", *placed])


def operation(kind, row):
    """Family, level, results, operands, keys, those needed, and what else the row says,
    as the comments of ops.def have it."""
    if kind == "OP":
        return row[2], row[3], row[4:6], row[6:8], row[8], row[9], ""
    if kind == "MAP":
        return kind, "BOTH", ONE, (row[4], row[4]), row[5], row[6], NUMBERS[row[2]]
    if kind == "FOLD":
        return kind, "BOTH", ONE, ("1", "HD_MAX_OPERANDS - 1"), "K(DIM)", "", ""
    if kind == "PICK":
        return kind, "BOTH", (row[2], row[2]), (row[3], row[3]), "", "", ""
    if kind == "ATTEND":
        return kind, "BOTH", (row[2], row[2]), (row[3], row[3]), *row[4:6], ""
    if kind == "MOVE":
        return kind, "HOST", row[2:4], row[4:6], row[6], row[7], moved(*row[8:11])
    results, operands = ((str(min(number(n), 1)), n) for n in row[2:4])
    return kind, "HOST", results, operands, "", "", ""


def forms(names):
    """How each is written: a row of a table of operations has one or two, and then, in
    parentheses, others like it; those that order streams stand in a text."""
    found = {}
    part = semantics.split("\n## Operations\n")[1].split("\n## Transfers")[0]
    for cells in re.findall(r"^\| op \|.*\n\|[-|]*\|\n((?:\|.*\n)*)", part, re.M):
        for cell in re.findall(r"^\| (.*?) \|", cells, re.M):
            form, name = "", ""
            for code in re.findall(r"`([^`]*)`", cell):
                if code in names:
                    found.setdefault(code, []).append(re.sub(rf"\b{name}\b", code, form))
                    continue
                form = code
                name = next(word for word in re.findall(r"\w+", code) if word in names)
                found.setdefault(name, []).append(form)
    streams = re.findall(r"`([^`]*)`", part.split("\n## Streams")[1])
    for name in sorted(names - set(found)):
        found[name] = [code for code in streams if name in re.findall(r"\w+", code)][:1]
        if not found[name]:
            sys.exit(f"operations.py: ir/ops.def has the operation '{name}', and docs/semantics.md does not say how "
                     "it is written: give it a line in a table of its Operations, or a place in the parentheses of one")
    return found


LETTER = {"Q": "{}?", "T": "{}~", "O": "{}^", "P": "({})", "J": "{}+", "F": "{}<", "W": "{}*"}


def letters(text):
    """"[B.. R.. k+]", of "B_, R_, J(k)"."""
    shown = []
    for said, letter in re.findall(r"(?:([QPJFWTO])\()?(\w+)\)?", text):
        letter = letter.replace("_", "..")
        shown.append(LETTER[said].format(letter) if said else letter)
    return "[" + " ".join(shown) + "]"


def shapes():
    """Of OP(..) or FAMILY(..) its forms: the keys that tell them apart, and how each
    view is written, results first."""
    text, found = re.sub(r"//.*", "", signatures), {}
    for row in text.split("HD_SIG(")[1:]:
        ops, named = re.match(r"(\w+\(\w+\)), ([^,]*)", row).groups()
        if "FRONT" in named:  # of the text form 1 alone
            continue
        views = re.findall(r"\b(V|ANYHOW|JOINS|PARTS|REST|COUNTS|BIAS|AHEAD)\(((?:[^()]|\(\w+\))*)\)", row)
        found.setdefault(ops, []).append((re.findall(r"K\((\w+)\)", named), views))
    return found


def shape_rows(title, results, forms, known):
    """How a form is told from others, and `[..] = [..], [..]`."""
    for named, views in forms:
        said = [letters(text).replace("[", "[(S) " if kind == "PARTS" else "[") + "@" * (kind == "ANYHOW") + "+" * (kind == "JOINS") + ", .." * (kind == "REST")
                for kind, text in views if kind not in ("COUNTS", "BIAS", "AHEAD")]
        counts = [f"`groups {letters(text)}`" for kind, text in views if kind == "COUNTS"]
        told = [f"`{known[key][0]}`" for key in named if key != "GROUPS"]
        form, of = " ".join([title, *told, *counts]), ", ".join(said[results:])
        bias = [f", `bias` {letters(text)}" for kind, text in views if kind == "BIAS"]
        yield f"| {form} | `{' = '.join(filter(None, [', '.join(said[:results]), of]))}`{''.join(bias)} |"


def keys():
    """Text, value and comment of each that statements name, by its code."""
    return {code: (text, value, " ".join(comment.split())) for code, text, value, comment in
            re.findall(r'^HD_KEY\((\w+), "(\w+)", (\w+)\) *(?://(.*))?$', table, re.M)}


def key_names(taken, needed, known):
    needs = re.findall(r"K\((\w+)\)", needed)
    return " ".join(f"**`{known[code][0]}`**" if code in needs else f"`{known[code][0]}`"
                    for code in re.findall(r"K\((\w+)\)", taken) if code in known)


def page():
    known, signed, families = keys(), shapes(), {}
    for kind, row in rows():
        family, *rest = operation(kind, row)
        families.setdefault(family, []).append((row[1].strip('"'), *rest))
    written = forms({name for family in families.values() for name, *_ in family})
    titles = dict(re.findall(r"^    HD_FAMILY_(\w+), +// (.*)$", header, re.M))
    lines = ["# Operations", "",
             "Every operation and every key, made from `ir/ops.def` and `ir/signature.def` by "
             "`tools/operations.py`. What each means is in [semantics.md](semantics.md#operations). "
             "Keys in bold are needed. How many results and operands there are is what the table "
             "allows.", "", NOTATION, ""]
    for family, members in families.items():
        more = any(member[-1] for member in members)
        lines += [f"## {family.capitalize()}: {titles[family]}", "", RULES[family], "",
                  "| operation | written | programs | results | operands | keys |" + " besides |" * more,
                  "|---|---|---|---|---|---|" + "---|" * more]
        for name, level, results, operands, taken, needed, rest in members:
            shown = "<br>".join(f"`{form}`" for form in dict.fromkeys(written[name]))
            lines.append(f"| `{name}` | {shown} | {PROGRAMS[level]} | {count(results)} | "
                         f"{count(operands)} | {key_names(taken, needed, known)} |" +
                         f" {rest} |" * more)
        shown = [*shape_rows("each", 1, signed.get(f"FAMILY({family})", []), known)]
        for name, _, results, *_ in members:
            shown += shape_rows(f"`{name}`", number(results[0]), signed.get(f"OP({name.upper()})", []), known)
        if shown:
            lines += ["", "| form | shapes |", "|---|---|", *shown]
        lines.append("")
    lines += ["## Keys", "", "| key | value | meaning |", "|---|---|---|"]
    lines += [f"| `{text}` | {VALUES[value]} | {comment} |" for text, value, comment in known.values()]
    return "\n".join(lines) + "\n"


def spelled(name):
    """`and_` of `and`, which is a word of Python's."""
    return f"{name}_" if keyword.iskeyword(name) else name


HEAD = '''"""Operations on elements: made from ir/ops.def when the wheel is built, and the
forms of all operations, from ir/signature.def."""
from __future__ import annotations

from typing import Any, Dict, List

from ._symbolic import Operand, Result, Tensor, apply_map

__all__ = [{names}]

# Of each form the keys that tell it from others, the letter ahead of `dim`, and the letters
# of views, the last ones of further operands, too.
ROWS: Dict[str, List[Any]] = {rows}
'''
FUNCTION = '''

def {spelled}({parameters}, *, out: Result = None) -> Tensor:
    """`%y = {name} {operands}`"""
    return apply_map("{name}", "{numbers}", ({values}), (), out)
'''
OPERANDS = {1: "x", 2: "ab", 3: "mab"}  # of the operands: select's first one is a mask


def function(name, numbers, n):
    operands = OPERANDS[n]
    kind = "Tensor" if n == 1 else "Operand"
    kinds = ["Tensor" if operand == "m" else kind for operand in operands]
    return FUNCTION.format(
        name=name, spelled=spelled(name), numbers=numbers, values=", ".join(operands) + "," * (n == 1),
        parameters=", ".join(f"{o}: {k}" for o, k in zip(operands, kinds)),
        operands=", ".join(f"%{operand}" for operand in operands))


def module():
    """The text of _maps.py. What is said of letters beside their names is the library's affair."""
    members, found, maps = {}, {}, []
    for kind, row in rows():
        name = row[1].strip('"')
        members.setdefault(f"FAMILY({kind})", []).append(name)
        members[f"OP({row[0]})"] = [name]
        if kind == "MAP" and row[6] == "0":
            maps.append((name, row[2], int(row[4])))
    for ops, forms in shapes().items():
        for named, views in forms:
            ahead = "".join(text for kind, text in views if kind == "AHEAD")
            row = ([key.lower() for key in named], f"{ahead}_",
                   *(re.findall(r"(\w+)\)?(?:,|$)", text) for kind, text in views
                     if kind not in ("AHEAD", "COUNTS", "BIAS")))
            for name in members[ops]:
                found.setdefault(name, []).append(row)
    return (HEAD.format(names=", ".join(f'"{spelled(name)}"' for name, *_ in maps), rows=found) +
            "".join(function(*each) for each in maps))


print(module() if sys.argv[2:] == ["--python"] else page(), end="")

"""What `heddle dump --format json` prints is what the schema allows, and says
what --format text prints: the programs of examples and goldens, at each of their
stages, are put together again from the JSON alone and compared with the text,
line by line. The tree of each expression has the value of its text. With
HEDDLE_TEST_QUICK=1 a third of the stages of examples, and of the programs that
the schema is held against.

usage: check.py ROOT HEDDLE
"""
import concurrent.futures
import json
import os
import pathlib
import random
import re
import subprocess
import sys

import jsonschema

root, heddle = pathlib.Path(sys.argv[1]), sys.argv[2]
STAGES = ["tensor", "reshard", "stream", "transfer", "event", "host", "steps"]
seed = int(os.environ.get("HEDDLE_TEST_SEED") or random.randrange(2**32))
random.seed(seed)
quick = os.environ.get("HEDDLE_TEST_QUICK") == "1"
schema = json.loads((root / "docs/heddle-dump.schema.json").read_text())
jsonschema.Draft202012Validator.check_schema(schema)
validator = jsonschema.Draft202012Validator(schema)


def drawn():
    return not quick or random.randrange(3) == 0


class Number(str):
    """A fraction as it is written."""


def cdiv(a, b):
    return -(-a // b)


class Reader:
    """Puts the text of one program together."""

    def __init__(self, program):
        self.program, self.lines, self.wrong, self.words = program, [], [], set()
        self.values, self.known, self.buffers = {}, {}, {}

    def value(self, tree):
        if isinstance(tree, int):
            return tree
        if isinstance(tree, str):
            return self.values.setdefault(tree, random.randint(0, 9))
        op, *of = tree[0], *map(self.value, tree[1:])
        return {
            "or": lambda a, b: int(bool(a or b)), "and": lambda a, b: int(bool(a and b)),
            "not": lambda a: int(not a), "==": lambda a, b: int(a == b), "!=": lambda a, b: int(a != b),
            "<": lambda a, b: int(a < b), "<=": lambda a, b: int(a <= b), ">": lambda a, b: int(a > b),
            ">=": lambda a, b: int(a >= b), "+": lambda a, b: a + b, "-": lambda a, b: a - b,
            "*": lambda a, b: a * b, "/": lambda a, b: a // b, "mod": lambda a, b: a % b,
            "min": min, "max": max, "cdiv": cdiv,
        }[op](*of)

    def check_tree(self, e):
        if e["text"] in self.known and self.known[e["text"]] == e["tree"]:
            return
        self.known[e["text"]] = e["tree"]
        python = re.sub(r"\b(?!(?:mod|and|or|not)\b|\w+\()([A-Za-z_]\w*)", r"v_\1", e["text"])
        python = python.replace("/", "//").replace(" mod ", " % ")
        for _ in range(4):
            self.values = {}
            try:
                got = self.value(e["tree"])
                want = eval(python, {"min": min, "max": max, "cdiv": cdiv},
                            {f"v_{name}": value for name, value in self.values.items()})
            except ZeroDivisionError:
                continue
            logic = e["tree"][0] in ("and", "or")
            if got != (int(bool(want)) if logic else want):
                self.wrong.append(f"{e['text']} is {want}, its tree {got} with {self.values}")

    def expression(self, e):
        if isinstance(e, int):
            return str(e)
        self.check_tree(e)
        return e["text"]

    def place(self, p):
        if p is None:
            return ":"
        if isinstance(p, dict) and "low" in p:
            return f"{self.expression(p['low'])}..{self.expression(p['past'])}"
        if isinstance(p, dict) and "block" in p:
            return f"{self.expression(p['block'])} of {p['blocks']}"
        return self.expression(p)

    def view(self, v):
        index = ", ".join(map(self.place, v["index"]))
        text = f"%{v['buffer']}" + (f"[{index}]" if index else "")
        if text != v["text"]:
            self.wrong.append(f"the text of {text} is {v['text']}")
        return text

    def key(self, name, value):
        self.words.add(name)
        if value is True:
            return f" {name}"
        if isinstance(value, str):
            return f" {name} {value}"
        if isinstance(value, list):
            return f" {name} ({', '.join(map(str, value))})"
        if isinstance(value, dict) and "buffer" in value:
            return f" {name} {self.view(value)}"
        return f" {name} {self.expression(value)}"

    def operand(self, o):
        if isinstance(o, dict):
            return self.view(o)
        self.words.add("[numbers]")
        return str(o)

    def op(self, o):
        self.words.add(o["family"])
        axes = [axis["name"] for axis in self.program["mesh"]]
        if ("axis" in o) != (o["family"] == "move") or o.get("axis") not in [None, *axes]:
            self.wrong.append(f"{o['op']} has axis {o.get('axis')}")
        text = ", ".join(map(self.view, o["results"]))
        text += (" = " if text else "") + o["op"]
        text += f"@{o['axis']}" if "axis" in o and len(axes) > 1 else ""
        text += f" \"{o['callee']}\"" if "callee" in o else ""
        text += " " * bool(o["operands"]) + ", ".join(map(self.operand, o["operands"]))
        to, keep = self.said(o)
        return text + to + "".join(self.key(*k) for k in o["keys"].items()) + keep

    def head(self, s):
        if s["kind"] == "op":
            return self.op(s)
        if s["kind"] == "let":
            return f"let {s['name']} = {self.expression(s['value'])}"
        if s["kind"] == "for":
            return f"for {s['name']} in {self.expression(s['first'])}..{self.expression(s['past'])}"
        if s["kind"] == "if":
            return f"if {self.expression(s['condition'])}"
        return s["kind"] if s["kind"] in ("group", "launch") else f"on stream {self.expression(s['stream'])}"

    def put(self, s, text):
        self.lines.append(text)
        if s["line"] != len(self.lines):
            self.wrong.append(f"line {len(self.lines)} is told to be {s['line']}: {text}")

    def statement(self, s, indent, before=""):
        self.put(s, indent + before + self.head(s) + (" {" if "body" in s else ""))
        for part in ("body", "otherwise"):
            if part not in s:
                continue
            if part == "otherwise" and len(s[part]) == 1 and s[part][0]["kind"] == "if":
                self.statement(s[part][0], indent, "} else ")
                return
            if part == "otherwise":
                self.lines.append(indent + "} else {")
            for inner in s[part]:
                self.statement(inner, indent + "    ")
        if "body" in s:
            self.lines.append(indent + "}")

    def dim(self, d):
        text = f"{d['times']} * {d['size']}" if "times" in d else d.get("size", str(d["extent"]))
        text += f" in {d['blocks']}" if "blocks" in d else ""
        text += f"@{d['mark']}" if "mark" in d else ""
        text += f" by %{d['by']}" if "by" in d else ""
        if text != d["text"]:
            self.wrong.append(f"the text of {text} is {d['text']}")
        if "size" in d:
            size = next(s for s in self.program["sizes"] if s["name"] == d["size"])
            if d["extent"] != size["high"] * d.get("times", 1):
                self.wrong.append(f"{text} is told to be {d['extent']}")
        return text

    def open_dim(self, d):
        return f": @{d['mark']}" if "mark" in d else ":"

    def said(self, o):
        """What a statement says of a result that is not declared."""
        made = self.buffers.get(o["results"][0]["buffer"], {}) if o["results"] else {}
        if "shape" not in made.get("open", []):
            return "", ""
        read = self.buffers[o["operands"][0]["buffer"]]["dims"] if o["family"] == "fold" else []
        keeps = "dim" in o["keys"] and len(read) == len(made["dims"])
        shape = ", ".join(d["text"].split("@")[0] for d in made["dims"])
        return f" to [{shape}]" * (o["op"] == "reshape"), " keep" * keeps

    def check_local(self, b):
        ranks = {axis["name"]: axis["size"] for axis in self.program["mesh"]}
        for d, local in zip(b["dims"], b["local"]):
            if "size" not in d and local != cdiv(d["extent"], ranks.get(d.get("mark"), 1)):
                self.wrong.append(f"{d['text']} of %{b['name']} is {local} on a rank")

    def buffer(self, b):
        self.buffers[b["name"]] = b
        opened = b.get("open", [])
        if {"dtype", "place"} <= set(opened):
            if "line" in b:
                self.wrong.append(f"%{b['name']} has a line, and nothing is declared")
            return
        dims = ", ".join(map(self.open_dim if "shape" in opened else self.dim, b["dims"]))
        text = f"{b['role']} %{b['name']} : " + ("" if "dtype" in opened else b["dtype"])
        text += "" if "place" in opened else f"[{dims}]"
        text += " shared" if "shared" in b else ""
        text += f" of %{b['of']}" if "of" in b else ""
        if "on" in b:
            on = b["on"]
            text += f" on {on['axis']} {on['low']}" + (f"..{on['past']}" if on["past"] > on["low"] + 1 else "")
        self.put(b, text)
        if "argument" in b:
            self.check_local(b)

    def text(self):
        p = self.program
        level = "tensor program " if p["stage"] == "tensor" else "host program "
        after = "" if p["stage"] in ("tensor", "host", "steps") else f" after {p['stage']}"
        self.lines = [f"heddle {p['format']}", level + p["name"] + after]
        self.lines += [f"param {s['name']} in {s['low']}..{s['high']}" for s in p["sizes"]]
        if p["mesh"]:
            self.lines.append("mesh " + ", ".join(f"{a['name']}={a['size']}" for a in p["mesh"]))
        if p["streams"]:
            self.lines.append(f"streams {p['streams']}")
        for b in p["buffers"]:
            self.buffer(b)
        arguments = [b["argument"] for b in p["buffers"] if "argument" in b]
        if arguments != list(range(len(arguments))):
            self.wrong.append(f"arguments are {arguments}")
        if "body" in p:
            self.lines.append("{")
            for s in p["body"]:
                self.statement(s, "    ")
            self.lines.append("}")
        return self.lines

    def check_peer(self, rank, s):
        coordinates, rest = {}, rank
        for axis in reversed(self.program["mesh"]):
            coordinates[axis["name"]] = rest % axis["size"]
            rest //= axis["size"]
        told = [s["keys"][k] for k in ("to", "from", "root") if k in s["keys"]]
        if ("peer" in s) != bool(told):
            self.wrong.append(f"step {s['step']} of rank {rank}: its peer")
        elif told:
            coordinates[s["axis"]] = told[0]
            peer = 0
            for axis in self.program["mesh"]:
                peer = peer * axis["size"] + coordinates[axis["name"]]
            if s["peer"] != peer:
                self.wrong.append(f"step {s['step']} of rank {rank} is with {peer}, not {s['peer']}")

    def steps(self):
        lines = []
        for of in self.program["steps"]:
            lines += [""] * bool(lines) + [f"// rank {of['rank']}"]
            for s in of["steps"]:
                mark = " "
                for block, marks in (("group", "{|}"), ("launch", "[:]")):
                    if block in s:
                        n = sum(block in x and x[block] == s[block] for x in of["steps"])
                        last = s["step"] + 1 == s[block] + n
                        mark = " " if n == 1 else marks[0 if s["step"] == s[block] else 2 if last else 1]
                stream = "caller" if s["stream"] < 0 else f"s{s['stream']}"
                lines.append(f"{s['step']:5}  {stream:6} {mark} {self.op(s)}")
                self.check_peer(of["rank"], s)
        return lines


def dump(path, stage, form, options):
    done = subprocess.run([heddle, "dump", "--stage", stage, "--format", form, *options, path],
                          capture_output=True, text=True, timeout=60)
    return done.stdout if done.returncode == 0 else None


def squeezed(lines):
    return [re.sub(r"(?<=\S) +", " ", line) for line in lines]


def compare(path, stage, options):
    """What is wrong, the words that were seen, and how many lines."""
    text = dump(path, stage, "text", options)
    if text is None:
        return [], set(), 0
    told = dump(path, stage, "json", options)
    if told is None:
        return [f"{path} at {stage}: no JSON"], set(), 0
    reader = Reader(json.loads(told, parse_float=Number))
    wrong = []
    if drawn():
        plain = json.loads(told)
        # One rank's steps are as another's to the schema, which is slow to apply.
        plain["steps" if stage == "steps" else "unused"] = plain.get("steps", [])[:1]
        plain.pop("unused", None)
        wrong += [f"schema: {error.json_path}: {error.message[:200]}" for error in validator.iter_errors(plain)]
    got = reader.text()
    if stage == "steps":
        got = reader.steps()
    else:
        text = "\n".join(squeezed(text.splitlines()))
        got = squeezed(got)
    if reader.program["stage"] != stage:
        wrong.append(f"the stage is told to be {reader.program['stage']}")
    for k, (a, b) in enumerate(zip([*text.splitlines(), "(end)"], [*got, "(end)"]), 1):
        if a != b:
            wrong.append(f"line {k}:\n  text {a}\n  json {b}")
            break
    return [f"{path} at {stage} {options}: {w}" for w in wrong + reader.wrong], reader.words, len(got)


def work():
    for path in sorted((root / "examples").glob("*.hd")):
        of = [(path, stage, []) for stage in STAGES]
        of += [(path, "host", ["--transfer", "direct", "--protocol", "get", "--comm-stream"]),
               (path, "host", ["--transfer", "fused"])]
        rare = path.stem == "f8_blocks"  # words that no golden has
        yield from (one for one in of if rare or drawn())
    yield root / "tests/golden/ops/attention_blocks.hd", "tensor", []  # has `step`
    for stage in ("reshard", "stream"):  # moves that name dimensions
        yield root / "tests/golden/lower/moves_name_dimensions.hd", stage, []
    for folder in ("ops", "walk", "ranges", "sizes", "blocks", "text"):
        for path in sorted((root / "tests/golden" / folder).glob("*.hd")):
            if "too_many" not in path.name and "endless" not in path.name:
                yield path, "host", []
                yield path, "steps", []


wrong, words, compared, lines = [], set(), 0, 0
with concurrent.futures.ThreadPoolExecutor(2) as pool:
    for said, seen, n in pool.map(lambda of: compare(*of), list(work())):
        wrong += said
        words |= seen
        compared += n > 0
        lines += n
table = (root / "ir/ops.def").read_text()
rows = set(re.findall(r'^HD_KEY\(\w+, "([^"]+)"', table, re.M)) - {"[name]"}
rows |= set(schema["$defs"]["operation"]["properties"]["family"]["enum"])
wrong += [f"no program has {word}" for word in sorted(rows ^ words)]
if schema["properties"]["format"]["enum"][-1] != int(re.search(
        r"#define HD_FORMAT (\d+)", (root / "include/heddle/heddle.h").read_text())[1]):
    wrong.append("the schema is of another version of the text form")
print(f"seed {seed}: {compared} dumps of {lines} lines")
for line in wrong[:20]:
    print(line)
sys.exit(bool(wrong) or compared < (200 if quick else 300))

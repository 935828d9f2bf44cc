"""Host programs built by HostBuilder: they are those of files, and what is wrong is told
at the line of Python that said it."""
import inspect
import json
import operator
import os
import pathlib
import subprocess
import unittest

import heddle
import numpy as np
from draw import RANDOM, floats
from heddle import ops
from heddle._library import COMMAND

ROOT = pathlib.Path(os.environ["HEDDLE_ROOT"])
TP = 4


def dumped(file, *options):
    """What the command prints of it; None where it is wrong, or no host program."""
    said = subprocess.run([COMMAND, "dump", file, *options], capture_output=True, text=True)
    return said.stdout if said.returncode == 0 and "\nhost program" in said.stdout[:99] else None


def ring():
    """examples/ag_matmul_ring.hd"""
    b = heddle.HostBuilder("ag_matmul", mesh={"tp": TP}, streams=2)
    tp = b.axis("tp")
    a = b.input("a", "bf16", (TP, 64, 128), axes=("tp", None, None))
    w = b.input("b", "bf16", (128, 96))
    c = b.output("c", "bf16", (TP, 64, 96))
    ag = b.temp("ag", "bf16", (TP, 64, 128), shared=True)
    hop = b.temp("hop", "event", (TP,))
    ag[tp] = a[tp]
    b.record(hop[0])
    with b.loop("j", 0, TP) as j, b.on_stream(j % 2):
        i = b.let("i", (tp - j) % TP)
        b.wait(hop[j])
        with b.when(j < TP - 1):
            with b.group():
                b.send(ag[i], to=(tp + 1) % TP)
                b.recv(ag[(i - 1) % TP], source=(tp - 1) % TP)
            b.record(hop[j + 1])
        ops.matmul(ag[i], w, out=c[i])
    b.join()
    return b


# ------------------------------------------- any program, from what tells of it in JSON

OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.floordiv,
             "mod": operator.mod, "==": operator.eq, "!=": operator.ne, "<": operator.lt,
             "<=": operator.le, ">": operator.gt, ">=": operator.ge, "and": operator.and_,
             "or": operator.or_, "min": heddle.HostBuilder.min, "max": heddle.HostBuilder.max,
             "cdiv": heddle.HostBuilder.cdiv}


class Rebuilt:
    """The program that `heddle dump --format json` tells of, by a HostBuilder."""

    def __init__(self, told):
        mesh = {axis["name"]: axis["size"] for axis in told["mesh"]}
        self.b = heddle.HostBuilder(told["name"], mesh=mesh, streams=told["streams"])
        self.names = {axis: self.b.axis(axis) for axis in mesh}
        self.sizes = {size["name"]: self.b.size(size["name"], size["low"], size["high"])
                      for size in told["sizes"]}
        self.names.update(self.sizes)
        self.buffers = {}
        for buffer in told["buffers"]:
            self.declare(buffer)
        self.body(told["body"])

    def declare(self, buffer):
        dims, more = buffer["dims"], {}
        if "of" in buffer:
            more["of"] = self.buffers[buffer["of"]]
        make = {"in": self.b.input, "out": self.b.output, "inout": self.b.inout,
                "temp": self.b.temp}[buffer["role"]]
        self.buffers[buffer["name"]] = make(
            buffer["name"], buffer["dtype"], [self.extent(dim) for dim in dims],
            [dim.get("mark") for dim in dims], shared=buffer.get("shared", False), **more,
            by={i: self.buffers[dim["by"]] for i, dim in enumerate(dims) if "by" in dim})

    def extent(self, dim):
        extent = dim["extent"]
        if "size" in dim:
            extent = dim.get("times", 1) * self.sizes[dim["size"]]
        return heddle.blocks(extent, dim["blocks"]) if "blocks" in dim else extent

    def tree(self, tree):
        if isinstance(tree, str):
            return self.names[tree]
        if not isinstance(tree, list):
            return tree
        sign, *operands = tree[0], *map(self.tree, tree[1:])
        if len(operands) == 1:
            return {"-": operator.neg, "not": operator.invert}[sign](*operands)
        return OPERATORS[sign](*operands)

    def number(self, value):
        return self.tree(value["tree"]) if isinstance(value, dict) else value

    def view(self, view):
        index = []
        for one in view["index"]:
            if one is None:
                index.append(slice(None))
            elif isinstance(one, dict) and "past" in one:
                index.append(slice(self.number(one["low"]), self.number(one["past"])))
            elif isinstance(one, dict) and "block" in one:
                index.append(heddle.Block(self.number(one["block"]), self.number(one["blocks"])))
            else:
                index.append(self.number(one))
        whole = self.buffers[view["buffer"]]
        return whole[tuple(index)] if index else whole

    def key(self, value):
        if isinstance(value, dict):
            return self.view(value) if "buffer" in value else self.number(value)
        return value

    def scoped(self, scope, body):
        with scope as variable:
            outer = dict(self.names)
            if str(variable).isidentifier():
                self.names[str(variable)] = variable
            self.body(body)
            self.names = outer

    def body(self, statements):
        for s in statements:
            getattr(self, "do_" + s["kind"])(s)

    def do_op(self, s):
        keys = {"from_" if key == "from" else key: self.key(value)
                for key, value in s["keys"].items()}
        self.b.op(s["op"], *map(self.key, s["operands"]), out=list(map(self.view, s["results"])),
                  axis=s.get("axis"), callee=s.get("callee"), **keys)

    def do_let(self, s):
        self.names[s["name"]] = self.b.let(s["name"], self.number(s["value"]))

    def do_for(self, s):
        bounds = self.number(s["first"]), self.number(s["past"])
        self.scoped(self.b.loop(s["name"], *bounds), s["body"])

    def do_if(self, s):
        self.scoped(self.b.when(self.number(s["condition"])), s["body"])
        if "otherwise" in s:
            self.scoped(self.b.otherwise(), s["otherwise"])

    def do_on(self, s):
        self.scoped(self.b.on_stream(self.number(s["stream"])), s["body"])

    def do_group(self, s):
        self.scoped(self.b.group(), s["body"])

    def do_launch(self, s):
        self.scoped(self.b.launch(), s["body"])


def exchange(group, x):
    """Runs a program with a send and a recv, and a collective."""
    b = heddle.HostBuilder("shift", mesh={"tp": 2})
    tp = b.axis("tp")
    a = b.input("x", "f32", (2, 5), axes=("tp", None))
    y = b.output("y", "f32", (2, 5), axes=("tp", None), shared=True)
    s, t = b.output("s", "f32", (5,)), b.temp("t", "f32", (5,), shared=True)
    with b.group():
        b.send(a[tp], to=1 - tp)
        b.recv(y[tp], source=1 - tp)
    t[...] = a[tp]
    b.all_reduce(t, s, by="max")
    program = b.build()
    program.check()
    return heddle.compile(program, group)(x[group.rank])


class Host(unittest.TestCase):
    def test_ring_is_that_of_the_examples(self):
        file = ROOT / "examples/ag_matmul_ring.hd"
        built = ring().build()
        self.assertEqual(str(built), dumped(file))
        self.assertEqual(str(ring().build()), str(built))
        built.check()

    def test_programs_of_files_are_built_as_they_are(self):
        """Those of examples/, lowered in one way or another, and of the goldens."""
        ways = [(), ("--transfer", "ring"), ("--transfer", "direct", "--streams", "3"),
                ("--transfer", "broadcast", "--protocol", "get"), ("--transfer", "bulk")]
        files = sorted((ROOT / "tests/golden").glob("*/*.hd"))
        chosen = [(files[i], ()) for i in RANDOM.choice(len(files), 80, replace=False)]
        # Which has a block, by its number, of a size that runs are given.
        chosen.append((ROOT / "tests/golden/against/partial_block.hd", ()))
        # Which has a range of such a size.
        chosen.append((ROOT / "tests/golden/sizes/picks.hd", ()))
        # Which has sizes in expressions.
        chosen.append((ROOT / "tests/golden/sizes/masks.hd", ()))
        chosen += [(file, ways[RANDOM.integers(len(ways))])
                   for file in sorted((ROOT / "examples").glob("*.hd"))]
        built = 0
        for file, way in chosen:
            text = dumped(file, *way)
            # A builder makes programs of the newest form.
            if text is None or "after" in text.split("\n")[1] or text.startswith("heddle 1\n"):
                continue
            told = json.loads(subprocess.run([COMMAND, "dump", file, *way, "--format", "json"],
                                             capture_output=True, text=True, check=True).stdout)
            with self.subTest(file=file.relative_to(ROOT), way=way):
                self.assertEqual(str(Rebuilt(told).b.build()), text)
            built += 1
        self.assertGreater(built, 60)

    def test_it_runs(self):
        x = floats(2, 5)
        for rank, (y, s) in enumerate(heddle.launch(2, exchange, x)):
            np.testing.assert_array_equal(y[0], x[1 - rank])
            np.testing.assert_array_equal(s, x.max(axis=0))

    def test_transfers(self):
        b = heddle.HostBuilder("t", mesh={"dp": 2, "tp": 2}, streams=1)
        tp, x = b.axis("tp"), b.input("x", "f32", (2, 8), axes=("tp", None), shared=True)
        y = b.output("y", "f32", (2, 8), shared=True)
        z, e = b.temp("z", "f32", (2, 8), shared=True), b.temp("e", "event", (2,))
        b.fork()
        with b.on_stream(0):
            b.all_gather(x[tp], y, axis="tp")
            b.all_to_all(y, z, axis="dp")
            b.reduce_scatter(z, y[tp], by="min", axis="tp")
            b.all_reduce(y, z, axis="dp")
            b.reduce(z, y, root=1, by="max", axis="tp")
            b.reduce(z, root=0, axis="dp")
            b.broadcast(z, y, root=0, axis="tp")
            b.send(x[tp, 0:4], to=1 - tp, get=True, done=e[0], axis="tp")
            b.recv(z[0, tp * 4:tp * 4 + 4], source=1 - tp, get=True, axis="tp")
            b.record(e[0], e[1])
            b.wait(e[1])
        b.join()
        text = str(b.build())
        lines = [line.strip() for line in text[text.index("{"):].splitlines()]
        self.assertEqual(lines[3:14], [
            "%y = all_gather@tp %x[tp]", "%z = all_to_all@dp %y",
            "%y[tp] = reduce_scatter@tp %z min",
            "%z = all_reduce@dp %y", "%y = reduce@tp %z root 1 max", "reduce@dp %z root 0",
            "%y = broadcast@tp %z root 0", "send@tp %x[tp, 0..4] to 1 - tp get done %e[0]",
            "%z[0, tp * 4..tp * 4 + 4] = recv@tp from 1 - tp get", "%e[0], %e[1] = record",
            "wait %e[1]"])

    def test_expressions(self):
        b = heddle.HostBuilder("e", mesh={"tp": 4})
        tp, y = b.axis("tp"), b.output("y", "f32", (99,))
        for expression, want in (
                (3 - tp * 2, "3 - tp * 2"), ((3 - tp) * 2, "(3 - tp) * 2"),
                (7 // (tp + 1), "7 / (tp + 1)"),
                (-tp % 4, "(0 - tp) mod 4"), (5 % (tp + 1), "5 mod (tp + 1)"),
                (2 * (1 + tp), "2 * (1 + tp)"),
                (tp - (tp - 1), "tp - (tp - 1)"), (np.int64(3) * tp, "3 * tp"),
                (b.min(tp, 2), "min(tp, 2)"), (b.max(2, tp // 2), "max(2, tp / 2)"),
                (b.cdiv(tp + 3, 4), "cdiv(tp + 3, 4)")):
            y[expression] = 1.0
            self.assertIn(f"%y[{want}] = fill value 1", str(b.build()))
            b._statements.clear()
        for condition, want in (
                ((tp == 0) | (tp >= 2) & ~(tp != 3), "tp == 0 or 2 <= tp and not tp != 3"),
                (((tp <= 0) | (tp > 2)) & (tp < 3), "(tp <= 0 or 2 < tp) and tp < 3")):
            with b.when(condition):
                y[0] = 1.0
            with b.otherwise():
                y[1] = 2.0
            self.assertIn(f"if {want} {{", str(b.build()))
            b._statements.clear()

    def test_what_is_misused(self):
        b, other = (heddle.HostBuilder("m", mesh={"tp": 2}) for _ in range(2))
        tp, x, y = b.axis("tp"), b.input("x", "f32", (4, 8)), b.output("y", "f32", (4, 8))
        z = other.output("z", "f32", (4, 8))
        for call, words in ((lambda: ops.gelu(x), "gelu in a host program says where"),
                            (lambda: x + y, "add in a host program says where"),
                            (lambda: ops.gelu(x, out=z), "two programs"),
                            (lambda: b.axis("dp"), "no axis 'dp': it has tp"),
                            (lambda: tp + 1.5, "1.5 is neither a whole number nor"),
                            (lambda: x[tp, 0:tp:2], "a part is one index, or a range"),
                            (lambda: b.all_reduce(x, y, by="mean"), "none of sum, max, min"),
                            (lambda: heddle.HostBuilder(streams=1.5), "streams is 1.5")):
            self.assertRaisesRegex(heddle.ArgumentError, words, call)
        for call in (lambda: 1 if tp == 0 else 2, lambda: 0 <= tp < 2, lambda: bool(tp)):
            self.assertRaisesRegex(TypeError, "b.when", call)

    def test_what_is_wrong_is_told_at_its_line(self):
        b = heddle.HostBuilder("w", mesh={"tp": 2}, streams=1)
        x, y = b.input("x", "f32", (4, 8)), b.output("y", "f32", (4, 8))
        first = inspect.currentframe().f_lineno
        with b.loop("j", 0, 4) as j:
            y[j] = x[j, 0:4]
        with b.when(j < 3):
            b.send(x[0], to=1)
        self.assertEqual(self.told(b), [(first + 3, "unknown variable 'j'")])
        del b._statements[-3:]
        self.assertEqual([line for line, _ in self.told(b)], [first + 2])

    def told(self, b):
        with self.assertRaises(heddle.ProgramError) as caught:
            b.build()
        errors = [m for m in caught.exception.messages if m.severity == "error"]
        self.assertEqual({m.file for m in errors}, {__file__})
        return [(m.line, m.text) for m in errors]


if __name__ == "__main__":
    unittest.main()

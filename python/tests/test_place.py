"""Tensor programs of which arguments alone say where they lie: random ones are placed,
lowered by any pipeline and evaluated, and make what NumPy does of the same statements.

HEDDLE_PROGRAMS says how many (60)."""
import os
import random
import re
import unittest

import heddle
import numpy as np
from draw import SEED, floats

PROGRAMS = int(os.environ.get("HEDDLE_PROGRAMS", 60))
EXTENTS = (4, 6, 8, 12, 16)
TRANSFERS = ("bulk", "pipelined", "broadcast", "direct", "ring")
ACTS = {"relu": lambda x: np.maximum(x, 0),
        "gelu": lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x ** 3))),
        "silu": lambda x: x / (1 + np.exp(-x)),
        "neg": lambda x: -x, "abs": np.abs, "tanh": np.tanh}
FOLDS = {"sum": np.sum, "max": np.max, "min": np.min}


class Drawn:
    """A program, what its inputs are, and what NumPy makes of them."""

    def __init__(self, seed):
        self.draw = random.Random(seed)
        self.axes = {"tp": self.draw.choice((1, 2, 3, 4))}
        if self.draw.random() < 0.5:
            self.axes["dp"] = 2
        if self.draw.random() < 0.1:
            self.axes["cp"] = 2
        self.inputs, self.value, self.declared, self.body = {}, {}, [], []
        self.ranged = set()  # of a dimension over ranks the text names no range
        for _ in range(self.draw.randint(1, 6)):
            getattr(self, "draw_" + self.draw.choice(
                ("product",) * 5 + ("map",) * 2 + ("one", "fold", "fold", "turn", "reshape", "take",
                                                   "copy", "spread", "attend", "part")))()
        if not self.body:
            self.draw_product()
        self.place_results()

    def chance(self, p):
        return self.draw.random() < p

    def placed(self, shape, extents=True):
        """A random placement: an axis shards one dimension at most, or none."""
        marks = [""] * len(shape)
        for axis in self.axes:
            at = self.draw.randrange(len(shape) + 1)
            if at < len(shape) and not marks[at]:
                marks[at] = "@" + axis
        return "[" + ", ".join((str(n) + mark) if extents else ": " + mark if mark else ":"
                               for n, mark in zip(shape, marks)) + "]"

    def add_input(self, value, dtype="f32"):
        name = f"a{len(self.inputs)}"
        self.inputs[name] = value
        self.declared.append(f"in %{name} : {dtype}{self.placed(value.shape)}")
        return name

    def operand(self, *shape):
        found = [name for name, value in self.value.items() if value.shape == shape]
        if found and self.chance(0.6):
            return self.draw.choice(found)
        name = self.add_input(floats(*shape))
        self.value[name] = self.inputs[name].astype("f8")
        return name

    def any(self, ndims=None):
        found = [name for name, value in self.value.items()
                 if ndims is None or value.ndim == ndims]
        if found and self.chance(0.85):
            return self.draw.choice(found)
        return self.operand(*(self.draw.choice(EXTENTS)
                              for _ in range(ndims or self.draw.choice((1, 2, 2, 3)))))

    def add(self, value, text):
        name = f"t{len(self.body)}"
        self.body.append(f"%{name} = {text}")
        self.value[name] = value

    def draw_product(self):
        a = self.any(self.draw.choice((2, 2, 3)))
        x = self.value[a]
        ta, tb = x.ndim == 2 and self.chance(0.3), self.chance(0.4)
        k, n = x.shape[0 if ta else -1], self.draw.choice(EXTENTS)
        lead = x.shape[:1] if x.ndim == 3 and self.chance(0.5) else ()
        b = self.operand(*lead, *((n, k) if tb else (k, n)))
        y = (x.T if ta else x) @ (np.swapaxes(self.value[b], -1, -2) if tb else self.value[b])
        text = f"matmul %{a}, %{b}" + " ta" * ta + " tb" * tb
        if self.chance(0.2):
            text, y = text + " scale 0.5", y * 0.5
        if self.chance(0.3):
            bias = self.operand(n)
            text, y = text + f" bias %{bias}", y + self.value[bias]
        if self.chance(0.3):
            act = self.draw.choice(("relu", "gelu", "silu"))
            text, kept, y = text + f" act {act}", y, ACTS[act](y)
            if self.chance(0.3):
                self.value[f"u{len(self.body)}"] = kept
                text += f" aux %u{len(self.body)}"
        self.add(y, text)

    def draw_map(self):
        a = self.any()
        x = self.value[a]
        b = self.operand(*(x.shape if self.chance(0.7) else x.shape[-1:]))
        op, how = self.draw.choice((("add", np.add), ("sub", np.subtract), ("mul", np.multiply)))
        self.add(how(x, self.value[b]), f"{op} %{a}, %{b}")

    def draw_spread(self):
        a = self.any(2)
        b = self.operand(self.value[a].shape[0], 1)
        self.add(self.value[a] + self.value[b], f"add %{a}, %{b}")

    def draw_one(self):
        a, op = self.any(), self.draw.choice(("neg", "abs", "relu", "tanh"))
        self.add(ACTS[op](self.value[a]), f"{op} %{a}")

    def draw_copy(self):
        a = self.any()
        self.add(self.value[a], f"{self.draw.choice(('copy', 'set'))} %{a}")

    def draw_fold(self):
        a, op, keep = self.any(), self.draw.choice(list(FOLDS)), self.chance(0.4)
        x = self.value[a]
        if x.ndim == 1 and not keep:
            return
        dim = self.draw.randrange(x.ndim)
        self.add(FOLDS[op](x, axis=dim, keepdims=keep), f"{op} %{a} dim {dim}" + " keep" * keep)

    def draw_turn(self):
        a = self.any(self.draw.choice((2, 3)))
        i, k = self.draw.sample(range(self.value[a].ndim), 2)
        self.add(np.swapaxes(self.value[a], i, k), f"transpose %{a} dim0 {i} dim1 {k}")

    def draw_reshape(self):
        a = self.any()
        shape = list(self.value[a].shape)
        i = self.draw.randrange(len(shape))
        if i + 1 < len(shape) and self.chance(0.5):
            shape[i:i + 2] = [shape[i] * shape[i + 1]]
        elif len(shape) < 5 and shape[i] % 2 == 0 and shape[i] > 2:
            shape[i:i + 1] = [2, shape[i] // 2]
        self.add(self.value[a].reshape(shape), f"reshape %{a} to {shape}")

    def draw_take(self):
        a, n = self.any(2), self.draw.choice(EXTENTS)
        rows = np.array([self.draw.randrange(self.value[a].shape[0]) for _ in range(n)], "i4")
        i = self.add_input(rows, "i32")
        self.add(self.value[a][rows], f"take %{a}, %{i} dim 0")

    def draw_part(self):
        found = [name for name, value in self.value.items()
                 if name not in self.inputs and value.shape[0] > 2]
        if not found:
            return
        a = self.draw.choice(found)
        low = self.draw.randrange(self.value[a].shape[0] - 1)
        past = self.draw.randrange(low + 1, self.value[a].shape[0]) + 1
        self.ranged.add(a)
        self.add(-self.value[a][low:past], f"neg %{a}[{low}..{past}]")

    def draw_attend(self):
        heads, shared, rows, depth = 4, self.draw.choice((1, 2, 4)), self.draw.choice(EXTENTS), 4
        keys = self.draw.choice((rows, rows, 1, *EXTENTS))
        batch = (4,) if self.chance(0.3) else ()
        q = self.operand(*batch, heads, rows, depth)
        k, v = (self.operand(*batch, shared, keys, depth) for _ in range(2))
        causal = self.chance(0.6)
        groups = np.repeat(np.arange(shared), heads // shared)
        s = self.value[q] @ np.swapaxes(self.value[k][..., groups, :, :], -1, -2) / np.sqrt(depth)
        s = np.where(np.tril(np.ones((rows, keys), bool)) | (not causal), s, -np.inf)
        p = np.exp(s - s.max(-1, keepdims=True))
        y = p / p.sum(-1, keepdims=True) @ self.value[v][..., groups, :, :]
        self.body.append(f"%t{len(self.body)}, %l{len(self.body)} = attention %{q}, %{k}, %{v}"
                         + " causal 0" * causal)
        self.value[f"t{len(self.body) - 1}"] = y

    def place_results(self):
        """What nobody reads is an output; some others lie where the text says."""
        text = "\n".join(self.body)
        made = [name for name in self.value if name[0] in "tu" and name not in self.inputs]
        self.outs = [name for name in made if len(re.findall(rf"%{name}\b", text)) == 1] or made[-1:]
        for name in made:
            shape = self.value[name].shape
            if name in self.outs:
                self.declared.append(f"out %{name} : f32{self.placed(shape)}")
            elif name not in self.ranged and self.chance(0.2):
                self.declared.append(f"temp %{name} : {self.placed(shape, False)}")

    def __str__(self):
        mesh = ", ".join(f"{axis}={n}" for axis, n in self.axes.items())
        return "\n".join(["heddle 2", "tensor program drawn", f"mesh {mesh}", *self.declared, "{",
                          *self.body, "}", ""])


class Placed(unittest.TestCase):
    def judge(self, drawn):
        program = heddle.Program(str(drawn))
        explicit = program.lower(until="place", transfer="ring")
        again = heddle.Program(str(explicit)).lower(until="place", transfer="ring")
        self.assertEqual(str(again), str(explicit))
        host = program.lower(transfer=drawn.draw.choice(TRANSFERS))
        host.check(against=program)
        answer = host.reference(drawn.inputs)
        for name in drawn.outs:
            want = drawn.value[name]
            for rank in range(host.ranks):
                values, _ = answer.local(name, rank)
                mine = want[host.shard(name, rank)]
                values = values[tuple(slice(n) for n in mine.shape)]  # without spare room
                close = np.abs(values - mine) <= 1e-10 * (1 + np.abs(want).max())
                self.assertTrue(close.all(), f"%{name} of rank {rank}")

    def test_random_programs_make_what_numpy_does(self):
        for i in range(PROGRAMS):
            drawn = Drawn(SEED + i)
            with self.subTest(seed=SEED + i, program=str(drawn)):
                self.judge(drawn)

"""Programs built by operators: they are the programs of examples/, and what is wrong
is told at the line of Python that said it."""
import inspect
import keyword
import os
import pathlib
import re
import unittest
import unittest.mock

import heddle
import numpy as np
from draw import floats
from heddle import ops

ROOT = pathlib.Path(os.environ["HEDDLE_ROOT"])
TP, PP, EP = 4, 3, 4
STREAM, COLUMNS = ("stream", None, None), (None, "tp")
ROWS, HIDDEN, HEADS, KV, INNER, BATCH = 32, 64, 32, 16, 48, 4
KEYS = (("k", 2), ("v", 2))  # names of attention's, and their heads
BUILDS = {}


def example(function):
    """A function that builds examples/NAME.hd."""
    BUILDS[function.__name__] = function
    return function


def shards(b, name, *shape, dtype="bf16", axis="tp"):
    """An input of one index a rank."""
    return b.input(name, dtype, (TP, *shape), axes=(axis, *[None] * len(shape)))


def rows(b, name, *shape, dtype="bf16"):
    """An input whose rows are on the ranks."""
    return b.input(name, dtype, shape, axes=("tp", None))


def columns(b, name, *shape):
    return b.input(name, "bf16", shape, axes=COLUMNS)


@example
def ag_linear(b):
    a = rows(b, "a", TP * 128, 1024)
    w, bias = b.input("w", "bf16", (1024, 1024)), b.input("bias", "bf16", (1024,))
    b.output("c", ops.matmul(a, w, tb=True, bias=bias), (None, None))


@example
def ag_matmul(b):
    a, w = rows(b, "a", TP * 256, 512), columns(b, "b", 512, TP * 256)
    b.output("c", a @ w, COLUMNS)


@example
def column_linear(b):
    x, w = rows(b, "x", TP * 128, 1024), rows(b, "w", TP * 128, 1024)
    b.output("y", ops.matmul(x, w, tb=True), COLUMNS)


@example
def attention(b):
    q, k, v = (shards(b, name, heads, 128, 64, axis="cp") for name, heads in (("q", 8), *KEYS))
    o, lse = ops.attention(q, k, v, causal=True)
    b.output("o", o)
    b.output("lse", lse)


@example
def attention_gather(b):
    q, k, v = (shards(b, name, heads, 32, 16, axis="cp") for name, heads in (("q", 4), *KEYS))
    whole = [x.set((None,) * 4) for x in (k, v)]
    turned = [ops.transpose(x, 0, 1).declare(axes=(None,) * 4) for x in whole]
    keys, values = [ops.reshape(x, (2, TP * 32, 16)) for x in turned]
    o, lse = ops.attention(q, keys, values, causal="cp * 32")
    b.output("o", o.declare(dtype="f32"))
    b.output("lse", lse)


@example
def attention_heads(b):
    axes = (None, "cp", None)
    q, k, v = (b.input(name, "bf16", (TP * heads, TP * 32, 16), axes)
               for name, heads in (("q", 4), *KEYS))
    b.output("o", ops.attention(q, k, v, causal=True)[0], axes)


@example
def attention_out(b):
    o, w = columns(b, "o", TP * ROWS, TP * HEADS), columns(b, "w", HIDDEN, TP * HEADS)
    r = rows(b, "r", TP * ROWS, HIDDEN)
    b.output("y", ops.matmul(o, w, tb=True) + r, ("tp", None))


@example
def attention_qkv(b):
    x = rows(b, "x", TP * ROWS, HIDDEN)
    weights = [rows(b, "w" + name, TP * n, HIDDEN) for name, n in zip("qkv", (HEADS, KV, KV))]
    for name, w in zip("qkv", weights):
        b.output(name, ops.matmul(x, w, tb=True), COLUMNS)


@example
def backward_dgrad(b):
    g, w = rows(b, "g", TP * ROWS, HIDDEN), columns(b, "w", HIDDEN, TP * INNER)
    u = columns(b, "u", TP * ROWS, TP * INNER)
    gg = b.output("gg", g.copy(), (None, None))
    gh = (gg @ w).declare(dtype="f32")
    gu = ops.gelu_grad(u.copy("f32"), gh)
    b.output("gz", gu.copy("bf16"))
    b.output("gb", ops.sum(gu, dim=0))


@example
def backward_linear(b):
    gy, w = columns(b, "gy", TP * ROWS, TP * INNER), rows(b, "w", TP * INNER, HIDDEN)
    b.output("gx", gy @ w, ("tp", None))
    x = b.input("x", "bf16", (TP * ROWS, HIDDEN))
    gw = b.inout("gw", "f32", (HIDDEN, TP * INNER), COLUMNS)
    ops.matmul(x, gy, ta=True, accumulate=True, out=gw)


@example
def batch(b):
    x = b.input("x", "bf16", (BATCH, TP * ROWS, HIDDEN), (None, "tp", None))
    w = rows(b, "w", TP * INNER, HIDDEN)
    b.output("y", ops.matmul(x, w, tb=True), ("stream", None, "tp"))


@example
def epilogues(b):
    x, w = rows(b, "x", TP * ROWS, 64), rows(b, "w", TP * 48, 64)
    bias, r = b.input("b", "f32", (TP * 48,), ("tp",)), columns(b, "r", TP * ROWS, TP * 48)
    h = ops.matmul(x, w, tb=True, scale=0.125, bias=bias, act="relu").declare(dtype="f32")
    b.output("y", (h + r.copy("f32")).copy("bf16"), COLUMNS)


@example
def f8(b):
    x, w = rows(b, "x", TP * ROWS, 64, dtype="f8e4m3"), rows(b, "w", TP * 48, 64, dtype="f8e4m3")
    sx, sw, sy = (b.input(name, "f32", ()) for name in ("sx", "sw", "sy"))
    h = ops.matmul(x, w, tb=True, scale=sx * sw).declare(dtype="f32")
    b.output("y", ops.scale(h, sy).copy("f8e4m3"), COLUMNS)
    b.output("amax", ops.max(ops.max(abs(h), dim=1), dim=0))


@example
def f8_blocks(b):
    x, sx = rows(b, "x", TP * ROWS, 64, dtype="f8e4m3"), rows(b, "sx", TP * ROWS, 2, dtype="f32")
    w, sw = rows(b, "w", TP * 64, 64, dtype="f8e4m3"), rows(b, "sw", TP * 2, 2, dtype="f32")
    y = ops.matmul(x, w, tb=True, scale_a=sx, scale_b=sw, grain=32)
    b.output("y", y, COLUMNS)


@example
def layer_norm(b):
    x = rows(b, "x", TP * 64, 256)
    w, bias = b.input("w", "f32", (256,)), b.input("b", "f32", (256,))
    wide = x.copy("f32")
    less = wide - ops.mean(wide, dim=1, keepdim=True)
    variance = ops.mean(less * less, dim=1, keepdim=True)
    b.output("y", (less * ops.rsqrt(variance + 1e-5) * w + bias).copy("bf16"))


@example
def softmax(b):
    wide = rows(b, "x", TP * 64, 256).copy("f32")
    e = ops.exp(wide - ops.max(wide, dim=-1, keepdim=True))
    b.output("y", (e / ops.sum(e, dim=-1, keepdim=True)).copy("bf16"))


@example
def matmul_ar(b):
    a, w = columns(b, "a", TP * 64, TP * 128), rows(b, "w", TP * 128, 256)
    b.output("c", a @ w)


@example
def mlp_gelu(b):
    x = rows(b, "x", TP * ROWS, HIDDEN)
    w1, b1 = rows(b, "w1", TP * INNER, HIDDEN), b.input("b1", "bf16", (TP * INNER,), ("tp",))
    w2, b2 = columns(b, "w2", HIDDEN, TP * INNER), b.input("b2", "bf16", (HIDDEN,))
    u = b.empty("bf16", (TP * ROWS, TP * INNER), COLUMNS)
    h = ops.matmul(x, w1, tb=True, bias=b1, act="gelu", aux=u)
    b.output("u", u)
    b.output("y", ops.matmul(h, w2, tb=True, bias=b2), ("tp", None))


@example
def mlp_swiglu(b):
    x, wg, wu = rows(b, "x", TP * ROWS, HIDDEN), *(rows(b, n, TP * INNER, HIDDEN)
                                                   for n in ("wg", "wu"))
    wd = columns(b, "wd", HIDDEN, TP * INNER)
    h = ops.matmul(x, wg, tb=True, act="silu") * ops.matmul(x, wu, tb=True)
    b.output("y", ops.matmul(h, wd, tb=True), ("tp", None))


def mlp(b, m):
    x, w1, w2 = rows(b, "x", m, HIDDEN), rows(b, "w1", TP * INNER, HIDDEN), columns(
        b, "w2", HIDDEN, TP * INNER)
    b.output("y", ops.matmul(ops.matmul(x, w1, tb=True, act="gelu"), w2, tb=True), ("tp", None))


@example
def mlp_tokens(b):
    mlp(b, b.size("m", 1, 1024))


@example
def uneven_mlp(b):
    mlp(b, 125)


@example
def moe(b):
    tokens, experts, top, room, hidden, inner = 24, 8, 2, 12, 16, 32

    def own(n):
        return ("ep", *[None] * n)

    x = b.input("x", "bf16", (EP, tokens, hidden), own(2))
    router = b.input("router", "bf16", (hidden, experts))
    up = b.input("up", "bf16", (experts, 1, hidden, inner), own(3))
    down = b.input("down", "bf16", (experts, 1, inner, hidden), own(3))
    best, expert = ops.top_k((x @ router).declare(dtype="f32"), top)
    part = ops.exp(best - ops.max(best, dim=2, keepdim=True))
    weight = part / ops.sum(part, dim=2, keepdim=True)
    token, slot, n = ops.route(expert, experts, room)
    rows = ops.take(x, token, dim=1).declare(by={2: n})
    counts = n.set((None, "ep"))
    sent = rows.set((None, "ep", None, None)).declare(by={2: counts})
    many = ops.transpose(counts)
    arrived = ops.transpose(sent, 0, 1).declare(by={2: many})
    made = ops.transpose(ops.matmul(arrived, up, act="silu") @ down, 0, 1)
    back = made.declare(by={2: counts}).set(own(3)).declare(by={2: n})
    slots = ops.reshape(back.copy().declare(by={}), (EP, experts * room, hidden))
    got = ops.take(slots, slot, dim=1)
    factor = ops.reshape(weight.copy("bf16"), (EP, tokens, top, 1))
    b.output("y", ops.sum(got * factor, dim=2))


@example
def stages(b):
    micro, rows, k = 6, 4, 8
    x, g = (b.input(name, "f32", (micro, rows, k)) for name in "xg")
    w = b.input("w", "f32", (PP, k, k), ("pp", None, None))
    dw = b.empty("f32", (PP, k, k), ("pp", None, None))
    kept = [b.empty("f32", (micro, rows, k), STREAM, on=("pp", p)) for p in range(2)]
    y0 = ops.matmul(x, w[0], act="relu", aux=kept[0]).declare(axes=STREAM)
    a1 = y0.set(STREAM, on=("pp", 1))
    y1 = ops.matmul(a1, w[1], act="relu", aux=kept[1])
    a2 = y1.set(STREAM, on=("pp", 2))
    e2 = ops.relu_grad(a2 @ w[2], g)
    d1 = ops.matmul(e2, w[2], tb=True).set(STREAM, on=("pp", 1))
    e1 = ops.relu_grad(kept[1], d1)
    d0 = ops.matmul(e1, w[1], tb=True).set(STREAM, on=("pp", 0))
    e0 = ops.relu_grad(kept[0], d0)
    for p, (a, e) in enumerate(((x, e0), (a1, e1), (a2, e2))):
        flat = [ops.reshape(t, (micro * rows, k)) for t in (a, e)]
        flat[0].declare(on=("pp", p))
        ops.matmul(*flat, ta=True, out=dw[p])
    b.output("dw", dw)


@example
def transpose_shards(b):
    rows = shards(b, "rows", TP, 32, dtype="f32")
    scaled = (rows * 0.5).declare(axes=(None, "tp", None))
    b.output("back", scaled.copy(), ("tp", None, None))


@example
def transposes(b):
    x, w = columns(b, "x", HIDDEN, TP * ROWS), rows(b, "w", TP * INNER, HIDDEN)
    b.output("y", ops.matmul(ops.transpose(x), w, tb=True), COLUMNS)


@example
def two_gathers(b):
    a, c = (rows(b, name, TP * 32, 64, dtype="f32") for name in "ab")
    q, k = b.input("q", "f32", (64, 48)), b.input("k", "f32", (64, 48))
    b.output("s", a @ q + c @ k, (None, None))
    b.output("t", ops.matmul(a, k, act="silu"), (None, None))


def plain(text):
    """A program whose declarations are in alphabetical order, and whose temporaries
    are numbered in the order in which statements name them."""
    temps = set(re.findall(r"^temp +%(\w+)", text, re.M))
    body = text[text.index("{\n"):]
    order = [name for name in dict.fromkeys(re.findall(r"%(\w+)", body)) if name in temps]
    text = re.sub(r"%(\w+)", lambda m: f"%t{order.index(m[1])}" if m[1] in order else m[0], text)
    text = re.sub(r"^(in|out|inout|temp) +(%\w+) +:", r"\1 \2 :", text, flags=re.M)
    head, rest = text.split("{\n")
    return "\n".join(sorted(head.splitlines())), rest


class Built(unittest.TestCase):
    maxDiff = None

    def test_examples_are_their_texts(self):
        for name, function in BUILDS.items():
            text = heddle.Program.open(ROOT / f"examples/{name}.hd")
            b = heddle.Builder(text.name, mesh={axis.name: axis.extent for axis in text.axes})
            with self.subTest(name), unittest.mock.patch.dict(globals(), TP=text.axes[0].extent):
                function(b)
                self.assertEqual(*(plain(str(each.lower(until="place")))
                                   for each in (b.build(), text)))

    def test_what_is_left_open_is_as_long_as_proposed(self):
        b = heddle.Builder("open")
        x, t, row, one = (b.input(name, "bf16", shape) for name, shape in (
            ("x", (6, 8)), ("t", (3, 6, 8)), ("row", (8,)), ("one", (6, 1))))
        wide, index = b.input("wide", "f32", (6, 8)), b.input("index", "i32", (5, 2))
        f8, n = b.input("f8", "f8e4m3", (6, 8)), b.input("n", "i32", (3,))
        q, k = b.input("q", "bf16", (2, 4, 6, 8)), b.input("k", "bf16", (2, 2, 5, 8))
        o, lse = ops.attention(q, k, k)
        grouped = ops.matmul(x, x, ta=True, groups=n)
        made = [x + row, row - t, x * one, ops.select(x < one, x, 0), x < one, x.copy("f32"), 2 * x,
                ops.rsqrt(wide), x[0:2] + one[0:2], ops.gelu_grad(x, x[0:6]), x.copy(),
                ops.matmul(x, x, tb=True), ops.matmul(t, x, tb=True), ops.matmul(t, t, ta=True),
                ops.matmul(f8, f8, tb=True), ops.matmul(x, x, tb=True).declare(dtype="f32"), grouped,
                t @ b.input("w", "bf16", (4, 8, 5)),
                ops.matmul(x, ops.reshape(t, (3, 8, 6)), groups=n),
                ops.sum(t, dim=1), ops.max(t, dim=-1, keepdim=True), ops.sum(x, wide),
                ops.min(wide, x, 0.5), ops.mean(x, dim=0), ops.take(x, index[0], dim=0),
                ops.take(t, index[1:4], dim=1), ops.transpose(t, 0, 2), ops.permute(t, (1, 2, 0)),
                ops.reshape(t, (6, 24)), o, lse, *ops.attention_grad(q, k, k, o, lse, o),
                *ops.merge(o, lse, o, lse)]
        for i, each in enumerate(made):
            b.output(f"y{i}", each.copy())
        program = b.build()
        # How long rows of groups are together no operand says.
        self.assertEqual(re.findall(r"^temp +%(\w+) +: .*\[", str(program), re.M), [grouped.name])
        placed = str(program.lower(until="place"))
        declared = dict(re.findall(r"^temp %(\w+) *: (.*)$", placed, re.M))
        for each in made:
            with self.subTest(repr(each)):
                shape = ", ".join(map(str, each.shape))
                self.assertEqual(declared[each.name], f"{each.dtype}[{shape}]")

    def test_arguments_alone_say_where_they_lie(self):
        b = heddle.Builder("backward", mesh={"dp": 2, "tp": 2})
        x = b.input("x", "f32", (8, 12), axes=("dp", None))
        w = b.input("w", "f32", (16, 12), axes=("tp", None))
        dy = b.input("dy", "f32", (8, 16), axes=("dp", "tp"))
        h = (dy @ w).declare(name="h")
        b.output("dx", h + x)
        b.output("dw", ops.matmul(dy, x, ta=True), axes=("tp", None))
        b.output("db", ops.sum(dy, dim=0, keepdim=True), axes=(None, "tp"))
        b.output("wide", ops.reshape(h, (8, 3, 4)).copy("f64"), axes=("dp", None, None))
        program = b.build()
        self.assertNotIn("temp", str(program))
        arrays = {each.name: floats(*each.shape) for each in (x, w, dy)}
        u, v, g = (array.astype("f8") for array in arrays.values())
        want = {"dx": g @ v + u, "dw": g.T @ u, "db": g.sum(0, keepdims=True),
                "wide": (g @ v).reshape(8, 3, 4)}
        lowered = program.lower()
        lowered.check(against=program)
        for reference in (program.reference(arrays), lowered.reference(arrays)):
            for name, value in want.items():
                for rank in range(program.ranks):
                    values, bounds = reference.local(name, rank)
                    mine = value[program.shard(name, rank)]
                    self.assertTrue((abs(values - mine) <= bounds).all(), (name, rank))

    def test_attention_in_parts_is_attention(self):
        b = heddle.Builder("parts")
        q, v = b.input("q", "f32", (4, 5, 8)), b.input("v", "f32", (2, 6, 3))
        k = b.input("k", "f32", (2, 6, 8))
        parts = [ops.attention(q, k[:, i:i + 3], v[:, i:i + 3], scale=0.5, causal=2 - i, window=9)
                 for i in (0, 3)]
        b.output("o", ops.merge(*parts[0], *parts[1])[0])
        arrays = {x.name: floats(*x.shape) for x in (q, k, v)}
        s = 0.5 * np.einsum("hqd,hkd->hqk", arrays["q"].astype(float), arrays["k"].repeat(2, 0))
        s[:, ~(np.arange(6) <= 2 + np.arange(5)[:, None])] = -np.inf
        p = np.exp(s - s.max(-1, keepdims=True))
        expected = p / p.sum(-1, keepdims=True) @ arrays["v"].repeat(2, 0)
        with heddle.Group.local() as group:
            got = heddle.compile(b.build(), group, {})(**arrays)
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5 * abs(arrays["v"]).max())

    def test_attention_of_padded_sequences_is_that_of_each(self):
        b = heddle.Builder("padded")
        n, m = (b.input(name, "i32", (4,)) for name in "nm")
        q = b.input("q", "f32", (4, 2, 5, 8), by={2: n})
        k, v = (b.input(name, "f32", (4, 1, 7, size), by={2: m}) for name, size in (("k", 8),
                                                                                   ("v", 3)))
        do = b.input("do", "f32", (4, 2, 5, 3))
        o, lse = ops.attention(q, k, v)
        grads = ops.attention_grad(q, k, v, o, lse, do)
        for name, x in zip(("o", "lse", "dq", "dk", "dv"), (o, lse, *grads)):
            b.output(name, x)
        text = str(b.build())
        for name in ("%o : f32[4, 2, 5 by %n, 3]", "%lse : f32[4, 2, 5 by %n]",
                     "%dk : f32[4, 1, 7 by %m, 8]"):
            self.assertIn(name, " ".join(text.split()))
        arrays = {x.name: floats(*x.shape) for x in (q, k, v, do)}
        rows, keys = (np.array(x, np.int32) for x in ([0, 5, 3, 1], [7, 4, 0, 1]))
        with heddle.Group.local() as group:
            got = dict(zip(("o", "lse", "dq", "dk", "dv"),
                           heddle.compile(b.build(), group, {})(n=rows, m=keys, **arrays)))
        for i, (r, c) in enumerate(zip(rows, keys)):
            x = {name: a[i].astype(float) for name, a in arrays.items()}
            s = np.einsum("hqd,kd->hqk", x["q"][:, :r], x["k"][0, :c]) / 8 ** 0.5
            total = np.exp(s).sum(-1, keepdims=True)
            p = np.exp(s) / np.where(total > 0, total, 1)
            out = p @ x["v"][0, :c]
            dp = x["do"][:, :r] @ x["v"][0, :c].T
            ds = p * (dp - (out * x["do"][:, :r]).sum(-1, keepdims=True)) / 8 ** 0.5
            wanted = {"o": out, "dq": ds @ x["k"][0, :c],
                      "dk": np.einsum("hqk,hqd->kd", ds, x["q"][:, :r])[None],
                      "dv": np.einsum("hqk,hqd->kd", p, x["do"][:, :r])[None]}
            for name, value in wanted.items():
                padded = np.zeros(got[name][i].shape)
                padded[:, :value.shape[1]] = value
                np.testing.assert_allclose(got[name][i], padded, rtol=0, atol=1e-4, err_msg=name)
            with np.errstate(divide="ignore"):
                np.testing.assert_allclose(got["lse"][i, :, :r], np.log(total[..., 0]), atol=1e-5)
            self.assertTrue((got["lse"][i, :, r:] == -np.inf).all())

    def test_attention_of_packed_sequences_is_that_of_each(self):
        def attend(name, shape, groups):
            b = heddle.Builder(name)
            n = b.input("n", "i32", (2, 3)) if groups else None
            q, do = b.input("q", "f32", (*shape, 8)), b.input("do", "f32", (*shape, 3))
            k, v = (b.input(name, "f32", (shape[0], 1, shape[2], size))
                    for name, size in (("k", 8), ("v", 3)))
            o, lse = ops.attention(q, k, v, causal=1, window=3, groups=n)
            grads = ops.attention_grad(q, k, v, o, lse, do, causal=1, window=3, groups=n)
            for name, x in zip(RESULTS, (o, lse, *grads)):
                b.output(name, x)
            return b.build()

        RESULTS = ("o", "lse", "dq", "dk", "dv")
        counts = np.array([[4, 0, 3], [1, 9, 1]], np.int32)
        arrays = {"q": floats(2, 2, 11, 8), "do": floats(2, 2, 11, 3), "k": floats(2, 1, 11, 8),
                  "v": floats(2, 1, 11, 3)}
        program = attend("packed", (2, 2, 11), True)
        self.assertIn("= attention %q, %k, %v groups %n causal 1 window 3", str(program))
        with heddle.Group.local() as group:
            got = dict(zip(RESULTS, heddle.compile(program, group, {})(n=counts, **arrays)))
            for i, row in enumerate(counts):
                ends = np.cumsum(row)
                for first, end in zip(ends - row, ends):
                    if first == end:
                        continue
                    alone = {name: np.ascontiguousarray(x[i:i + 1, :, first:end])
                             for name, x in arrays.items()}
                    program = attend("alone", (1, 2, int(end - first)), False)
                    want = heddle.compile(program, group, {})(**alone)
                    for name, x in zip(RESULTS, want):
                        np.testing.assert_allclose(got[name][i, :, first:end], x[0], rtol=0,
                                                   atol=1e-5, err_msg=name)
                for name in RESULTS:
                    none = -np.inf if name == "lse" else 0
                    self.assertTrue((got[name][i, :, ends[-1]:] == none).all(), name)
            # Of some of the rows.
            b = heddle.Builder("some")
            n, q = b.input("n", "i32", (2, 3)), b.input("q", "f32", (2, 2, 7, 8))
            k, v = b.input("k", "f32", (2, 1, 11, 8)), b.input("v", "f32", (2, 1, 11, 3))
            for name, x in zip(RESULTS, ops.attention(q, k, v, causal=5, window=3, groups=n,
                                                      row=4, key="0", room=11)):
                b.output(name, x)
            arrays["q"] = np.ascontiguousarray(arrays["q"][:, :, 4:])
            some = heddle.compile(b.build(), group, {})(
                n=counts, **{name: arrays[name] for name in "qkv"})
            for name, x in zip(RESULTS, some):
                np.testing.assert_allclose(x, got[name][:, :, 4:], rtol=0, atol=1e-5)

    def test_gradients_of_attention_in_parts_are_those_of_numpy(self):
        b = heddle.Builder("parts")
        q, v = b.input("q", "f32", (2, 4, 5, 8)), b.input("v", "f32", (2, 6, 3))
        k, do = b.input("k", "f32", (2, 6, 8)), b.input("do", "f32", (4, 5, 3))
        o, lse = ops.attention(q, k, v, causal=1)
        dk, dv = b.empty("f32", (2, 2, 6, 8)), b.empty("f32", (2, 2, 6, 3))
        dq = [b.empty("f32", (2, 4, 5, 8)) for _ in range(2)]
        for n, i in enumerate((0, 3)):
            ops.attention_grad(q, k[:, i:i + 3], v[:, i:i + 3], o, lse, do, causal=1 - i,
                               out=(dq[n], dk[:, :, i:i + 3], dv[:, :, i:i + 3]))
        for name, x in (("dq", dq[0] + dq[1]), ("dk", dk), ("dv", dv)):
            b.output(name, x)
        arrays = {x.name: floats(*x.shape) for x in (q, k, v, do)}
        whole = {name: x.astype(float) for name, x in arrays.items()}
        keys, values = (np.repeat(whole[name], 2, 0) for name in "kv")
        s = np.einsum("bhqd,hkd->bhqk", whole["q"], keys) / 8 ** 0.5
        s[..., ~(np.arange(6) <= 1 + np.arange(5)[:, None])] = -np.inf
        p = np.exp(s - s.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        ds = np.einsum("hqc,hkc->hqk", whole["do"], values)
        ds = p * (ds - (p * ds).sum(-1, keepdims=True)) / 8 ** 0.5
        expected = (np.einsum("bhqk,hkd->bhqd", ds, keys),
                    np.einsum("bhqk,bhqd->bhkd", ds, whole["q"]),
                    np.einsum("bhqk,hqc->bhkc", p, whole["do"]))
        with heddle.Group.local() as group:
            got = heddle.compile(b.build(), group, {})(**arrays)
        for have, want, shared in zip(got, expected, (False, True, True)):
            if shared:
                want = want.reshape(2, 2, 2, *want.shape[2:]).sum(2)
            np.testing.assert_allclose(have, want, rtol=0, atol=1e-5 * abs(want).max())

    def test_attention_to_blocks_is_attention(self):
        b = heddle.Builder("blocks")
        q = b.input("q", "f32", (4, 5, 8))
        k, v = b.input("k", "f32", (2, 2, 3, 8)), b.input("v", "f32", (2, 2, 3, 6))
        b.output("o", ops.attention(q, k, v, causal=2, blocks=True)[0])
        b.output("r", ops.attention(q, k, v, causal=-1, blocks=True, step="3")[0])
        b.output("w", ops.attention(q, k, v, blocks=True, window=3)[0])
        arrays = {x.name: floats(*x.shape) for x in (q, k, v)}
        with heddle.Group.local() as group:
            got = heddle.compile(b.build(), group, {})(**arrays)
        apart = np.arange(6) - np.arange(5)[:, None]
        forward, backward = slice(None), slice(None, None, -1)
        for result, order, sees in zip(got, (forward, backward, forward),
                                       (apart <= 2, apart <= 2, abs(apart) < 3)):
            keys, values = (np.concatenate(arrays[x][order], 1).repeat(2, 0) for x in "kv")
            s = np.einsum("hqd,hkd->hqk", arrays["q"].astype(float), keys) / 8 ** 0.5
            s[:, ~sees] = -np.inf
            p = np.exp(s - s.max(-1, keepdims=True))
            expected = p / p.sum(-1, keepdims=True) @ values
            np.testing.assert_allclose(result, expected, rtol=0,
                                       atol=1e-5 * abs(arrays["v"]).max())

    def test_attention_in_zigzag_is_that_of_the_sequence(self):
        # Of 3 blocks that are chunks i and 5 - i, forward and backward.
        chunks = np.array([[i, 5 - i] for i in range(3)])
        place = (chunks[..., None] * 2 + np.arange(2)).reshape(3, 4)
        b = heddle.Builder("zigzag", mesh={"cp": 1})
        q, do = b.input("q", "f32", (1, 4, 4, 8), ("cp", None, None, None)), \
            b.input("do", "f32", (1, 4, 4, 6), ("cp", None, None, None))
        k, v = b.input("k", "f32", (3, 2, 4, 8)), b.input("v", "f32", (3, 2, 4, 6))
        windows = (3, None, 7)
        for own, said in enumerate((0, "cp + 1", heddle.Expr("2"))):
            o, lse = ops.attention(q, k, v, blocks=True, zigzag=said, window=windows[own])
            grads = ops.attention_grad(q, k, v, o, lse, do, blocks=True, zigzag=said,
                                       window=windows[own])
            for name, x in zip(("o", "dq", "dk", "dv"), (o, *grads)):
                b.output(name + str(own), x)
        arrays = {x.name: floats(*x.shape) for x in (q, do, k, v)}
        with heddle.Group.local() as group:
            got = heddle.compile(b.build(), group, {})(**arrays)
        heads = {x: arrays[x].astype(float).transpose(1, 0, 2, 3).reshape(2, 12, -1).repeat(2, 0)
                 for x in "kv"}
        rows, up = (arrays[x][0].astype(float) for x in ("q", "do"))
        for own in range(3):
            s = np.einsum("hqd,hkd->hqk", rows, heads["k"]) / 8 ** 0.5
            behind = place[own][:, None] - place.reshape(-1)
            s[:, (behind < 0) | (behind >= (windows[own] or 12))] = -np.inf
            p = np.exp(s - s.max(-1, keepdims=True))
            p /= p.sum(-1, keepdims=True)
            o = p @ heads["v"]
            ds = p * (up @ heads["v"].transpose(0, 2, 1) - (up * o).sum(-1, keepdims=True))
            of_keys = (ds.transpose(0, 2, 1) @ rows / 8 ** 0.5, p.transpose(0, 2, 1) @ up)
            wants = [o[None], (ds @ heads["k"] / 8 ** 0.5)[None]]
            wants += [x.reshape(2, 2, 3, 4, -1).sum(1).transpose(1, 0, 2, 3)[None]
                      for x in of_keys]
            for have, want in zip(got[4 * own:], wants):
                np.testing.assert_allclose(have, want, rtol=0, atol=1e-5 * abs(want).max())
        with self.assertRaisesRegex(heddle.Error, "zigzag is 1.5, which is no whole number"):
            ops.attention(q, k, v, blocks=True, zigzag=1.5)
        with self.assertRaisesRegex(heddle.Error, r"zigzag 3 on rank 0: .* of 0 to 2"):
            b.output("beyond", ops.attention(q, k, v, blocks=True, zigzag=3)[0])
            b.build()

    def test_results_of_attention_are_two(self):
        b = heddle.Builder("one")
        q = b.input("q", "f32", (4, 5, 8))
        with self.assertRaisesRegex(heddle.Error, "attention has 2 results, and `out` is 1"):
            ops.attention(q, q, q, out=(q,))
        with self.assertRaisesRegex(heddle.Error, "causal is 1.5, which is no whole number"):
            ops.attention(q, q, q, causal=1.5)

    def test_it_is_built_again_as_it_goes_on(self):
        b = heddle.Builder(mesh={"tp": 2})
        b.output("y", -b.input("x", "f32", (2, 3), ("tp", None)))
        first = str(b.build())
        self.assertEqual(first, str(heddle.Program(first)))
        b.output("z", b.input("u", "i32", ()) + 1)
        self.assertEqual(len(b.build().arguments), 4)

    def test_numbers_of_numpys_are_numbers(self):
        b = heddle.Builder("numbers", mesh={"tp": np.int64(1)})
        x = b.input("x", "f32", (np.int32(2), 3))
        b.output("y", np.float64(0.5) * x[np.int64(1)] + np.float32(0.25) - np.int8(2))
        text = str(b.build())
        for words in ("by 0.5", ", 0.25", ", 2\n", "%x[1]"):
            self.assertIn(words, text)

    def test_parts_are_written(self):
        b = heddle.Builder("pad")
        x = b.input("x", "f32", (6, 4))
        y = b.empty("f32", (12, 4))
        y[0:2] = 0.5
        y[2:8] = x
        y[8:10] = x[heddle.Block(1, 3)]
        ops.matmul(x[-2:], b.fill(2, "f32", (4, 4)), out=y[10:12])
        b.output("y", y)
        program, array = b.build(), floats(6, 4)
        want = np.concatenate([np.full((2, 4), 0.5), array, array[2:4],
                               array[-2:].astype("f8") @ np.full((4, 4), 2)])
        values, bounds = program.reference({"x": array}).local("y", 0)
        self.assertTrue((abs(values - want) <= bounds).all())

    def test_operators(self):
        b = heddle.Builder("operators")
        x, y = b.input("x", "f32", (5, 7)), b.input("y", "f32", (7,))
        made = {"add": x + y, "radd": 2 + x, "sub": x - 1, "rsub": 1 - x, "mul": x * y,
                "scale": 3 * x, "div": x / 4, "rdiv": 1 / abs(x), "neg": -x,
                "max": ops.max(0.5, x, y), "pow": abs(x) ** 1.5,
                "mean": ops.mean(x, dim=-1, keepdim=True),
                "and": ops.select((x < y) & ~(x < 0), x, 0),
                "lt": ops.select(x < y, x, y), "ge": ops.select(x >= y, x, 0),
                "ne": ops.select(ops.ne(x, y), x, y)}
        for name, value in made.items():
            b.output(name, value)
        u, v = floats(5, 7), floats(7)
        wide = u.astype("f8")
        want = {"add": wide + v, "radd": 2 + wide, "sub": wide - 1, "rsub": 1 - wide,
                "mul": wide * v, "scale": 3 * wide, "div": wide / 4, "rdiv": 1 / abs(wide),
                "neg": -wide, "max": np.maximum(np.maximum(0.5, wide), v),
                "mean": wide.mean(-1, keepdims=True),
                "pow": abs(wide) ** 1.5, "and": np.where((u < v) & (u >= 0), u, 0),
                "lt": np.where(u < v, u, v), "ge": np.where(u >= v, u, 0),
                "ne": np.where(u != v, u, v)}
        reference = b.build().reference({"x": u, "y": v})
        for name in made:
            values, bounds = reference.local(name, 0)
            self.assertTrue((abs(values - want[name]) <= bounds + 1e-300).all(), name)

    def test_dimensions_are_in_any_order(self):
        b = heddle.Builder("order", mesh={"tp": 2})
        x = b.input("x", "f32", (2, 3, 4), ("tp", None, None))
        turned = ops.permute(x, (-1, 0, np.int64(1)))
        self.assertEqual((turned.shape, turned.axes), ((4, 2, 3), (None, "tp", None)))
        b.output("y", turned)
        program, array = b.build(), floats(2, 3, 4)
        self.assertIn("order (2, 0, 1)", str(program))
        values, _ = program.reference({"x": array}).local("y", 1)
        self.assertTrue((values == array.transpose(2, 0, 1)[:, 1:]).all())

    def test_results_are_what_their_forms_say(self):
        b = heddle.Builder("forms", mesh={"tp": 2})
        x, e = (b.input("xe"[i], "f32", (2 + 6 * i, 3 + i, 4 + i), ("tp", None, None))
                for i in range(2))
        rows, n = b.input("rows", "f32", (9, 4)), b.input("n", "i32", (7,))
        m = b.input("m", "f32", (7, 4, 8), by={1: n})
        w = b.input("w", "f32", (7, 4, 8))
        q, k = b.input("q", "f32", (4, 5, 8)), b.input("k", "f32", (6, 2, 3, 8))
        for made, shape, at in (
                (m[0:3, :, 0:4] @ e, (8, 3, 4, 5), 0), (rows @ e, (8, 9, 5), 0),
                (ops.matmul(x, m[0:2], crossed=True), (2, 2, 3, 8), 1),
                (ops.matmul(rows, rows, ta=True, groups=n), (7, 4, 4), None),
                (ops.matmul(rows, w, groups=n, bias=w[:, 0]), (9, 8), None),
                (ops.matmul(rows, w, groups=n, scale_a=rows[:, 0:1], scale_b=w[:, 0:1]),
                 (9, 8), None),
                (ops.attention(q, k, k)[0], (6, 4, 5, 8), None)):
            with self.subTest(repr(made)):
                self.assertEqual(made.shape, shape)
                self.assertEqual(made.axes, tuple("tp" if i == at else None
                                                  for i in range(made.ndim)))
        made = (m + m, m + b.input("t", "f32", (2, 7, 4, 8)), ops.permute(m, (0, 2, 1)))
        self.assertEqual([" by %n" in repr(each) for each in made], [True, False, False])
        self.assertEqual(b.op("transpose", x, dim0=0, dim1=1).axes, (None, "tp", None))
        with unittest.mock.patch.object(ops, "__all__", []):  # of an op without a function
            y = b.op("permute", x, order=(2, 0, 1), out=b.empty("f32", (4, 2, 3), (None, "tp", None)))
            self.assertEqual((y.axes, b.op("permute", y, order=(1, 2, 0)).axes),
                             ((None, "tp", None), x.axes))

    def test_every_operation_and_key_is_there(self):
        rows = re.findall(r'^HD_(OP|MAP|FOLD|PICK|ATTEND)\((\w+), "(\w+)", ?([^;]*?)\)$',
                          (ROOT / "ir/ops.def").read_text(), re.M)
        names = {name for kind, _, name, rest in rows if kind != "OP" or "HOST" not in rest}
        self.assertGreater(len(names), 30)
        methods = {"set": heddle.Tensor.set, "copy": heddle.Tensor.copy,
                   "fill": heddle.Builder.fill, "iota": heddle.Builder.iota}
        for name in names:
            self.assertTrue(callable(methods.get(name) or
                                     getattr(ops, name + "_" * keyword.iskeyword(name))), name)
        keys = re.search(r"HD_OP\(MATMUL.*?,\s+(K\(.*?),\s+0\)", (ROOT / "ir/ops.def").read_text(),
                         re.S).group(1)
        keys = {key.lower() for key in re.findall(r"K\((\w+)\)", keys)}
        self.assertEqual(keys - set(inspect.signature(ops.matmul).parameters), set())

    def test_where_indices_begin(self):
        b = heddle.Builder("placed")
        x = b.input("x", "f32", (5, 3))
        i = b.input("i", "i32", (7,))
        b.output("y", ops.take(x, i, 0, start=2))
        b.output("n", b.iota(-1, (2, 3), dtype="i64", start=4))
        b.output("m", b.iota(0, (4,)))
        x, i = floats(5, 3), np.array([6, -1, 2, 1, 7, 4, 0], "i4")
        with heddle.Group.local() as group:
            y, n, m = heddle.compile(b.build(), group)(x, i)
        inside = (i >= 2) & (i < 7)
        np.testing.assert_array_equal(y, np.where(inside[:, None], x[np.clip(i - 2, 0, 4)], 0))
        np.testing.assert_array_equal(n, np.broadcast_to(np.arange(4, 7), (2, 3)))
        np.testing.assert_array_equal(m, np.arange(4))

    def test_tensors_are_put_together(self):
        b = heddle.Builder("together", mesh={"tp": 2})
        x = b.input("x", "f32", (6, 4), ("tp", None))
        y = b.input("y", "f32", (6, 3), (None, None))
        z = ops.concat(x, y, x, dim=-1)
        self.assertEqual(z.shape, (6, 11))
        b.output("z", ops.scale(z, 0.5))
        out = b.empty("f32", (12, 4), axes=("tp", None))
        b.output("w", ops.concat(x, x, dim=0, out=out))
        with self.assertRaisesRegex(heddle.ArgumentError, "no tensors"):
            ops.concat(dim=0)
        with self.assertRaisesRegex(heddle.ArgumentError, "dimension 2"):
            ops.concat(x, y, dim=2)
        x, y = floats(6, 4), floats(6, 3)
        reference = b.build().reference({"x": x, "y": y})
        want = {"z": np.concatenate([x, y, x], axis=1) / 2, "w": np.concatenate([x, x])}
        for name, whole in want.items():
            got = np.concatenate([reference.local(name, rank)[0] for rank in range(2)])
            np.testing.assert_array_equal(got if len(got) == len(whole) else got[:6], whole)

    def test_a_fold_without_a_dimension_is_of_all(self):
        b = heddle.Builder("all", mesh={"tp": 2})
        x = b.input("x", "f32", (6, 4, 3), (None, "tp", None))
        h = b.input("h", "bf16", (6, 4), ("tp", None))
        made = {"sum": ops.sum(x), "mean": ops.mean(x), "max": ops.max(x), "min": ops.min(x),
                "narrow": ops.sum(h), "less": ops.sum(x - ops.mean(x))}
        for name, value in made.items():
            self.assertEqual(b.output(name, value).shape, ())
        with self.assertRaisesRegex(heddle.ArgumentError, "keepdim"):
            ops.sum(x, keepdim=True)
        x, h = floats(6, 4, 3), floats(6, 4)
        wide = x.astype("f8")
        want = {"sum": wide.sum(), "mean": wide.mean(), "max": x.max(), "min": x.min()}
        program = b.build()
        self.assertIn("temp %narrow_sum", str(program))
        answers = program.reference({"x": x, "h": h})
        for name, value in want.items():
            values, bound = answers.local(name, 1)
            self.assertLessEqual(abs(values - value), bound, name)

    def test_what_has_no_operand_lies_where_it_is_read(self):
        b = heddle.Builder("read", mesh={"tp": 2})
        x = b.input("x", "f32", (6, 4), ("tp", None))
        i = b.iota(0, (6, 4), dtype="i64", start=2)
        b.output("y", x * i.copy("f32") + b.fill(0.5, "f32", (6, 4)))
        text = str(b.build())
        for words in ("temp %iota1 : i64\n", "iota to [6, 4] dim 0 start 2\n",
                      "fill to [6, 4] value 0.5\n"):
            self.assertIn(words, text)
        self.assertIn("i64[6@tp, 4]", str(b.build().lower(until="place")))

    def test_a_call_runs(self):
        def double(call):
            np.asarray(call.results[0])[:] = 2 * np.asarray(call.operands[0])

        def halves(call):
            for result in call.results:
                np.asarray(result)[:] = np.asarray(call.operands[0]) / 2

        b = heddle.Builder("called")
        x = b.input("x", "f32", (3, 4))
        parts = ops.call("halves", x, over=1, out=[b.empty("f32", (3, 4)) for _ in range(2)])
        b.output("y", ops.call("double", x) + parts[0] + parts[1])
        array = floats(3, 4)
        with heddle.Group.local() as group:
            run = heddle.compile(b.build(), group, calls={"double": double, "halves": halves})
            np.testing.assert_array_equal(run(array), 2 * array + array / 2 + array / 2)


def line_of(mark):
    lines = inspect.getsource(inspect.getmodule(line_of)).splitlines()
    (found,) = [i for i, line in enumerate(lines, 1) if line.endswith("# " + mark)]
    return found


class Wrong(unittest.TestCase):
    def caught(self, build, kind=heddle.ProgramError):
        with self.assertRaises(kind) as caught:
            build()
        return caught.exception

    def test_all_that_is_wrong_is_told_at_its_line(self):
        b = heddle.Builder("wrong", mesh={"tp": 4})
        x = b.input("x", "f32", (4, 8, 32), ("tp", None, None))
        w = b.input("w", "f32", (31, 16))
        y = x @ w  # contracts
        b.output("y", y)
        b.output("z", x + b.input("u", "i32", (4,)))  # adds
        b.empty("f32", (4,), ("tq",))  # axis
        error = self.caught(b.build)
        errors = [m for m in error.messages if m.severity == "error"]
        self.assertEqual({m.file for m in errors}, {__file__})
        self.assertIn(line_of("axis"), [m.line for m in errors])
        del b._temps[-1]
        error = self.caught(b.build)
        errors = [m for m in error.messages if m.severity == "error"]
        self.assertEqual([m.line for m in errors], [line_of("contracts"), line_of("adds")])
        self.assertEqual(error.code, "HD0313")
        self.assertIn("x @ w", str(error))
        if hasattr(inspect.currentframe().f_code, "co_positions"):
            self.assertIn("|             ^~~~~\n", str(error))
            self.assertEqual(errors[0].column, 13)

    def test_what_is_lowered_and_checked_names_it_too(self):
        b = heddle.Builder("late", mesh={"tp": 4})
        x = b.input("x", "f32", (4, 6, 2), ("tp", None, None))
        b.output("y", ops.gelu(x.set(STREAM)))  # gathers
        program = b.build()
        with self.assertWarns(heddle.HeddleWarning):
            program.lower(transfer="bulk", chunks=4)
        error = self.caught(lambda: program.lower(transfer="direct", chunks=5))
        self.assertEqual((error.messages[0].file, error.messages[0].line),
                         (__file__, line_of("gathers")), str(error))

    def test_names_that_are_none(self):
        b = heddle.Builder("named")
        b.output("y", -b.input("a b", "f32", (2,)))  # named
        error = self.caught(b.build, heddle.ArgumentError)
        self.assertIn("'a b'", str(error))
        self.assertEqual(error.messages[0].line, line_of("named"))
        self.assertIn("'no name'", str(self.caught(heddle.Builder("no name").build,
                                                   heddle.ArgumentError)))

    def test_what_is_misused(self):
        b, other = heddle.Builder("one"), heddle.Builder("two")
        x, y = b.input("x", "f32", (4, 8)), other.input("y", "f32", (4, 8))
        read = -x
        read + x
        for call, words in ((lambda: x + y, "two programs"),
                            (lambda: b.output("y", y), "another program"),
                            (lambda: x[1][2], "a part already"),
                            (lambda: x[0, 0, 0], "3 indices"),
                            (lambda: x[::2], "range"),
                            (lambda: x["a"], "index.*'a'.*no whole number"),
                            (lambda: x[True:, 2.0], "2.0"),
                            (lambda: x[heddle.Block(3, 3)], "Block"),
                            (lambda: b.input("z", "f32", (2.5,)), "dimension 0 is 2.5"),
                            (lambda: b.input("z", "f32", (2**63,)), "less than 2"),
                            (lambda: x.set("tp"), "one for each dimension"),
                            (lambda: x.set((4, None)), "4 is no axis"),
                            (lambda: heddle.Builder("c", mesh={"tp": "4"}), "'tp' is '4'"),
                            (lambda: x * None, "None is neither"),
                            (lambda: heddle.Builder("a\0b").build(), "no name"),
                            (lambda: ops.sum(x, dim=2), "dimension 2"),
                            (lambda: ops.permute(x, (1, 1)), "no order of the dimensions"),
                            (lambda: ops.permute(x, (1, 2)), "dimension 2"),
                            (lambda: x @ x[0], "too few"),
                            (lambda: x + "a", "'a'"),
                            (lambda: x.set((None,)), "2 dimensions, and axes for 1"),
                            (lambda: x.declare(dtype="f16"), "just made"),
                            (lambda: read.declare(dtype="f16"), "read already"),
                            (lambda: ops.call("f"), "no tensor")):
            with self.assertRaisesRegex(heddle.ArgumentError, words):
                call()
        with self.assertRaisesRegex(TypeError, "no value"):
            bool(x)
        with self.assertRaises(TypeError):
            iter(x)
        with self.assertRaises(TypeError):
            np.ones(3) @ x
        b.empty("f23", (2,))
        with self.assertRaisesRegex(heddle.ArgumentError, "f23.*bf16"):
            b.build()


if __name__ == "__main__":
    unittest.main()

"""What the matrix is over, and the program that a row of it says: an operation of a family
makes what moves, or is done with what has moved, or both."""
import math

import numpy as np

import value
from program import Program, put_in
from value import Value, exact

FACTORS = {
    "form": ("index", "even", "uneven"),
    "place": ("leading", "middle", "last"),
    "family": ("copy", "fold", "map", "transpose", "take", "product", "pick", "attend"),
    "move": ("gather", "scatter", "exchange", "sum to all", "part", "send"),
    "axes": ("one", "one of two", "two"),
    "ranks": (1, 2, 3, 4, 5, 6, 7, 8),
    "transfer": ("ring", "direct", "bulk", "pipelined", "broadcast", "fused", "auto"),
    "option": ("none", "streams", "chunks", "get", "copy-own", "defer-sends", "comm-stream",
               "wire", "launch"),
    "side": ("ahead", "behind", "both"),
    "stream": ("what moves", "another", "none"),
}
# Dimensions that each rank has whole, of which a family needs so many.
WHOLE = {"copy": 0, "fold": 1, "map": 0, "transpose": 0, "take": 1, "product": 1, "pick": 2,
         "attend": 4}
FLOATS = ("f32", "f32", "f32", "bf16", "f16", "f64")
MOST = 6000  # elements of what moves, or a little more
MOST_DIMS = 8


# Families that make a tensor as it is wanted.

def make_map(p, dims, marks, dtype):
    a, r = p.input(dims, marks, dtype), p.random
    if value.is_float(dtype) and r.random() < .5:
        return with_one(p, a)
    first = r.randrange(len(dims))
    thin = [1 if mark is None and r.random() < .3 else n for n, mark in zip(dims, marks)]
    b = p.input(thin[first:], marks[first:], dtype)
    return with_two(p, a, b)


def with_one(p, a):
    """An operation of one operand, floating."""
    u = value.work(a.dtype)

    def rising(f, count=4):
        def of(x):
            made = value.least_and_most(x, f)
            return Value(made.v, made.e + 2 * count * u * (np.abs(made.v) + u))
        return of

    def bent(f, slope):
        """1 + tanh cancels below zero, so that errors are of x."""
        return lambda x: Value(f(x.v), slope * x.e + 16 * u * (np.abs(x.v) + x.e))

    def gelu(v):
        return .5 * v * (1 + np.tanh(math.sqrt(2 / math.pi) * (v + .044715 * v**3)))

    def wave(f):
        return lambda x: Value(f(x.v), x.e + 8 * u)

    def gelu_erf(v):
        return .5 * v * (1 + np.vectorize(math.erf, otypes=[float])(v / math.sqrt(2)))

    known = {
        "sin": wave(np.sin), "cos": wave(np.cos), "gelu_erf": bent(gelu_erf, 1.13),
        "neg": lambda x: Value(-x.v, x.e), "abs": lambda x: Value(np.abs(x.v), x.e),
        "relu": lambda x: Value(np.maximum(x.v, 0), x.e),
        "tanh": rising(np.tanh), "sigmoid": rising(lambda v: 1 / (1 + np.exp(-v)), 8),
        "silu": bent(lambda v: v / (1 + np.exp(-v)), 1.1), "gelu": bent(gelu, 1.13),
    }
    numbers = {
        "add": lambda x: Value(x.v + .75, x.e), "mul": lambda x: Value(x.v * .75, x.e),
        "max": lambda x: Value(np.maximum(x.v, .75), x.e),
    }
    if p.random.random() < .2:
        op = p.random.choice(sorted(numbers))
        return p.elementwise(op, [a], numbers[op], keys=", 3 / 4")
    op = p.random.choice(sorted(known))
    return p.elementwise(op, [a], known[op])


def with_two(p, a, b):
    def times(x, y):
        return Value(x.v * y.v, np.abs(x.v) * y.e + np.abs(y.v) * x.e + x.e * y.e)

    known = {
        "add": lambda x, y: Value(x.v + y.v, x.e + y.e),
        "sub": lambda x, y: Value(x.v - y.v, x.e + y.e), "mul": times,
        "max": lambda x, y: Value(np.maximum(x.v, y.v), np.maximum(x.e, y.e)),
        "sum": lambda x, y: Value(x.v + y.v, x.e + y.e),
    }
    op = p.random.choice(sorted(known) + ["select"])
    if op != "select":
        return p.elementwise(op, [a, b], known[op], a)
    if (a.x.e > 0).any():
        return p.elementwise("add", [a, b], known["add"], a)
    m = p.elementwise("lt", [a, b], lambda x, y: exact(np.less(x.v, y.v)), a, "u8")
    return p.elementwise("select", [m, a, b], lambda m, x, y: exact(np.where(m.v, x.v, y.v)), a,
                         a.dtype)


def make_fold(p, dims, marks, dtype):
    if len(dims) == MOST_DIMS:
        return with_two(p, *(p.input(dims, marks, dtype) for _ in range(2)))
    at = p.random.randint(0, len(dims))
    t = p.input(put_in(dims, at, p.random.randint(1, 3)), put_in(marks, at, None), dtype)
    return p.fold(p.random.choice(folds(dtype)), t, at, False, marks)


def folds(dtype):
    return ("sum", "max", "min", "mean") if value.is_float(dtype) else ("sum", "max", "min")


def make_transpose(p, dims, marks, dtype):
    order = p.random.sample(range(len(dims)), len(dims))
    back = np.argsort(order)
    t = p.input([dims[i] for i in back], [marks[i] for i in back], dtype)
    return p.permute(t, order)


def make_take(p, dims, marks, dtype):
    at = p.random.randrange(len(dims))
    past = at + p.random.randint(len(dims) == MOST_DIMS, min(2, len(dims) - at))
    n = p.random.randint(1, 4)
    t = p.input((*dims[:at], n, *dims[past:]), (*marks[:at], None, *marks[past:]), dtype)
    i = p.indices(dims[:past], marks[:past], -1, n)
    return p.take(t, i, at, marks)


def make_product(p, dims, marks, dtype):
    k, tb, r = p.random.randint(1, 5), p.random.random() < .5, p.random
    a = p.input((*dims[:-1], k), (*marks[:-1], None), dtype)
    batch = len(dims) - 2 if r.random() < .4 else 0
    last, of_last = ((dims[-1], k), (marks[-1], None)) if tb else ((k, dims[-1]), (None, marks[-1]))
    b = p.input((*dims[:batch], *last), (*marks[:batch], *of_last), dtype)
    bias = p.input(dims[-1:], marks[-1:], dtype) if r.random() < .3 else None
    if r.random() < .3:
        return p.matmul(a, b, marks, tb=tb, bias=bias, keys=" act relu",
                        function=lambda x: Value(np.maximum(x.v, 0), x.e))
    return p.matmul(a, b, marks, tb=tb, bias=bias)


def whole_last(t_dims, marks, count, random):
    """An order of dimensions in which `count` that are whole are the last."""
    whole = [i for i, mark in enumerate(marks) if mark is None]
    last = random.sample(whole, count)
    return [i for i in range(len(t_dims)) if i not in last] + last


def ordered(p, dims, marks, count, make):
    """What `make` gives with `count` whole dimensions last, in the order that is wanted."""
    if all(mark is None for mark in marks[len(marks) - count:]):
        return make(tuple(dims), tuple(marks))
    order = whole_last(dims, marks, count, p.random)
    t = make(tuple(dims[i] for i in order), tuple(marks[i] for i in order))
    return p.permute(t, np.argsort(order))


def make_pick(p, dims, marks, dtype):
    def top_k(dims, marks):
        n = dims[-1] + p.random.randint(0, 3)
        return p.top_k(p.input((*dims[:-1], n), marks, dtype), dims[-1])[0]

    def route(dims, marks):
        return p.route(p.indices(dims, marks, -1, 4), 3, p.random.randint(1, 3))[1]

    if dtype == "i32" and p.random.random() < .6:
        return ordered(p, dims, marks, 2, route)
    return ordered(p, dims, marks, 1, top_k)


def heads_of(h, random):
    return random.choice([g for g in range(1, h + 1) if h % g == 0])


def causal(p, s, t):
    """A mask of which each row sees a key, and how it is written."""
    if p.random.random() < .5:
        return np.ones((s, t), bool), ""
    e = p.random.randint(0, 3)
    return np.arange(t) <= np.arange(s)[:, None] + e, f" causal {e}"


def make_attend(p, dims, marks, dtype):
    def attention(dims, marks):
        (h, s, e), r = dims[-3:], p.random
        d, t, g = r.randint(1, 4), r.randint(1, 5), heads_of(dims[-3], r)
        lead, of_lead = ((), ()) if r.random() < .4 else (dims[:-3], marks[:-3])
        q = p.input((*dims[:-1], d), marks, dtype)
        k = p.input((*lead, g, t, d), (*of_lead, None, None, None), dtype)
        v = p.input((*lead, g, t, e), (*of_lead, None, None, None), dtype)
        return p.attention(q, k, v, *causal(p, s, t))[0]

    return ordered(p, dims, marks, 3, attention)


# Families that do something with a tensor. They give what is made of it.

def use_map(p, t):
    if value.is_float(t.dtype) and p.random.random() < .5:
        return with_one(p, t)
    first = p.random.randrange(len(t.dims))
    return with_two(p, t, p.input(t.dims[first:], t.marks[first:], t.dtype))


def use_fold(p, t):
    if p.random.random() < .3 or not t.whole():
        return with_two(p, t, p.input(t.dims, t.marks, t.dtype))
    return p.fold(p.random.choice(folds(t.dtype)), t, p.random.choice(t.whole()),
                  p.random.random() < .5)


def use_transpose(p, t):
    return p.permute(t, p.random.sample(range(len(t.dims)), len(t.dims)))


def use_take(p, t):
    dim = p.random.choice(t.whole())
    some = [p.random.randint(1, 3) for _ in range(p.random.randint(0 if dim else 1, 2))]
    marks = (*t.marks[:dim], *(None for _ in some))
    i = p.indices((*t.dims[:dim], *some), marks, -1, t.dims[dim])
    return p.take(t, i, dim, (*marks, *t.marks[dim + 1:]))


def columns(p, t):
    """A new dimension of a product, over an axis that is free, at times."""
    free = [axis for axis in p.mesh if axis not in t.marks and not p.on]
    if free and p.random.random() < .4:
        axis = p.random.choice(free)
        return p.mesh[axis] * p.random.randint(1, 2), axis
    return p.random.randint(1, 4), None


def use_product(p, t):
    r, (n, mark) = p.random, columns(p, t)
    if None not in t.marks[-2:]:
        t = p.permute(t, whole_last(t.dims, t.marks, 1, r))
    lead, of_lead = (t.dims[:-2], t.marks[:-2]) if r.random() < .4 else ((), ())
    ways = ([("rows", -1), ("second turned", -1)] if t.marks[-1] is None else []) + (
        [("turned", -2), ("second", -2)] if t.marks[-2] is None else [])
    way, at = r.choice(ways)
    k, kept, of_kept = t.dims[at], t.dims[-3 - at], t.marks[-3 - at]
    if way in ("rows", "turned"):
        tb = r.random() < .5
        dims, marks = ((n, k), (mark, None)) if tb else ((k, n), (None, mark))
        b = p.input((*lead, *dims), (*of_lead, *marks), t.dtype)
        dims, marks = (*t.dims[:-2], kept, n), (*t.marks[:-2], of_kept, mark)
        before = p.drawn(dims, t.dtype) if r.random() < .2 and not p.on else None
        return p.matmul(t, b, marks, ta=way == "turned", tb=tb, before=before)
    a = p.input((*lead, n, k), (*of_lead, mark, None), t.dtype)
    return p.matmul(a, t, (*t.marks[:-2], mark, of_kept), tb=way == "second turned")


def use_pick(p, t):
    count = 2 if t.dtype == "i32" and p.random.random() < .6 else 1
    if not all(mark is None for mark in t.marks[len(t.marks) - count:]):
        t = p.permute(t, whole_last(t.dims, t.marks, count, p.random))
    if count == 2:
        return p.route(t, 3, p.random.randint(1, 3))[1]
    return p.top_k(t, p.random.randint(1, t.dims[-1]))[0]


def use_attend(p, t):
    r = p.random
    if not all(mark is None for mark in t.marks[-3:]):
        t = p.permute(t, whole_last(t.dims, t.marks, 3, r))
    ways = ["queries", "keys", "values", "merge", "gradients"]
    if len(t.dims) > 3 and not isinstance(t.marks[-4], str):
        ways += ["blocks", "blocks"]
    way = r.choice(ways)
    by_hand = {"merge": merge_with, "queries": attend_to, "gradients": attend_backward}
    return by_hand[way](p, t) if way in by_hand else attend_by(p, t, way)


def merge_with(p, t):
    wide = "f64" if t.dtype == "f64" else "f32"
    logs = [p.input(t.dims[:-1], t.marks[:-1], wide) for _ in range(2)]
    return p.merge(t, logs[0], p.input(t.dims, t.marks, t.dtype), logs[1])[0]


def attend_to(p, t):
    h, s, d = t.dims[-3:]
    g, keys, e = heads_of(h, p.random), p.random.randint(1, 5), p.random.randint(1, 4)
    k = p.input((g, keys, d), (None,) * 3, t.dtype)
    v = p.input((g, keys, e), (None,) * 3, t.dtype)
    return p.attention(t, k, v, *causal(p, s, keys))[0]


def attend_backward(p, t):
    (h, s, e), lead, of_lead = t.dims[-3:], t.dims[:-3], t.marks[:-3]
    g, keys, d = heads_of(h, p.random), p.random.randint(1, 5), p.random.randint(1, 4)
    whole = (None, None, None)
    v = p.input((*lead, g, keys, e), (*of_lead, *whole), t.dtype)
    if p.random.random() < .5:
        q = p.input((*lead, h, s, d), (*of_lead, *whole), t.dtype)
        do, k = t, p.input((*lead, g, keys, d), (*of_lead, *whole), t.dtype)
    else:
        q, do = t, p.input(t.dims, t.marks, t.dtype)
        k = p.input((*lead, g, keys, e), (*of_lead, *whole), t.dtype)
    return p.attention_grad(q, k, v, do, *causal(p, s, keys))[0]


def attend_by(p, t, way):
    """Its keys, its values or both, and these in blocks, are what has moved."""
    r, blocks = p.random, way == "blocks"
    lead = len(t.dims) - (4 if blocks else 3)
    h, s = t.dims[-3] * r.randint(1, 2), r.randint(1, 4)
    e = r.randint(1, 4)
    other = p.input((*t.dims[:-1], e), t.marks, t.dtype)
    k, v = (other, t) if way == "values" else (t, other)
    q = p.input((*t.dims[:lead], h, s, k.dims[-1]), (*t.marks[:lead], None, None, None), t.dtype)
    if not blocks:
        return p.attention(q, k, v, *causal(p, s, t.dims[-2]))[0]
    n, keys = t.dims[-4], t.dims[-2]
    seen, said = np.ones((s, n * keys), bool), ""
    if r.random() < .6:
        at, step = r.randint(0, 4), r.randint(-keys, 0)
        number, within = np.divmod(np.arange(n * keys), keys)
        seen = within <= np.arange(s)[:, None] + at + number * step
        said = f" causal {at} step {step}"
    return p.attention(q, k, v, seen, said, blocks=True)[0]


MAKE = {"copy": Program.input, "map": make_map, "fold": make_fold, "transpose": make_transpose,
        "take": make_take, "product": make_product, "pick": make_pick, "attend": make_attend}
USE = {"copy": lambda p, t: t, "map": use_map, "fold": use_fold, "transpose": use_transpose,
       "take": use_take, "product": use_product, "pick": use_pick, "attend": use_attend}


# What moves.

def make_mesh(row, random):
    if row["axes"] == "one":
        return {"tp": row["ranks"]}
    pairs = [n for n in range(2, row["ranks"]) if row["ranks"] % n == 0]
    n = random.choice(pairs or [row["ranks"]])
    axes = [("dp", row["ranks"] // n), ("tp", n)]
    random.shuffle(axes)
    return dict(axes)


def place_of(row, rank, random):
    return {"leading": 0, "last": rank - 1}.get(row["place"], random.randint(1, rank - 2))


def draw_marks(row, rank, random):
    """Marks of what moves and of what it becomes, without those of sums."""
    d = place_of(row, rank, random)
    o, e, f = random.sample([i for i in range(rank) if i != d], 3)
    if row["form"] != "index" and random.random() < .3:
        e, f = o, d  # two axes change places
    if row["axes"] == "one of two" and e == o:
        e = f if f != d else random.choice([i for i in range(rank) if i not in (d, o)])
    over, beside = {d: "tp"}, {o: "dp"} if row["axes"] == "one of two" else {}
    moved = {e: "tp"}
    if row["axes"] == "two":
        over[o], moved[f] = "dp", "dp"
    kinds = {"gather": (over, {}), "part": ({}, over), "exchange": (over, moved),
             "scatter": ({}, over), "sum to all": ({}, {}), "send": ({}, {})}
    return d, *({**beside, **each} for each in kinds[row["move"]])


def draw_extent(form, sizes, random, most):
    """Of a dimension that is over axes of these sizes at some time."""
    if form == "index" and len(sizes) == 1:
        return sizes[0]
    if form == "uneven" and max(sizes) > 1:
        return random.choice([n for n in range(1, 2 * max(sizes) + 2)
                              if any(n % size for size in sizes)])
    return math.lcm(*sizes) * random.choice((2, 2, 3, 4) if most > 3 else (2,))


def draw_stream(row, p, d, rank, before, after):
    """Which dimension is marked @stream where it is over no axis, and in how many blocks."""
    if row["stream"] == "none":
        return None, 0
    free = [i for i in range(rank) if i not in before or i not in after]
    if row["stream"] == "what moves":
        moved = [i for i in free if "tp" in (before.get(i), after.get(i))]
        return p.random.choice(moved or [d if d in free else p.random.choice(free)]), p.mesh["tp"]
    return p.random.choice(free), p.random.choice((p.mesh["tp"], p.random.randint(1, 3)))


def draw_dims(row, p, rank, stream, *marks):
    """Extents by their marks; the others are small enough."""
    dims, most, kept = [], 2 if rank > 5 else 3 if rank > 4 else 5, set()
    for i in range(rank):
        sizes = {p.mesh[of[i]] for of in marks if i in of}
        if i == stream and row["stream"] == "what moves":
            sizes.add(p.mesh["tp"])
        kept |= {i} if sizes else set()
        dims.append(draw_extent(row["form"], sorted(sizes), p.random, most) if sizes
                    else p.random.randint(1, most))
    for i in set(range(rank)) - kept:
        while dims[i] > 1 and math.prod(dims) > MOST:
            dims[i] -= 1
    return dims


def listed(marks, rank):
    return tuple(marks.get(i) for i in range(rank))


def make(p, family, dims, marks, dtype):
    t = MAKE[family](p, dims, marks, dtype)
    assert t.dims == tuple(dims)
    return t


def sums(row, p, family, dims, before, after, dtype):
    """Partial sums of each rank that become `after` on all."""
    axes = ["tp", "dp"] if row["axes"] == "two" else ["tp"]
    p.random.shuffle(axes)
    place = place_of(row, len(dims) + 1, p.random)
    if row["move"] == "scatter":  # then what it says is where the result is scattered
        place = p.random.randint(0, len(dims))
    all_dims, marks = tuple(dims), listed(before, len(dims))
    for axis in axes:
        n = draw_extent(row["form"], [p.mesh[axis]], p.random, 0)
        all_dims, marks = put_in(all_dims, place, n), put_in(marks, place, axis)
    t = make(p, family, all_dims, marks, dtype)
    op = p.random.choice(("sum", "sum", *folds(dtype)))
    wide = "f32" if dtype in ("bf16", "f16") and p.random.random() < .2 else dtype
    u = max(value.unit(dtype), value.unit(wide)) if value.is_float(dtype) else 0
    now = dict(before)
    for left in reversed(range(len(axes))):
        now.update({i: mark for i, mark in after.items() if left == 0 or mark == axes[left]})
        marks = put_in(listed(now, len(dims)), place, *reversed(axes[:left]))
        t = p.fold(op, t, place, False, marks, wide, u)
    return t


def send(row, p, family, t, marks):
    """To some ranks of an axis, where something is done, on to others, and to all."""
    for axis in ["tp", "dp"] if row["axes"] == "two" else ["tp"]:
        for _ in range(p.random.randint(1, 2)):
            first = p.random.randrange(p.mesh[axis])
            past = p.random.choice((first + 1, p.random.randint(first + 1, p.mesh[axis])))
            p.on = f"{axis} {first}" + f"..{past}" * (past > first + 1)
            t = USE[family](p, p.set(t, marks))
            marks = t.marks
            family = p.random.choice(("copy", "map", "transpose"))
    p.on = ""
    return p.set(t, marks)


def draw_families(row, random):
    """What makes that which moves, and what reads it. A loop that moves computes, too."""
    light = random.choice(("map", "fold", "transpose", "product", row["family"]))
    first = last = row["family"]
    if row["side"] == "ahead":
        last = light if row["stream"] != "none" and row["move"] == "gather" else "copy"
    elif row["side"] == "behind":
        sums = row["move"] in ("scatter", "sum to all")
        first = light if row["stream"] != "none" and sums else "copy"
    else:
        last = light
    return first, last


def build(row, random):
    """The program of a row."""
    p = Program(random, make_mesh(row, random))
    first, last = draw_families(row, random)
    need = max(WHOLE[first], WHOLE[last]) + (row["axes"] != "one") + 1 + (row["stream"] != "none")
    rank = min(max(4, need), 6)
    d, before, after = draw_marks(row, rank, random)
    at, blocks = draw_stream(row, p, d, rank, before, after)
    dims = draw_dims(row, p, rank, at, before, after)
    if at is not None:
        before.setdefault(at, blocks)
        after.setdefault(at, blocks)
    integers = {"copy", "fold", "map", "transpose", "take", "pick"}
    dtype = "i32" if {first, last} <= integers and random.random() < .3 else random.choice(FLOATS)
    if row["move"] in ("scatter", "sum to all"):
        t = sums(row, p, first, dims, before, after, dtype)
    elif row["move"] == "send":
        t = make(p, first, dims, listed(before, rank), dtype)
        t, last = send(row, p, last, t, listed(after, rank)), "copy"
    else:
        t = make(p, first, dims, listed(before, rank), dtype)
        to = random.choice(FLOATS) if value.is_float(dtype) and random.random() < .2 else dtype
        t = p.set(t, listed(after, rank), to)
    t = USE[last](p, t)
    while random.random() < .25:  # and once more
        t = p.set(t, random.sample(t.marks, len(t.marks)))
        if t.whole() and random.random() < .6:
            some = ["map", "fold", "transpose", "take"] + ["product"] * value.is_float(t.dtype)
            t = USE[random.choice(some)](p, t)
    t.role = "inout" if t.before else "out"
    return p

"""A tensor program that is written as text, beside what numpy says each tensor of it is."""
from dataclasses import dataclass

import numpy as np

import value
from value import Value, exact


@dataclass(eq=False)
class Tensor:
    name: str
    role: str
    dtype: str
    dims: tuple
    marks: tuple  # of each dimension: None, an axis, or in how many blocks it is @stream
    x: Value
    before: Value = None  # of an inout
    on: str = ""  # some ranks, or all

    def declared(self):
        def said(extent, mark):
            if mark is None:
                return str(extent)
            if isinstance(mark, str):
                return f"{extent}@{mark}"
            return f"{extent}@stream" if mark == extent else f"{extent} in {mark}@stream"

        dims = ", ".join(map(said, self.dims, self.marks))
        return f"{self.role} %{self.name} : {self.dtype}[{dims}]{self.on and ' on ' + self.on}"

    def whole(self):
        """The dimensions that each rank has all of, and no loop cuts."""
        return [i for i, mark in enumerate(self.marks) if mark is None]


def without(several, i):
    return (*several[:i], *several[i + 1:])


def put_in(several, i, *more):
    return (*several[:i], *more, *several[i:])


class Program:
    def __init__(self, random, mesh):
        self.random, self.mesh = random, mesh
        self.numbers = np.random.default_rng(random.getrandbits(64))
        self.tensors, self.statements = [], []
        self.on = ""  # the ranks of what is made now, such as "tp 1": temporaries then
        self.small = random.random() < .5  # whole numbers, of which sums are exact

    def text(self):
        mesh = ", ".join(f"{axis}={n}" for axis, n in self.mesh.items())
        declared = "\n".join(tensor.declared() for tensor in self.tensors)
        statements = "\n".join("    " + each for each in self.statements)
        return f"heddle 2\ntensor program drawn\nmesh {mesh}\n{declared}\n{{\n{statements}\n}}\n"

    def of_role(self, role):
        return [tensor for tensor in self.tensors if tensor.role in (role, "inout")]

    def new(self, role, dtype, dims, marks, x):
        role = "temp" if self.on and role == "out" else role
        assert x.v.shape == x.e.shape == tuple(dims) and len(dims) == len(marks), (dims, x)
        tensor = Tensor(f"{role[0]}{len(self.tensors)}", role, dtype, tuple(dims), tuple(marks), x)
        tensor.on = self.on if role == "temp" else ""
        self.tensors.append(tensor)
        return tensor

    def drawn(self, dims, dtype):
        if self.small or not value.is_float(dtype):
            low = 0 if dtype == "u8" else -3
            return exact(self.numbers.integers(low, 4, tuple(dims)))
        return exact(value.nearest(self.numbers.uniform(-2, 2, tuple(dims)), dtype))

    def input(self, dims, marks, dtype, x=None):
        x = self.drawn(dims, dtype) if x is None else x
        # Streams are of what is made; arguments lie as they lie.
        marks = tuple(mark if isinstance(mark, str) else None for mark in marks)
        return self.new("in", dtype, dims, marks, x)

    def indices(self, dims, marks, least, past):
        drawn = self.numbers.integers(least, past, tuple(dims))
        return self.input(dims, marks, "i32", exact(drawn))

    def make(self, statement, dtype, dims, marks, x):
        """A result: `statement` has its operation and operands."""
        role = "out" if self.random.random() < .15 else "temp"
        result = self.new(role, dtype, dims, marks, x)
        self.statements.append(f"%{result.name} = {statement}")
        return result

    # Operations, each with what it means.

    def set(self, t, marks, dtype=None):
        dtype = dtype or t.dtype
        return self.make(f"set %{t.name}", dtype, t.dims, marks, value.cast(t.x, dtype))

    def elementwise(self, op, operands, function, like=None, dtype=None, keys=""):
        """`function` of the operands' values; the result lies as `like` does."""
        like = like or operands[0]
        dtype = dtype or like.dtype
        names = ", ".join("%" + each.name for each in operands)
        x = value.store(function(*(each.x for each in operands)), dtype)
        x = Value(x.v + np.zeros(like.dims), x.e + np.zeros(like.dims))
        return self.make(f"{op} {names}{keys}", dtype, like.dims, like.marks, x)

    def fold(self, op, t, dim, keep, marks=None, dtype=None, u=None):
        """Over one dimension. `marks` are those of the result, `u` is of what terms are
        rounded with on their way."""
        dtype = dtype or t.dtype
        dims = (*t.dims[:dim], 1, *t.dims[dim + 1:]) if keep else without(t.dims, dim)
        if marks is None:
            marks = (*t.marks[:dim], None, *t.marks[dim + 1:]) if keep else without(t.marks, dim)
        if op in ("sum", "mean"):
            u = 0 if not value.is_float(dtype) else max(u or 0, value.work(dtype))
            x = value.added(t.x, dim, u)
            if op == "mean":
                x = Value(x.v / t.dims[dim], x.e / t.dims[dim])
                x = Value(x.v, x.e + 2 * u * np.abs(x.v))
        else:
            x = Value(getattr(t.x.v, op)(dim), t.x.e.max(dim))
        x = value.store(x, dtype).map(lambda each: each.reshape(dims))
        return self.make(f"{op} %{t.name} dim {dim}", dtype, dims, marks, x)

    def permute(self, t, order):
        order = tuple(order)
        swapped = [i for i, d in enumerate(order) if i != d]
        how = f"permute %{t.name} order ({', '.join(map(str, order))})"
        if len(swapped) == 2 and self.random.random() < .5:
            how = f"transpose %{t.name} dim0 {swapped[0]} dim1 {swapped[1]}"
        return self.make(how, t.dtype, [t.dims[d] for d in order], [t.marks[d] for d in order],
                         t.x.map(lambda each: each.transpose(order)))

    def take(self, t, i, dim, marks):
        def one(each):
            lead = t.dims[:dim]
            moved = each.reshape(*lead, t.dims[dim], -1)
            at = i.x.v.astype(int).reshape(*lead, -1, 1)
            got = np.take_along_axis(moved, np.clip(at, 0, t.dims[dim] - 1), dim)
            got = np.where((at >= 0) & (at < t.dims[dim]), got, 0)
            return got.reshape(*i.dims, *t.dims[dim + 1:])

        return self.make(f"take %{t.name}, %{i.name} dim {dim}", t.dtype,
                         (*i.dims, *t.dims[dim + 1:]), marks, t.x.map(one))

    def matmul(self, a, b, marks, ta=False, tb=False, bias=None, keys="", function=None,
               before=None):
        turn = lambda x, yes: x.map(lambda each: np.swapaxes(each, -1, -2)) if yes else x
        x = value.product(turn(a.x, ta), turn(b.x, tb), value.work(a.dtype))
        said = f"matmul %{a.name}, %{b.name}" + " ta" * ta + " tb" * tb
        if bias:
            said += f" bias %{bias.name}"
            x = Value(x.v + bias.x.v, x.e + bias.x.e)
        x = function(x) if function else x
        if before is not None:
            x, keys = Value(x.v + before.v, x.e + before.e), keys + " accumulate"
        result = self.make(said + keys, a.dtype, x.v.shape, marks, value.store(x, a.dtype))
        if before is not None:
            result.role, result.before = "inout", before
        return result

    def top_k(self, t, k):
        order = np.argsort(-t.x.v, -1, kind="stable")[..., :k]
        off = t.x.e.max(-1, keepdims=True)
        falling = -np.sort(-t.x.v, -1)
        # Of two that are not further from each other than both may be off, either is right.
        close = (np.diff(falling, axis=-1) >= -2 * off) & (off > 0)
        close = np.concatenate([close, np.zeros_like(off, bool)], -1)
        close[..., 1:] |= close[..., :-1]
        values = Value(falling[..., :k], off + 0 * falling[..., :k])
        picks = Value(order.astype(float), np.where(close[..., :k], np.inf, 0))
        dims = (*t.dims[:-1], k)
        v = self.new("temp", t.dtype, dims, t.marks, values)
        i = self.new("out", "i32", dims, t.marks, picks)
        self.statements.append(f"%{v.name}, %{i.name} = top_k %{t.name}")
        return v, i

    def route(self, t, experts, cap):
        lead = t.dims[:-2]
        token = np.full((*lead, experts, cap), -1.)
        slot, n = np.full(t.dims, -1.), np.zeros((*lead, experts))
        for at in np.ndindex(t.dims):
            b, e = at[:-2], int(t.x.v[at])
            if 0 <= e < experts and n[b][e] < cap:
                c = int(n[b][e])
                token[b][e, c], slot[at] = at[-2], e * cap + c
                n[b][e] += 1
        made = [self.new("out", "i32", x.shape, (*t.marks[:-2], *(None,) * (x.ndim - len(lead))),
                         exact(x)) for x in (token, slot, n)]
        names = ", ".join("%" + each.name for each in made)
        self.statements.append(f"{names} = route %{t.name}")
        return made

    def attention(self, q, k, v, seen, keys, blocks=False):
        """`seen` is whether each row sees each key, of all blocks one behind the other."""
        def heads(x):
            if blocks:
                x = np.moveaxis(x, -4, -3)
                x = x.reshape(*x.shape[:-3], -1, x.shape[-1])
            return np.repeat(x, q.dims[-3] // x.shape[-3], -3)

        scale = 1 / np.sqrt(q.dims[-1])
        o, lse = value.attention(q.x, k.x.map(heads), v.x.map(heads), scale, seen, q.dtype)
        wide = "f64" if q.dtype == "f64" else "f32"
        made_o = self.new("temp", q.dtype, o.v.shape, q.marks, value.store(o, q.dtype))
        made_l = self.new("out", wide, lse.v.shape, q.marks[:-1], value.store(lse, wide))
        said = f"attention %{q.name}, %{k.name}, %{v.name}" + " blocks" * blocks + keys
        self.statements.append(f"%{made_o.name}, %{made_l.name} = {said}")
        return made_o, made_l

    def attention_grad(self, q, k, v, do, seen, keys):
        heads = q.dims[-3] // k.dims[-3]
        scale = 1 / np.sqrt(q.dims[-1])
        wide = "f64" if q.dtype == "f64" else "f32"
        of_all = [each.x.map(lambda x: np.repeat(x, heads, -3)) for each in (k, v)]
        o, lse = value.attention(q.x, *of_all, scale, seen, q.dtype)
        o = self.input(o.v.shape, q.marks, q.dtype, exact(value.nearest(o.v, q.dtype)))
        lse = self.input(lse.v.shape, q.marks[:-1], wide, exact(value.nearest(lse.v, wide)))

        def shared(x):
            x = x.map(lambda each: each.reshape(*k.dims[:-2], heads, *each.shape[-2:]))
            return value.added(x, -3, max(value.work(q.dtype), value.unit(q.dtype)))

        dq, *others = value.attention_grad(q.x, *of_all, o.x, lse.x, do.x, scale, seen, q.dtype)
        made = [self.new("out", q.dtype, x.v.shape, q.marks, value.store(x, q.dtype))
                for x in (dq, *map(shared, others))]
        names = [", ".join("%" + each.name for each in some)
                 for some in (made, (q, k, v, o, lse, do))]
        self.statements.append(f"{names[0]} = attention_grad {names[1]}{keys}")
        return made

    def merge(self, o1, l1, o2, l2):
        o, lse = value.merge(o1.x, l1.x, o2.x, l2.x, l1.dtype)
        made_o = self.new("temp", o1.dtype, o1.dims, o1.marks, value.store(o, o1.dtype))
        made_l = self.new("out", l1.dtype, l1.dims, o1.marks[:-1], value.store(lse, l1.dtype))
        self.statements.append(f"%{made_o.name}, %{made_l.name} = "
                               f"merge %{o1.name}, %{l1.name}, %{o2.name}, %{l2.name}")
        return made_o, made_l

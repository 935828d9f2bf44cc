"""The operations of programs on symbolic tensors, but for `set`, `copy` and
`fill`, which are methods: docs/semantics.md says what each means.

Operations on elements are made from ir/ops.def when the wheel is built. `out=` is
a tensor, or a part of one, that the result is written to, instead of a new one.
"""
from __future__ import annotations

import builtins
from typing import Any, List, Optional, Sequence, Tuple, Union, overload

from . import _maps
from ._error import refuse
from ._expr import Expr
from ._maps import *
from ._symbolic import (Axes, Dim, Dims, Operand, Result, Shape, Tensor, apply_map,
                        builder_of, dims_of, integer, laid, number, shared_ranks)

__all__ = [*_maps.__all__, "attention", "attention_grad", "call", "matmul", "max", "merge", "min",
           "permute", "reshape", "route", "scale", "sum", "take", "top_k", "transpose"]

Attributes = List[Tuple[str, Any]]
Causal = Union[bool, int, str, Expr]
Place = Union[None, int, str, Expr]


def axis_of(x: Tensor, dim: int) -> int:
    if not -x.ndim <= dim < x.ndim:
        refuse(f"dimension {dim} of {x!r}")
    return dim % x.ndim


def scale(x: Tensor, by: Operand, *, out: Result = None) -> Tensor:
    """`x` times a number or a tensor of one element, f32."""
    return apply_map("scale", "ANY", (x,), [("by", factor(by))], out)


def factor(value: Operand) -> Union[Tensor, str]:
    return value if isinstance(value, Tensor) else number(value)


# Reductions.

def reduce(op: str, tensors: Sequence[Tensor], dim: Optional[int], keepdim: bool,
           axes: Optional[Axes], out: Result) -> Tensor:
    builder = builder_of(*tensors)
    x = tensors[0]
    if dim is None:
        return builder._make(op, x.dtype, laid(tensors), tensors, (), out)
    at = axis_of(x, dim)
    kept = (Dim(1),) if keepdim else ()
    dims = x._dims[:at] + kept + x._dims[at + 1:]
    if axes is not None:
        dims = dims_of([d.extent for d in dims], axes, None)
    return builder._make(op, x.dtype, dims, tensors, [("dim", str(at))], out)


def sum(*tensors: Tensor, dim: Optional[int] = None, keepdim: bool = False,
        axes: Optional[Axes] = None, out: Result = None) -> Tensor:
    """Of several tensors, element by element, or over a dimension of one. Over one
    that is sharded ranks add up what they have; `axes` places that: over these
    ranks, or for all of them."""
    return reduce("sum", tensors, dim, keepdim, axes, out)


def max(*tensors: Tensor, dim: Optional[int] = None, keepdim: bool = False,
        axes: Optional[Axes] = None, out: Result = None) -> Tensor:
    """As `sum`, the greatest."""
    return reduce("max", tensors, dim, keepdim, axes, out)


def min(*tensors: Tensor, dim: Optional[int] = None, keepdim: bool = False,
        axes: Optional[Axes] = None, out: Result = None) -> Tensor:
    """As `sum`, the least."""
    return reduce("min", tensors, dim, keepdim, axes, out)


# Products.

def are_alike(a: Dim, b: Dim) -> bool:
    """Whether two dimensions may be one of a batch."""
    marks = [None if dim.mark == "stream" else dim.mark for dim in (a, b)]
    return a.extent == b.extent and marks[0] == marks[1]


def pair(a: Dims, b: Dims) -> Optional[Dims]:
    """Of two batches, which pair from their last dimension on; None if they do not."""
    n = builtins.max(len(a), len(b))
    pairs = list(zip((Dim(1),) * (n - len(a)) + a, (Dim(1),) * (n - len(b)) + b))
    if not all(x.repeats() or y.repeats() or are_alike(x, y) for x, y in pairs):
        return None
    return tuple(y if x.repeats() else x for x, y in pairs)


def product(a: Tensor, b: Tensor, ta: bool, tb: bool, crossed: Optional[bool]) -> Dims:
    """What is ahead of the last two dimensions is a batch: A's and B's pair, or each
    matrix of B is for the whole of A."""
    if a.ndim < (2 if ta else 1) or b.ndim < 2:
        refuse(f"matmul of {a!r} by {b!r}: too few dimensions")
    rows, column = a._dims[:-2] + a._dims[-1:] if ta else a._dims[:-1], b._dims[-2 if tb else -1]
    batch = pair(a._dims[:-2], b._dims[:-2]) if a.ndim > 1 else None
    if crossed or batch is None:
        return b._dims[:-2] + rows + (column,)
    return batch + rows[-1:] + (column,)


def grouped(a: Tensor, b: Tensor, ta: bool, tb: bool, counts: Tensor) -> Dims:
    if ta:
        return counts._dims + a._dims[-1:] + b._dims[-1:]
    return a._dims[:-1] + (b._dims[-2 if tb else -1],)


def matmul(a: Tensor, b: Tensor, *, ta: bool = False, tb: bool = False,
           scale: Optional[Operand] = None, scale_a: Optional[Tensor] = None,
           scale_b: Optional[Tensor] = None, grain: Optional[int] = None,
           bias: Optional[Tensor] = None, act: Optional[str] = None, aux: Optional[Tensor] = None,
           accumulate: bool = False, groups: Optional[Tensor] = None, keep: bool = False,
           crossed: Optional[bool] = None, out: Result = None) -> Tensor:
    """`act(scale * (a b) + bias)`. `tb`: b is stored [N, K], as weights are; `ta`: a
    is [K, M]. `scale_a` and `scale_b`, f32, multiply the elements of a and of b: they
    lie along these, [M, 1] and [1, N], or [N, 1] with `tb`, for rows and columns; with
    `grain` one scale is of so many indices, [M, K/128]. `act` is "relu", "gelu" or "silu", and `aux` a tensor that keeps the
    value before it; `accumulate` adds to what `out` holds. `groups` has how many
    rows each matrix takes.

    Dimensions before the last two are a batch. Those of a and b pair from the last one
    on, where one may lack some in front or have one index, which repeats. Where they
    do not, or with `crossed`, each b is multiplied with all of a.
    """
    dims = (product(a, b, ta, tb, crossed) if groups is None
            else grouped(a, b, ta, tb, groups))
    flags = {"ta": ta, "tb": tb, "accumulate": accumulate, "keep": keep}
    given = {"scale": None if scale is None else factor(scale), "scale_a": scale_a,
             "scale_b": scale_b, "grain": None if grain is None else str(integer(grain, "grain")), "bias": bias,
             "act": act, "aux": aux, "groups": groups}
    attributes: Attributes = [(key, None) for key, on in flags.items() if on]
    attributes += [(key, value) for key, value in given.items() if value is not None]
    return builder_of(a, b)._make("matmul", a.dtype, dims, [a, b], attributes, out)


# Attention.

def beside(batch: Dims, x: Tensor, n: int) -> Dims:
    """The last `n` dimensions of x, behind a batch along which x may repeat: then it
    has no count of each of its elements."""
    dims = x._dims[-n:]
    repeats = len(batch) > len(x._dims) - n
    return batch + tuple(Dim(d.extent, d.mark) if repeats else d for d in dims)


def attention(q: Tensor, k: Tensor, v: Tensor, *, scale: Optional[Operand] = None,
              causal: Causal = False, window: Optional[int] = None,
              blocks: bool = False, step: Place = None, zigzag: Place = None,
              groups: Optional[Tensor] = None, accumulate: bool = False,
              out: Optional[Tuple[Tensor, Tensor]] = None) -> Tuple[Tensor, Tensor]:
    """`o`, which is softmax(scale q k^T) v, and `lse`, the natural logarithm of what
    that softmax divides by, f32. q is [.., H, Sq, D], k [.., Hkv, Sk, D] and v
    [.., Hkv, Sk, Dv], H a multiple of Hkv. Without `scale` it is 1 / sqrt(D).

    Row i of q sees the keys up to i + `causal`, of which True is 0, False is all keys
    and a text is an expression (docs/semantics.md); of those the last `window`. With
    `blocks` k is [.., n, Hkv, Sk, D] and v likewise, and `causal` is more by `step`, a
    number or a text, of each next block; without it, less by Sk. Of blocks that are two
    chunks of a sequence each, one from either end, `zigzag` is which block q is, a number
    or a text, and nothing else says what it sees.
    `accumulate` merges with what `out`, the two results, hold. Rows of q may have counts,
    which `o` and `lse` have, too, and keys counts of their own. `groups`, i32[.., n], has
    how many rows each of n sequences has that lie one behind the other: a row sees keys of
    its own one, of which there are as many, and numbers are those within it.
    """
    batch = builtins.max((q._dims[:-3], *(x._dims[:-4 if blocks else -3] for x in (k, v))),
                         key=len)
    dims = beside(batch, q, 3)[:-1] + v._dims[-1:]
    wide = "f64" if q.dtype == "f64" else "f32"
    o, lse = attended("attention", (q, k, v), (("o", q.dtype, dims), ("lse", wide, dims[:-1])),
                      sight(scale, causal, window, accumulate, blocks, step, zigzag, groups),
                      out)
    return o, lse


def merge(o1: Tensor, lse1: Tensor, o2: Tensor, lse2: Tensor, *,
          out: Optional[Tuple[Tensor, Tensor]] = None) -> Tuple[Tensor, Tensor]:
    """Two results of attention, of the same queries and different keys, as one. `out`
    may be `(o1, lse1)`."""
    o, lse = attended("merge", (o1, lse1, o2, lse2),
                      (("o", o1.dtype, o1._dims), ("lse", lse1.dtype, lse1._dims)), [], out)
    return o, lse


def attention_grad(q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, do: Tensor, *,
                   scale: Optional[Operand] = None, causal: Causal = False,
                   window: Optional[int] = None, blocks: bool = False,
                   step: Place = None, zigzag: Place = None,
                   groups: Optional[Tensor] = None, accumulate: bool = False,
                   out: Optional[Tuple[Tensor, Tensor, Tensor]] = None
                   ) -> Tuple[Tensor, Tensor, Tensor]:
    """`dq`, `dk` and `dv`, of what `attention` was given and made and of `do`, the
    gradient of its `o`. `o` and `lse` are those of all keys, so that gradients of
    blocks of keys add up: `accumulate` adds to what `out`, the three results, hold.
    With `blocks` `dk` and `dv` are in blocks as k and v are.
    """
    own = 4 if blocks else 3
    batch = builtins.max((*(x._dims[:-3] for x in (q, o, do)), lse._dims[:-2],
                          *(x._dims[:-own] for x in (k, v))), key=len)
    results = [(name, q.dtype, beside(batch, x, n))
               for name, x, n in (("dq", q, 3), ("dk", k, own), ("dv", v, own))]
    dq, dk, dv = attended("attention_grad", (q, k, v, o, lse, do), results,
                          sight(scale, causal, window, accumulate, blocks, step, zigzag, groups),
                          out)
    return dq, dk, dv


def sight(scale: Optional[Operand], causal: Causal, window: Optional[int],
          accumulate: bool, blocks: bool, step: Place, zigzag: Place,
          groups: Optional[Tensor]) -> Attributes:
    attributes: Attributes = [] if scale is None else [("scale", factor(scale))]
    attributes += [] if groups is None else [("groups", groups)]
    attributes += [("accumulate", None)] if accumulate else []
    attributes += [("blocks", None)] if blocks else []
    places: List[Tuple[str, Place]] = [("step", step), ("zigzag", zigzag)]
    if causal is not False:
        places.insert(0, ("causal", 0 if causal is True else causal))
    attributes += [(key, str(place) if isinstance(place, (str, Expr))
                    else str(integer(place, key)))
                   for key, place in places if place is not None]
    attributes += [] if window is None else [("window", str(integer(window, "window")))]
    return attributes


def attended(op: str, operands: Sequence[Tensor], results: Sequence[Tuple[str, str, Dims]],
             attributes: Attributes, out: Optional[Tuple[Tensor, ...]]) -> Tuple[Tensor, ...]:
    builder = builder_of(*operands)
    if out is None:
        on = shared_ranks(operands)
        out = tuple(builder._new(*result, on) for result in results)
    elif len(out) != len(results):
        refuse(f"{op} has {len(results)} results, and `out` is {len(out)}")
    builder._write(op, out, operands, attributes)
    return out


# What moves elements about.

def reshape(x: Tensor, shape: Shape, axes: Optional[Axes] = None, *, out: Result = None) -> Tensor:
    """The same elements in row-major order. Without `axes`, dimensions in front
    that stay as they are keep theirs."""
    marks: List[Optional[str]] = [None] * len(shape) if axes is None else list(axes)
    for i, (extent, dim) in enumerate(zip(shape, x._dims)):
        if axes is not None or extent != dim.extent:
            break
        marks[i] = dim.mark
    return builder_of(x)._make("reshape", x.dtype, dims_of(shape, marks, None), [x], (), out)


def transpose(x: Tensor, dim0: int = -2, dim1: int = -1, *, out: Result = None) -> Tensor:
    """Two dimensions swapped, with their axes. Counts of one are to be declared."""
    i, j = axis_of(x, dim0), axis_of(x, dim1)
    dims = [Dim(d.extent, d.mark) for d in x._dims]
    dims[i], dims[j] = dims[j], dims[i]
    attributes: Attributes = [("dim0", str(i)), ("dim1", str(j))]
    if (i, j) == (x.ndim - 2, x.ndim - 1):
        attributes = []
    return builder_of(x)._make("transpose", x.dtype, tuple(dims), [x], attributes, out)


def permute(x: Tensor, order: Sequence[int], *, out: Result = None) -> Tensor:
    """Dimensions in any order, with their axes: the first of the result is `order[0]`
    of `x`. Counts of one are to be declared."""
    at = [axis_of(x, dim) for dim in order]
    if sorted(at) != list(range(x.ndim)):
        refuse(f"{list(order)} is no order of the dimensions of {x!r}")
    dims = tuple(Dim(x._dims[i].extent, x._dims[i].mark) for i in at)
    attributes: Attributes = [("order", f"({', '.join(map(str, at))})")]
    return builder_of(x)._make("permute", x.dtype, dims, [x], attributes, out)


def take(x: Tensor, indices: Tensor, dim: int, *, out: Result = None) -> Tensor:
    """`y[b, j, r] = x[b, indices[b, j], r]`, where `dim` is that behind b, and zeros
    where x has no such index."""
    at = axis_of(x, dim)
    dims = x._dims[:at] + indices._dims[at:] + x._dims[at + 1:]
    return builder_of(x, indices)._make("take", x.dtype, dims, [x, indices], [("dim", str(at))],
                                        out)


def top_k(x: Tensor, k: int) -> Tuple[Tensor, Tensor]:
    """The k greatest of the last dimension in falling order, and where they were."""
    builder, dims = builder_of(x), x._dims[:-1] + (Dim(k),)
    values, indices = (builder._new("top_k", dtype, dims, x._on) for dtype in (x.dtype, "i32"))
    builder._write("top_k", [values, indices], [x])
    return values, indices


def route(expert: Tensor, experts: int, places: int) -> Tuple[Tensor, Tensor, Tensor]:
    """Which token is in each of the `places` of each expert, which place each entry
    of `expert` has got, and how many each expert has."""
    builder, batch = builder_of(expert), expert._dims[:-2]
    shapes = (batch + (Dim(experts), Dim(places)), expert._dims, batch + (Dim(experts),))
    token, slot, n = (builder._new("route", "i32", dims, expert._on) for dims in shapes)
    builder._write("route", [token, slot, n], [expert])
    return token, slot, n


@overload
def call(name: str, *operands: Tensor, over: int = 0, keep: bool = False,
         out: Result = None) -> Tensor: ...
@overload
def call(name: str, *operands: Tensor, over: int = 0, keep: bool = False,
         out: Sequence[Tensor]) -> Tuple[Tensor, ...]: ...
def call(name: str, *operands: Tensor, over: int = 0, keep: bool = False,
         out: Union[Result, Sequence[Tensor]] = None) -> Union[Tensor, Tuple[Tensor, ...]]:
    """A function of the caller's (heddle.Call), with the last `over` dimensions of
    each tensor together. Without `out` its result is like its first operand."""
    attributes: Attributes = [("keep", None)] if keep else []
    attributes += [("over", str(over))] if over else []
    if out is None:
        builder_of(*operands)
        first = operands[0]
        out = first._builder._new("call", first.dtype, first._dims, first._on)
    results = (out,) if isinstance(out, Tensor) else tuple(out)
    builder_of(*results)._write("call", results, operands, attributes, name)
    return out if isinstance(out, Tensor) else results

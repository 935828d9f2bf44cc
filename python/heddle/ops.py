"""The operations of programs on symbolic tensors, but for `set`, `copy` and
`fill`, which are methods: docs/semantics.md says what each means.

Operations on elements are made from ir/ops.def when the wheel is built. `out=` is
a tensor, or a part of one, that the result is written to, instead of a new one.
"""
from __future__ import annotations

import builtins
from typing import Dict, List, Optional, Sequence, Tuple, Union, overload

from . import _maps
from ._error import refuse
from ._expr import Expr
from ._maps import *
from ._symbolic import (Attributes, Axes, Dim, Extent, Operand, Result, Shape, Tensor, apply_map,
                        attributes_of, builder_of, dims_of, integer, shape_text, told)

__all__ = [*_maps.__all__, "attention", "attention_grad", "call", "concat", "matmul", "max", "mean",
           "merge", "min", "permute", "reshape", "route", "scale", "sum", "take", "top_k", "transpose"]

Causal = Union[bool, int, str, Expr, Extent]
Place = Union[None, int, str, Expr, Extent]


def axis_of(x: Tensor, dim: int) -> int:
    if not -x.ndim <= dim < x.ndim:
        refuse(f"dimension {dim} of {x!r}")
    return dim % x.ndim


def scale(x: Tensor, by: Operand, *, out: Result = None) -> Tensor:
    """`x` times a number or a tensor of one element, f32."""
    return apply_map("scale", "ANY", (x,), attributes_of({"by": by}), out)


# Reductions.

def reduce(op: str, operands: Sequence[Operand], dim: Optional[int], keepdim: bool,
           axes: Optional[Axes], out: Result) -> Tensor:
    builder = builder_of(*operands)
    x = next(x for x in operands if isinstance(x, Tensor))
    every = dim is None and len(operands) == 1
    if every and keepdim:
        refuse("keepdim is of one dimension: say which by dim")
    if every and out is None:
        return builder._make(op, x.dtype, [x], dims=(), free=True)
    made = builder._make(
        op, x.dtype, told(operands),
        attributes_of({"dim": None if dim is None else axis_of(x, dim),
                       "keep": keepdim and dim is not None and out is None}), out,
        given={"one": 1} if keepdim else {})
    if out is None and any(other.dtype != x.dtype for other in operands
                           if isinstance(other, Tensor)):
        made.declare(dtype=x.dtype)
    return made if axes is None or out is not None else made.declare(axes=axes, by={})


def sum(*operands: Operand, dim: Optional[int] = None, keepdim: bool = False,
        axes: Optional[Axes] = None, out: Result = None) -> Tensor:
    """Of several tensors and numbers, element by element, or over a dimension of one, or all of
    it, without `dim`. Over one that is sharded ranks add up what they have; `axes` places that:
    over these ranks, or for all of them."""
    return reduce("sum", operands, dim, keepdim, axes, out)


def mean(x: Tensor, *, dim: Optional[int] = None, keepdim: bool = False, axes: Optional[Axes] = None,
         out: Result = None) -> Tensor:
    """Over a dimension, or all of them, as `sum`, times one over its extent: added up in f32 if
    `x` is narrower, and rounded once."""
    n = 1
    for extent in x.shape if dim is None else (x.shape[axis_of(x, dim)],):
        if not isinstance(extent, int):
            refuse(f"a mean over {extent}, whose length a run says: take `sum`, and a factor")
        n *= extent
    total = sum(x, dim=dim, keepdim=keepdim, axes=axes)
    if x.dtype != "f64":
        total.declare(dtype="f32")
    made = apply_map("scale", "ANY", (total,), [("by", f"1 / {n}")], out)
    return made if out is not None else made.declare(dtype=x.dtype)


def concat(*operands: Tensor, dim: int, out: Result = None) -> Tensor:
    """Several tensors one behind the other along a dimension, of one dtype and as long in all
    others: a copy of each to a part of the result, which lies where that costs least."""
    if not operands:
        refuse("concat of no tensors")
    first, total = operands[0], 0
    d = axis_of(first, dim)
    for x in operands:
        extent = x.shape[axis_of(x, d)]
        if not isinstance(extent, int):
            refuse(f"a concat along {extent}, whose length a run says")
        total += extent
    dims = tuple(Dim(total if i == d else each.extent) for i, each in enumerate(first._dims))
    return builder_of(*operands)._make("concat", first.dtype, operands, [("dim", str(d))], out,
                                       dims=dims, free=True)


def max(*operands: Operand, dim: Optional[int] = None, keepdim: bool = False,
        axes: Optional[Axes] = None, out: Result = None) -> Tensor:
    """As `sum`, the greatest."""
    return reduce("max", operands, dim, keepdim, axes, out)


def min(*operands: Operand, dim: Optional[int] = None, keepdim: bool = False,
        axes: Optional[Axes] = None, out: Result = None) -> Tensor:
    """As `sum`, the least."""
    return reduce("min", operands, dim, keepdim, axes, out)


# Products.

def matmul(a: Tensor, b: Tensor, *, ta: bool = False, tb: bool = False,
           scale: Optional[Operand] = None, scale_a: Optional[Tensor] = None,
           scale_b: Optional[Tensor] = None, grain: Optional[int] = None,
           bias: Optional[Tensor] = None, act: Optional[str] = None, aux: Optional[Tensor] = None,
           accumulate: bool = False, groups: Optional[Tensor] = None, keep: bool = False,
           crossed: Optional[bool] = None, out: Result = None) -> Tensor:
    """`act(scale * (a b) + bias)`. `tb`: b is stored [N, K], as weights are; `ta`: a
    is [K, M]. `scale_a` and `scale_b`, f32, multiply the elements of a and of b: they
    lie along these, [M, 1] and [1, N], or [N, 1] with `tb`, for rows and columns; with
    `grain` one scale is of so many indices, [M, K/128]. `act` is "relu", "gelu", "gelu_erf"
    or "silu", and `aux` a tensor that keeps the value before it; `accumulate` adds to what
    `out` holds. `groups` has how many rows each matrix takes; a bias has a row for each of
    these, [E, N], or is [N].

    Dimensions before the last two are a batch. Those of a and b pair from the last one
    on, where one may lack some in front or have one index, which repeats. Where they
    do not, or with `crossed`, each b is multiplied with all of a.
    """
    attributes = attributes_of({
        "ta": ta, "tb": tb, "accumulate": accumulate, "keep": keep, "scale": scale,
        "scale_a": scale_a, "scale_b": scale_b, "bias": bias, "act": act, "aux": aux,
        "grain": None if grain is None else integer(grain, "grain"), "groups": groups})
    return builder_of(a, b)._make("matmul", "bf16" if a.dtype.startswith("f8") else a.dtype, [a, b],
                                  attributes, out, wide=bool(crossed),
                                  given={"g": groups.shape[0]} if groups is not None and ta else {})


# Attention.

def attention(q: Tensor, k: Tensor, v: Tensor, *, scale: Optional[Operand] = None,
              causal: Causal = False, window: Optional[int] = None,
              blocks: bool = False, step: Place = None, zigzag: Place = None,
              groups: Optional[Tensor] = None, row: Place = None, key: Place = None,
              room: Place = None, accumulate: bool = False,
              out: Optional[Tuple[Tensor, Tensor]] = None) -> Tuple[Tensor, Tensor]:
    """`o`, which is softmax(scale q k^T) v, and `lse`, the natural logarithm of what
    that softmax divides by, f32. q is [.., H, Sq, D], k [.., Hkv, Sk, D] and v
    [.., Hkv, Sk, Dv], H a multiple of Hkv. Without `scale` it is 1 / sqrt(D).

    Row i of q sees the keys up to i + `causal`, of which True is 0, False is all keys
    and a text is an expression (docs/semantics.md); of those the last `window`, or without
    `causal` those that are less than `window` from the row's own, to both sides. With
    `blocks` k is [.., n, Hkv, Sk, D] and v likewise, and `causal` is more by `step`, a
    number or a text, of each next block; without it, less by Sk. Of blocks that are two
    chunks of a sequence each, one from either end, `zigzag` is which block q is, a number
    or a text, and nothing else says what it sees.
    `accumulate` merges with what `out`, the two results, hold. Rows of q may have counts,
    which `o` and `lse` have, too, and keys counts of their own. `groups`, i32[.., n], has
    how many rows each of n sequences has that lie one behind the other: a row sees keys of
    its own one, of which there are as many, and numbers are those within it. Of rows and
    keys that are some of these, as in blocks, `row` and `key` say which the first ones are,
    of `room` that there are.
    """
    wide = "f64" if q.dtype == "f64" else "f32"
    o, lse = builder_of(q, k, v)._apply(
        "attention", (("o", q.dtype), ("lse", wide)), (q, k, v),
        sight(scale, causal, window, accumulate, blocks, step, zigzag, groups, row, key,
              room), out)
    return o, lse


def merge(o1: Tensor, lse1: Tensor, o2: Tensor, lse2: Tensor, *,
          out: Optional[Tuple[Tensor, Tensor]] = None) -> Tuple[Tensor, Tensor]:
    """Two results of attention, of the same queries and different keys, as one. `out`
    may be `(o1, lse1)`."""
    o, lse = builder_of(o1, lse1, o2, lse2)._apply(
        "merge", (("o", o1.dtype), ("lse", lse1.dtype)), (o1, lse1, o2, lse2), (), out)
    return o, lse


def attention_grad(q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, do: Tensor, *,
                   scale: Optional[Operand] = None, causal: Causal = False,
                   window: Optional[int] = None, blocks: bool = False,
                   step: Place = None, zigzag: Place = None,
                   groups: Optional[Tensor] = None, row: Place = None, key: Place = None,
                   room: Place = None, accumulate: bool = False,
                   out: Optional[Tuple[Tensor, Tensor, Tensor]] = None
                   ) -> Tuple[Tensor, Tensor, Tensor]:
    """`dq`, `dk` and `dv`, of what `attention` was given and made and of `do`, the
    gradient of its `o`. `o` and `lse` are those of all keys, so that gradients of
    blocks of keys add up: `accumulate` adds to what `out`, the three results, hold.
    With `blocks` `dk` and `dv` are in blocks as k and v are.
    """
    dq, dk, dv = builder_of(q, k, v, o, lse, do)._apply(
        "attention_grad", [(name, q.dtype) for name in ("dq", "dk", "dv")], (q, k, v, o, lse, do),
        sight(scale, causal, window, accumulate, blocks, step, zigzag, groups, row, key,
              room), out)
    return dq, dk, dv


def sight(scale: Optional[Operand], causal: Causal, window: Optional[int],
          accumulate: bool, blocks: bool, step: Place, zigzag: Place,
          groups: Optional[Tensor], row: Place, key: Place, room: Place) -> Attributes:
    places: Dict[str, Place] = {
        "row": row, "key": key, "room": room,
        "causal": causal if not isinstance(causal, bool) else 0 if causal else None,
        "step": step, "zigzag": zigzag, "window": window}
    return attributes_of({
        "scale": scale, "groups": groups, "accumulate": accumulate, "blocks": blocks,
        **{name: at if at is None or isinstance(at, (str, Expr, Extent)) else integer(at, name)
           for name, at in places.items()}})


# What moves elements about.

def reshape(x: Tensor, shape: Shape, axes: Optional[Axes] = None, *, out: Result = None) -> Tensor:
    """The same elements in row-major order. Without `axes` it lies where that costs
    least."""
    marks: List[Optional[str]] = [None] * len(shape) if axes is None else list(axes)
    for i, (extent, dim) in enumerate(zip(shape, x._dims)):
        if axes is not None or extent != dim.extent:
            break
        marks[i] = dim.mark
    dims = dims_of(shape, marks, None)
    return builder_of(x)._make("reshape", x.dtype, [x],
                               [("to", shape_text(dims))] if out is None else [], out, dims=dims,
                               free=axes is None)


def transpose(x: Tensor, dim0: int = -2, dim1: int = -1, *, out: Result = None) -> Tensor:
    """Two dimensions swapped, with their axes. Counts of one are to be declared."""
    i, j = axis_of(x, dim0), axis_of(x, dim1)
    order = [*range(x.ndim)]
    order[i], order[j] = j, i
    keys = {} if (i, j) == (x.ndim - 2, x.ndim - 1) else {"dim0": i, "dim1": j}
    return builder_of(x)._make("transpose", x.dtype, [x], attributes_of(keys), out, order=order)


def permute(x: Tensor, order: Sequence[int], *, out: Result = None) -> Tensor:
    """Dimensions in any order, with their axes: the first of the result is `order[0]`
    of `x`. Counts of one are to be declared."""
    at = [axis_of(x, dim) for dim in order]
    if sorted(at) != list(range(x.ndim)):
        refuse(f"{list(order)} is no order of the dimensions of {x!r}")
    return builder_of(x)._make("permute", x.dtype, [x], attributes_of({"order": at}), out, order=at)


def take(x: Tensor, indices: Tensor, dim: int, *, start: Place = None,
         out: Result = None) -> Tensor:
    """`y[b, j, r] = x[b, indices[b, j], r]`, where `dim` is that behind b, and zeros
    where x has no such index. `start` is the first index that x has, 0 if absent."""
    keys = attributes_of({"dim": axis_of(x, dim), "start": start})
    return builder_of(x, indices)._make("take", x.dtype, [x, indices], keys, out)


def top_k(x: Tensor, k: int) -> Tuple[Tensor, Tensor]:
    """The k greatest of the last dimension in falling order, and where they were."""
    values, indices = builder_of(x)._apply("top_k", (("top_k", x.dtype), ("top_k", "i32")), [x],
                                           given={"k": k})
    return values, indices


def route(expert: Tensor, experts: int, places: int) -> Tuple[Tensor, Tensor, Tensor]:
    """Which token is in each of the `places` of each expert, which place each entry
    of `expert` has got, and how many each expert has."""
    token, slot, n = builder_of(expert)._apply("route", [("route", "i32")] * 3, [expert],
                                               given={"e": experts, "c": places})
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
    attributes = attributes_of({"keep": keep, "over": over or None})
    if out is None:
        builder_of(*operands)
        first = operands[0]
        out = first._builder._new("call", first.dtype, first._dims, first._on)
    results = (out,) if isinstance(out, Tensor) else tuple(out)
    builder_of(*results)._write("call", results, operands, attributes, name)
    return out if isinstance(out, Tensor) else results

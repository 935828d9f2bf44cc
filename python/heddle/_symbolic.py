"""Programs built by operators on symbolic tensors.

A `Builder`, or one of host programs (`_host`), keeps what is declared and done, each
with the place in the caller's Python where it was; `build` gives that to the library's
builder (build.h), line by line. Shapes of results are proposed here, and judged there
alone: what does not fit is told by `build`, all of it, each at its place. A result that
nothing is said of is left open, as in a text: the library says how long it is, of which
dtype, and where it lies.
"""
from __future__ import annotations

import dataclasses
import numbers
import operator
import re
from typing import (Any, Dict, List, Mapping, NamedTuple, NoReturn, Optional, Sequence, Set,
                    Tuple, Union)

from ._error import Diag, Site, caller_site, refuse
from ._expr import Expr, Summand, word
from ._library import DTYPES, ROLES, ffi, lib
from ._program import Program

Attributes = Sequence[Tuple[str, Any]]  # a key, and None, text or a tensor
On = Tuple[str, int, int]  # an axis, and the first coordinate on it and the one past the last


def integer(value: Any, what: str) -> int:
    """A whole number of Python's or NumPy's that the library can hold."""
    try:
        found = operator.index(value)
    except TypeError:
        refuse(f"{what} is {value!r}, which is no whole number")
    if not -2**63 <= found < 2**63:
        refuse(f"{what} is {found}: it has to be less than 2^63")
    return found


@dataclasses.dataclass(frozen=True)
class Extent(Summand):
    """An extent that is no plain number: of a size that runs are given, `m` or
    `2 * m`, or one that is cut into blocks, `blocks(4093, 8)`. `n - m` and `cp * m`
    say where rows of an attention lie among its keys."""
    times: int
    size: Optional[str] = None
    cut: Optional[int] = None

    def __mul__(self, n: Any) -> Any:
        if isinstance(n, Expr):
            return n * self
        if not isinstance(n, int) or self.cut is not None:
            return NotImplemented
        return dataclasses.replace(self, times=n * self.times)

    __rmul__ = __mul__

    def as_word(self) -> str:
        if self.cut is not None:
            refuse(f"{self} is in blocks: an expression takes the size itself")
        return str(self) if self.times == 1 else f"({self})"

    def __str__(self) -> str:
        text = str(self.times)
        if self.size is not None:
            text = self.size if self.times == 1 else f"{self.times} * {self.size}"
        return text if self.cut is None else f"{text} in {self.cut}"

    __repr__ = __str__


Length = Union[int, Extent]
Shape = Sequence[Length]
Axes = Sequence[Optional[str]]
Counts = Mapping[int, "Tensor"]


def blocks(extent: Length, n: int) -> Extent:
    """`extent` cut into n blocks, "4093 in 8", as a dimension is that is not
    sharded where the ranks have had blocks of it."""
    whole = extent if isinstance(extent, Extent) else Extent(integer(extent, "an extent"))
    return dataclasses.replace(whole, cut=integer(n, "the number of blocks"))


def uncut(extent: Length) -> Length:
    """Without its blocks."""
    if isinstance(extent, int) or extent.cut is None:
        return extent
    return extent.times if extent.size is None else dataclasses.replace(extent, cut=None)


def shape_text(dims: Dims) -> str:
    """What stands behind `to`."""
    return f"[{', '.join(str(uncut(dim.extent)) for dim in dims)}]"


@dataclasses.dataclass(frozen=True)
class Block:
    """As an index of a dimension in blocks: one of them."""
    index: Union[int, Expr]
    of: int


class Dim(NamedTuple):
    extent: Length
    mark: Optional[str] = None  # an axis of the mesh, or "stream"
    by: Optional[Tensor] = None  # its counts

    def repeats(self) -> bool:
        return self.extent == 1 and self.mark is None

    def __str__(self) -> str:
        return (f"{self.extent}" + (f"@{self.mark}" if self.mark else "") +
                (f" by %{self.by.name}" if self.by is not None else ""))


Dims = Tuple[Dim, ...]
Given = Mapping[str, Length]  # lengths of letters that no operand has


def dims_of(shape: Shape, axes: Optional[Axes], by: Optional[Counts]) -> Dims:
    if isinstance(axes, str):
        refuse(f"axes is {axes!r}: it has one for each dimension, ({axes!r}, None, ..)")
    marks = list(axes) if axes is not None else [None] * len(shape)
    counts = dict(by or {})
    for mark in marks:
        if not isinstance(mark, (str, type(None))):
            refuse(f"{mark!r} is no axis of the mesh, \"stream\" or None")
    if len(marks) != len(shape):
        refuse(f"{len(shape)} dimensions, and axes for {len(marks)}")
    for i in counts:
        if not 0 <= i < len(shape):
            refuse(f"counts of dimension {i}, of {len(shape)}")
    extents = [extent if isinstance(extent, Extent) else integer(extent, f"dimension {i}")
               for i, extent in enumerate(shape)]
    return tuple(Dim(extent, mark, counts.get(i))
                 for i, (extent, mark) in enumerate(zip(extents, marks)))


class Buffer:
    """What a program declares."""
    __slots__ = ("role", "name", "base", "dtype", "dims", "on", "site", "read", "made", "typed",
                 "open", "shared", "of")

    def __init__(self, role: str, name: Optional[str], base: str, dtype: str, dims: Dims,
                 on: Optional[On], site: Site) -> None:
        self.role = role
        self.name = name  # as asked for; what has none is named after `base`
        self.base = base
        self.dtype = dtype
        self.dims = dims
        self.on = on
        self.site = site
        self.read = False
        self.made = False  # by an operation, which said what it is
        self.typed = True  # the dtype is said, and not what the operation makes
        self.open = False  # it is as long as the operation makes it, and lies anywhere
        self.shared = False  # peers may write to it or read it
        self.of: Optional[Buffer] = None  # whose bytes it renames


class Statement(NamedTuple):
    op: str
    callee: Optional[str]
    results: Sequence[Tensor]
    operands: Sequence[Union[Tensor, str]]  # a text is a number
    attributes: Attributes
    site: Site
    axis: Optional[str] = None  # that a transfer goes along

    def tensors(self) -> List[Tensor]:
        views = (*self.results, *self.operands, *(value for _, value in self.attributes))
        return [view for view in views if isinstance(view, Tensor)]

    def stands(self, axes: Sequence[str]) -> bool:
        """Whether it is done as it stands (docs/lowering.md): it has counts, or tensors
        of some ranks, or a key that names coordinates."""
        words = {word for key, value in self.attributes if key != "act" and isinstance(value, str)
                 for word in re.findall(r"[A-Za-z_]\w*", value)}
        return not words.isdisjoint(axes) or any(
            tensor._on is not None or any(dim.by is not None for dim in tensor._buffer.dims)
            for tensor in self.tensors())


class Line(NamedTuple):
    """A line of a host program that is no operation."""
    words: Tuple[str, ...]  # of a loop three: its variable, and its bounds; of an end none
    opens: bool
    site: Site


class Tensor:
    """A tensor of a program that is being built, or a part of one, `w[1]`,
    `qkv[:, 0:512]`: it has a shape and a placement, and no value.

    `+ - * / **`, `< <= > >=`, `& | ^ ~` and `abs` are the operations on elements, `@` is matmul;
    a number beside a tensor is an operand, and a factor of `*` a `scale`. All other
    operations are functions of `heddle.ops`. `y[8:24] = x` writes a part.
    """
    __array_ufunc__ = None  # so that NumPy leaves `array + tensor` to this class
    __iter__ = None

    def __init__(self, builder: Maker, buffer: Buffer, dims: Dims, on: Optional[On],
                 index: Optional[Tuple[str, ...]] = None) -> None:
        self._builder = builder
        self._buffer = buffer
        self._dims = dims
        self._on = on
        self._index = index

    @property
    def name(self) -> str:
        return self._buffer.name or self._buffer.base

    @property
    def dtype(self) -> str:
        return self._buffer.dtype

    @property
    def shape(self) -> Tuple[Length, ...]:
        return tuple(dim.extent for dim in self._dims)

    @property
    def axes(self) -> Tuple[Optional[str], ...]:
        """Of each dimension the axis of the mesh that shards it, "stream", or None. Of a
        result that was not declared, those of its operands: it may come to lie elsewhere."""
        return tuple(dim.mark for dim in self._dims)

    @property
    def ndim(self) -> int:
        return len(self._dims)

    def __repr__(self) -> str:
        index = f"[{', '.join(self._index)}]" if self._index is not None else ""
        return (f"<heddle.Tensor %{self.name}{index}: "
                f"{self.dtype}[{', '.join(map(str, self._dims))}]>")

    def __bool__(self) -> NoReturn:
        raise TypeError("a tensor of a program that is being built has no value")

    def declare(self, *, name: Optional[str] = None, dtype: Optional[str] = None,
                shape: Optional[Shape] = None, axes: Optional[Axes] = None,
                on: Union[None, Tuple[str, int], On] = None,
                by: Optional[Counts] = None) -> Tensor:
        """Says what an operation has just made, and returns it:
        `(x @ w).declare(name="h", dtype="f32")`. With `axes`, `shape`, `on` or `by` all of
        it is declared, the rest as it was proposed; else it lies where that costs least.
        `by={}` drops counts. Once it is read, it is what it is.
        """
        buffer = self._buffer
        if not buffer.made or self._index is not None:
            refuse(f"{self!r} is not what an operation has just made")
        if buffer.read and (dtype, shape, axes, on, by) != (None,) * 5:
            refuse(f"{self!r} is read already: declare it where it is made")
        had = {i: dim.by for i, dim in enumerate(buffer.dims) if dim.by is not None}
        buffer.name = name or buffer.name
        buffer.dtype, buffer.typed = dtype or buffer.dtype, buffer.typed or dtype is not None
        buffer.open = buffer.open and (shape, axes, on, by) == (None,) * 4
        buffer.dims = self._dims = dims_of(self.shape if shape is None else shape,
                                           self.axes if axes is None else axes,
                                           had if by is None else by)
        if on is not None:
            buffer.on = self._on = ranks_of(on)
        return self

    # Parts.

    def __getitem__(self, index: Any) -> Tensor:
        if self._index is not None:
            refuse(f"{self!r} is a part already: take that of the whole")
        given = index if isinstance(index, tuple) else (index,)
        if len(given) > self.ndim:
            refuse(f"{len(given)} indices of {self!r}")
        texts, dims, on = [], [], self._on
        for i, dim in zip(given, self._dims):
            text, kept = part_of(self, i, dim)
            texts.append(text)
            if kept is not None:
                dims.append(kept)
            elif dim.mark not in (None, "stream") and text.isdecimal():
                on = (str(dim.mark), int(text), int(text) + 1)  # it is on that rank alone
        return Tensor(self._builder, self._buffer, (*dims, *self._dims[len(given):]), on,
                      tuple(texts))

    def __setitem__(self, index: Any, value: Operand) -> None:
        part = self if index is Ellipsis else self[index]
        if isinstance(value, Tensor):
            self._builder._write("copy", [part], [value])
        else:
            self._builder._write("fill", [part], [], [("value", number(value))])

    # Operations.

    def __add__(self, other: Operand) -> Tensor:
        return apply_map("add", "ANY", (self, other))

    def __radd__(self, other: Operand) -> Tensor:
        return apply_map("add", "ANY", (other, self))

    def __sub__(self, other: Operand) -> Tensor:
        return apply_map("sub", "ANY", (self, other))

    def __rsub__(self, other: Operand) -> Tensor:
        return apply_map("sub", "ANY", (other, self))

    def __mul__(self, other: Operand) -> Tensor:
        if isinstance(other, Tensor):
            return apply_map("mul", "ANY", (self, other))
        return apply_map("scale", "ANY", (self,), [("by", number(other))])

    __rmul__ = __mul__

    def __truediv__(self, other: Operand) -> Tensor:
        return apply_map("div", "ANY", (self, other))

    def __rtruediv__(self, other: Operand) -> Tensor:
        return apply_map("div", "ANY", (other, self))

    def __lt__(self, other: Operand) -> Tensor:
        return apply_map("lt", "TEST", (self, other))

    def __le__(self, other: Operand) -> Tensor:
        return apply_map("le", "TEST", (self, other))

    def __gt__(self, other: Operand) -> Tensor:
        return apply_map("gt", "TEST", (self, other))

    def __ge__(self, other: Operand) -> Tensor:
        return apply_map("ge", "TEST", (self, other))

    def __pow__(self, other: Operand) -> Tensor:
        return apply_map("pow", "FLOAT", (self, other))

    def __rpow__(self, other: Operand) -> Tensor:
        return apply_map("pow", "FLOAT", (other, self))

    def __and__(self, other: Tensor) -> Tensor:
        return apply_map("and", "LOGIC", (self, other))

    def __or__(self, other: Tensor) -> Tensor:
        return apply_map("or", "LOGIC", (self, other))

    def __xor__(self, other: Tensor) -> Tensor:
        return apply_map("xor", "LOGIC", (self, other))

    def __invert__(self) -> Tensor:
        return apply_map("not", "LOGIC", (self,))

    def __neg__(self) -> Tensor:
        return apply_map("neg", "ANY", (self,))

    def __abs__(self) -> Tensor:
        return apply_map("abs", "ANY", (self,))

    def __matmul__(self, other: Tensor) -> Tensor:
        from .ops import matmul

        return matmul(self, other) if isinstance(other, Tensor) else NotImplemented

    def set(self, axes: Optional[Axes] = None, *, shape: Optional[Shape] = None,
            on: Union[None, Tuple[str, int], On] = None) -> Tensor:
        """The same tensor, placed as `axes` says: what is sharded is gathered or
        cut, `"stream"` lets it arrive piece by piece under what computes on it.
        `on=("pp", 1)` moves it to these ranks. `shape` says how dimensions that
        are not sharded are cut into blocks."""
        marks = [None] * self.ndim if axes is None else axes
        dims = dims_of(self.shape if shape is None else shape, marks, None)
        ranks = None if on is None else ranks_of(on)
        return self._builder._make("set", self.dtype, [self], dims=dims, on=ranks)

    def copy(self, dtype: Optional[str] = None) -> Tensor:
        """The same numbers, cast to another dtype if one is given."""
        made = self._builder._make("copy", self.dtype, [self])
        return made if dtype is None else made.declare(dtype=dtype)


Operand = Union[Tensor, float]
Result = Optional[Tensor]


def ranks_of(on: Union[Tuple[str, int], On]) -> On:
    low = integer(on[1], f"a coordinate on {on[0]}")
    return on[0], low, integer(on[2], f"a coordinate on {on[0]}") if len(on) == 3 else low + 1


def number(value: Any) -> str:
    """A number of Python's as the text form has it."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        refuse(f"{value!r} is neither a tensor of the program nor a number")
    return repr(int(value) if isinstance(value, numbers.Integral) else float(value))


def told(operands: Sequence[Operand]) -> List[Union[Tensor, str]]:
    return [x if isinstance(x, Tensor) else number(x) for x in operands]


def range_of(tensor: Tensor, index: slice, dim: Dim) -> Tuple[str, Dim]:
    """A range whose bounds ranks compute. How long it is the library finds out."""
    past = dim.extent if index.stop is None else index.stop
    if index.step not in (None, 1) or isinstance(past, Extent):
        refuse(f"{tensor!r}: a part is one index, or a range of a constant extent")
    bounds = f"{word(0 if index.start is None else index.start)}..{word(past)}"
    return bounds, Dim(Extent(1, bounds))


def part_of(tensor: Tensor, index: Any, dim: Dim) -> Tuple[str, Optional[Dim]]:
    """An index as the text form has it, and what it keeps of a dimension."""
    if isinstance(index, Block):
        extent = dim.extent
        if isinstance(index.index, int) and not 0 <= index.index < index.of:
            refuse(f"{tensor!r}: {index!r}")
        # How long it is the library finds out.
        if not isinstance(index.index, int) or getattr(extent, "size", None) is not None:
            return f"{word(index.index)} of {index.of}", Dim(Extent(1, f"block of {index.of}"))
        if not isinstance(extent, int):
            extent = extent.times
        length = -(-extent // index.of)
        kept = min(length, extent - index.index * length)
        return f"{index.index} of {index.of}", Dim(kept)
    if isinstance(index, slice):
        if index.start is None and index.stop is None and index.step is None:
            return ":", dim
        if any(isinstance(bound, Expr) for bound in (index.start, index.stop)):
            return range_of(tensor, index, dim)
        # Whether each run has as many of a size the library finds out.
        counted = dim.extent if isinstance(dim.extent, int) else index.stop
        from_end = not isinstance(counted, int) or min(counted, index.start or 0) < 0
        if index.step not in (None, 1) or (from_end and counted is not dim.extent):
            refuse(f"{tensor!r}: a part is one index, or a range of a constant extent")
        first, past, _ = index.indices(counted)
        return f"{first}..{past}", Dim(past - first)
    if isinstance(index, Expr):
        return index.text, None
    at = integer(index, f"an index of {tensor!r}")
    return str(at + dim.extent if at < 0 and isinstance(dim.extent, int) else at), None


def shared_ranks(tensors: Sequence[Tensor]) -> Optional[On]:
    """The ranks that have all of them."""
    found: Optional[On] = None
    for on in (tensor._on for tensor in tensors):
        if on is None:
            continue
        if found is None or found[0] != on[0]:
            found = found or on
        else:
            found = (on[0], max(found[1], on[1]), min(found[2], on[2]))
    return found


def joined(dims: List[Dim]) -> Dim:
    """What those of one line make: one that repeats is as the others are."""
    whole = [dim for dim in dims if not dim.repeats()] or dims
    return Dim(whole[0].extent, next((dim.mark for dim in whole if dim.mark is not None), None),
               next((dim.by for dim in whole if dim.by is not None), None))


def bound(views: List[List[str]], n: int, operands: Sequence[Tensor], size: Dict[str, int],
          given: Given, order: Sequence[int]) -> Optional[Tuple[List[Dims], bool, bool]]:
    """The n results of a row, and whether the operands are alike, and as long as each
    other; None if they lack dimensions of it. `size` has how many dimensions letters have
    that are not one."""
    forms = [views[min(n + i, len(views) - 1)] for i in range(len(operands))]
    said = set(size)
    for form, x in zip(forms, operands):
        groups = [letter for letter in form if letter[-1] == "_" and letter not in said]
        left = x.ndim - sum(size.get(letter, 1) for letter in form if letter not in groups)
        if left < 0:
            return None
        size.update((letter, max(left, size.get(letter, 0))) for letter in groups)
    lines = [[(letter, i) for letter in form for i in range(size.get(letter, 1))]
             for form in views[:n] + forms]
    found: Dict[Tuple[str, int], List[Dim]] = {}
    for x, line in zip(operands, lines[n:]):
        lacks = len(line) - x.ndim  # in front: what it has there has no counts of its own
        for i, dim in enumerate(x._dims):
            found.setdefault(line[order.index(i) if order else lacks + i], []).append(
                dim._replace(by=None) if order or lacks else dim)
    made = [tuple(joined(found.get(at, [Dim(given.get(at[0], 1))])) for at in line)
            for line in lines[:n]]
    kinds = [{(dim.extent, None if dim.mark == "stream" else dim.mark) for dim in dims
              if not dim.repeats()} for dims in found.values()]
    lengths = [{uncut(dim.extent) for dim in dims} - {1} for dims in found.values()]
    alike, as_long = (all(len(kind) <= 1 for kind in each) for each in (kinds, lengths))
    return made, alike, as_long


def shapes(results: Sequence[Dims]) -> List[List[Length]]:
    return [[uncut(dim.extent) for dim in dims] for dims in results]


def proposed(op: str, n: int, operands: Sequence[Tensor], attributes: Attributes, given: Given,
             order: Sequence[int], wide: bool) -> Tuple[List[Dims], bool]:
    """What operands make, by ir/signature.def: a dimension that none has is `given`, or of
    one index. Of several forms it is the one with the fewest dimensions in which they are
    alike; that with the most if `wide`. And whether their lengths alone say so, as to the
    library where the result is not declared."""
    from ._maps import ROWS

    keys, rows = dict(attributes), ROWS[op]
    told = {key for row in rows for key in row[0]} & set(keys)
    made = [bound(views, n, operands, {"one": 0, ahead: int(keys.get("dim", 0)),
                                       **dict.fromkeys(given, 1)}, given, order)
            for named, ahead, *views in rows if set(named) == told]
    fits = sorted(filter(None, made), key=lambda each: len(each[0][0]), reverse=wide)
    if not fits:
        refuse(f"{op} of {', '.join(map(repr, operands))}: too few dimensions, or other keys")
    found = next((dims for dims, alike, _ in fits if alike or wide), fits[0][0])
    inferred = next((dims for dims, _, as_long in fits if as_long), fits[0][0])
    return found, not wide and shapes(found) == shapes(inferred) and set(given) <= {"one"}


def attributes_of(keys: Mapping[str, Any]) -> Attributes:
    """Keys with their values: True for one without, a tensor, a number, several, an
    `Expr`, or a word such as "gelu"; False and None are none. `from_` is `from`."""
    return [(key.rstrip("_"), value_of(value)) for key, value in keys.items()
            if value is not None and value is not False]


def value_of(value: Any) -> Any:
    if value is True:
        return None
    if isinstance(value, (Tensor, str)):
        return value
    if isinstance(value, (tuple, list)):
        return f"({', '.join(str(integer(one, 'a number')) for one in value)})"
    return word(value) if isinstance(value, (Expr, Extent)) else number(value)


def builder_of(*operands: Any) -> Maker:
    found = [x._builder for x in operands if isinstance(x, Tensor)]
    if not found:
        refuse(f"there is no tensor of a program among {operands!r}")
    if any(builder is not found[0] for builder in found):
        refuse("tensors of two programs in one operation")
    return found[0]


def apply_map(op: str, kind: str, operands: Sequence[Operand],
              attributes: Attributes = (), out: Result = None) -> Tensor:
    """An op of elements. `kind` is the `numbers` of its row in ops.def."""
    builder = builder_of(*operands)
    dtype = next((x.dtype for x in (*operands[1 if kind == "PICK" else 0:], out)
                  if isinstance(x, Tensor)), None)
    if dtype is None:
        refuse(f"{op} of numbers alone is of no dtype: say where it goes with `out`")
    return builder._make(op, "u8" if kind == "TEST" else dtype,
                         told(operands), attributes, out)


class Maker:
    """What is kept of a program until it is built."""
    stage = lib.HD_STAGE_TENSOR

    def __init__(self, name: str = "program", *, mesh: Optional[Mapping[str, int]] = None) -> None:
        self.name = name
        self._site = caller_site()
        self._mesh = {axis: integer(n, f"axis {axis!r}") for axis, n in (mesh or {}).items()}
        self._sizes: List[Tuple[str, int, int, Site]] = []
        self._arguments: List[Buffer] = []
        self._temps: List[Buffer] = []
        self._statements: List[Union[Statement, Line]] = []

    def size(self, name: str, low: int, high: int) -> Extent:
        """An extent that each run is given, from `low`, 0 or more, to `high`: `m` or
        `2 * m`."""
        self._sizes.append((name, integer(low, name), integer(high, name), caller_site()))
        return Extent(1, name)

    def _make(self, op: str, dtype: str, operands: Sequence[Union[Tensor, str]],
              attributes: Attributes = (), out: Result = None, **how: Any) -> Tensor:
        """A statement with one result, `out` or a new tensor."""
        return self._apply(op, [(op, dtype)], operands, attributes,
                           None if out is None else (out,), **how)[0]

    def _apply(self, op: str, results: Sequence[Tuple[str, str]],
               operands: Sequence[Union[Tensor, str]], attributes: Attributes = (),
               out: Optional[Sequence[Tensor]] = None, *,
               dims: Optional[Dims] = None, on: Optional[On] = None, given: Given = {},
               order: Sequence[int] = (), wide: bool = False,
               free: bool = False) -> Tuple[Tensor, ...]:
        """A statement whose results are `out`, or new ones, of these names and dtypes. Those
        of `dims` are declared so, unless they are `free`."""
        if out is None:
            read = [x for x in operands if isinstance(x, Tensor)]
            made, free = (([dims], free) if dims is not None else
                          proposed(op, len(results), read, attributes, given, order, wide))
            on = on if op == "set" else shared_ranks(read)
            out = [self._new(*result, each, on, free) for result, each in zip(results, made)]
        elif len(out) != len(results):
            refuse(f"{op} has {len(results)} results, and `out` is {len(out)}")
        self._write(op, out, operands, attributes)
        return tuple(out)

    def _new(self, op: str, dtype: str, dims: Dims, on: Optional[On],
             free: bool = False) -> Tensor:
        raise NotImplementedError

    def fill(self, value: float, dtype: str, shape: Shape, axes: Optional[Axes] = None) -> Tensor:
        """A tensor of one number. Without `axes` it lies where that costs least."""
        return self._said("fill", dtype, "f32", [("value", number(value))], shape, axes)

    def iota(self, dim: int, shape: Shape, axes: Optional[Axes] = None, *, dtype: str = "i32",
             start: Union[None, int, str, Expr] = None) -> Tensor:
        """The index of each element in dimension `dim` of the whole tensor, i32 or i64, and
        `start` more. Without `axes` it lies where that costs least."""
        if not -len(shape) <= dim < len(shape):
            refuse(f"dimension {dim} of {len(shape)}")
        keys = attributes_of({"dim": dim % len(shape), "start": start})
        return self._said("iota", dtype, "i32", keys, shape, axes)

    def _said(self, op: str, dtype: str, made: str, attributes: Attributes, shape: Shape,
              axes: Optional[Axes]) -> Tensor:
        """Of no operand, which makes the dtype `made` where none is declared."""
        dims = dims_of(shape, axes, None)
        if axes is not None:
            return self._make(op, dtype, [], attributes, dims=dims)
        result = self._make(op, dtype, [], [*attributes, ("to", shape_text(dims))], dims=dims,
                            free=True)
        return result if dtype == made else result.declare(dtype=dtype)

    def _write(self, op: str, results: Sequence[Tensor], operands: Sequence[Union[Tensor, str]],
               attributes: Attributes = (), callee: Optional[str] = None,
               axis: Optional[str] = None) -> None:
        tensors = (*results, *operands, *(value for _, value in attributes))
        if any(isinstance(tensor, Tensor) for tensor in tensors):
            builder_of(*tensors)
        for tensor in (*operands, *(v for k, v in attributes if k != "aux")):
            if isinstance(tensor, Tensor):
                tensor._buffer.read = True
        self._statements.append(Statement(op, callee, results, operands, attributes,
                                          caller_site(), axis))

    # What the library is told.

    def build(self) -> Program:
        """The program. ProgramError with all that is wrong, each at the line of
        Python that said it."""
        name_temps(self._arguments, self._temps)
        self._close()
        writer = Writer(self.name, self.stage)
        writer.sites.append(self._site)
        for axis, extent in self._mesh.items():
            lib.hd_builder_axis(writer.builder, writer.chars(axis), extent, 1)
        for name, low, high, site in self._sizes:
            lib.hd_builder_size(writer.builder, writer.chars(name), low, high, writer.at(site))
        self._tell(writer)
        for buffer in (*self._arguments, *self._temps):
            writer.buffer(buffer)
        for statement in self._statements:
            if isinstance(statement, Statement):
                writer.op(statement)
            else:
                writer.line(statement)
        return writer.finish()

    def _close(self) -> None:
        """Declares what nothing finds: of statements that are done as they stand, and
        counts."""
        for statement in self._statements:
            if isinstance(statement, Statement) and statement.stands([*self._mesh]):
                for tensor in statement.tensors():
                    tensor._buffer.open = False
        for buffer in (*self._arguments, *self._temps):
            for dim in buffer.dims:
                if dim.by is not None:
                    dim.by._buffer.open = False

    def _tell(self, writer: Writer) -> None:
        """What there is beside that."""


class Builder(Maker):
    """A tensor program that is built by operators on symbolic tensors.

        b = heddle.Builder("linear", mesh={"tp": 4})
        x = b.input("x", "f32", (32, 32), axes=("tp", None))
        w = b.input("w", "f32", (32, 16), axes=(None, "tp"))
        b.output("y", x @ w, axes=(None, "tp"))
        program = b.build()

    Sizes are Python's numbers; `axes` says of each dimension which axis of the
    mesh shards it, "stream", or None. Results need none: what moves, and when, `place`
    finds out.
    """

    def input(self, name: str, dtype: str, shape: Shape, axes: Optional[Axes] = None, *,
              by: Optional[Counts] = None) -> Tensor:
        """An argument that is read."""
        return self._argue("in", name, dtype, dims_of(shape, axes, by))

    def inout(self, name: str, dtype: str, shape: Shape, axes: Optional[Axes] = None, *,
              by: Optional[Counts] = None) -> Tensor:
        """An argument that is read and written: as `out=` of an operation, or in
        parts."""
        return self._argue("inout", name, dtype, dims_of(shape, axes, by))

    def output(self, name: str, value: Tensor, axes: Optional[Axes] = None) -> Tensor:
        """Makes an argument that is written of what was computed, and returns it. Without
        `axes` it lies as was said of it, or else as its operands' dimensions do."""
        builder_of(value)
        buffer = value._buffer
        if value._builder is not self:
            refuse(f"{value!r} is of another program")
        if value._index is not None or buffer.role != "temp":
            value = self._make("copy", value.dtype, [value])
            buffer = value._buffer
        if axes is not None and buffer.open:
            buffer.dims = value._dims = dims_of(value.shape, axes, None)
        elif axes is not None:
            value.declare(axes=axes)
        marks = [mark for mark in value.axes if mark is not None]
        if buffer.open and len(set(marks)) < len(marks):
            refuse(f"{value!r} cannot lie as its operands do: say how by `axes`")
        buffer.open = False
        buffer.role, buffer.name, buffer.site = "out", name, caller_site()
        self._temps.remove(buffer)
        self._arguments.append(buffer)
        return value

    def empty(self, dtype: str, shape: Shape, axes: Optional[Axes] = None, *,
              name: Optional[str] = None, on: Union[None, Tuple[str, int], On] = None,
              by: Optional[Counts] = None) -> Tensor:
        """A tensor that operations write: as their `out=`, as `aux`, or in parts."""
        ranks = None if on is None else ranks_of(on)
        buffer = Buffer("temp", name, "empty", dtype, dims_of(shape, axes, by), ranks,
                        caller_site())
        self._temps.append(buffer)
        return Tensor(self, buffer, buffer.dims, ranks)

    def op(self, name: str, *operands: Operand, out: Result = None, **keys: Any) -> Any:
        """Any operation, as docs/operations.md lists them, with its keys: by its function
        in `heddle.ops`, or without one as its row says, with one result."""
        from . import ops

        if name in ops.__all__:
            return getattr(ops, name)(*operands, **keys, **({} if out is None else {"out": out}))
        dtype = next(x.dtype for x in operands if isinstance(x, Tensor))
        return self._make(name, dtype, told(operands), attributes_of(keys), out,
                          order=keys.get("order", ()))

    def _argue(self, role: str, name: str, dtype: str, dims: Dims) -> Tensor:
        self._arguments.append(Buffer(role, name, name, dtype, dims, None, caller_site()))
        return Tensor(self, self._arguments[-1], dims, None)

    def _new(self, op: str, dtype: str, dims: Dims, on: Optional[On],
             free: bool = False) -> Tensor:
        buffer = Buffer("temp", None, op, dtype, dims, on, caller_site())
        buffer.made, buffer.typed, buffer.open = True, not free, free
        self._temps.append(buffer)
        return Tensor(self, buffer, dims, on)


def name_temps(arguments: Sequence[Buffer], temps: Sequence[Buffer]) -> None:
    taken = {buffer.name for buffer in (*arguments, *temps)}
    last: Dict[str, int] = {}
    for buffer in temps:
        while buffer.name is None:
            last[buffer.base] = last.get(buffer.base, 0) + 1
            name = f"{buffer.base}{last[buffer.base]}"
            buffer.name = name if name not in taken else None


class Writer:
    """Gives a program to the library's builder. A cookie is a place in `sites`."""

    def __init__(self, name: str, stage: int) -> None:
        self.sites: List[Site] = []
        self.written: Set[Buffer] = set()
        self.keep: List[Any] = []
        out = ffi.new("hd_builder **")
        with Diag() as diag:
            diag.check(lib.hd_builder_create(self.chars(name), stage, diag.p, out))
        self.builder = ffi.gc(out[0], lib.hd_builder_destroy)

    def at(self, site: Site) -> int:
        self.sites.append(site)
        return len(self.sites)

    def chars(self, text: str) -> Any:
        """Which the library needs no longer than it is told."""
        if not isinstance(text, str) or "\0" in text:
            refuse(f"{text!r} is no name, nor text as a program has it")
        self.keep.append(ffi.new("char[]", text.encode()))
        return self.keep[-1]

    def buffer(self, buffer: Buffer) -> None:
        if buffer in self.written or (buffer.open and not buffer.typed):
            return
        self.written.add(buffer)
        for dim in buffer.dims:
            if dim.by is not None:
                self.buffer(dim.by._buffer)  # is declared before
        if buffer.of is not None:
            self.buffer(buffer.of)
        if buffer.dtype not in DTYPES:
            refuse(f"%{buffer.name} is of dtype {buffer.dtype!r}, which is none of "
                   f"{', '.join(DTYPES[:-1])}")
        row = ffi.new("hd_build_buffer *")
        row.size = ffi.sizeof("hd_build_buffer")
        row.role, row.dtype = ROLES.index(buffer.role), DTYPES.index(buffer.dtype)
        row.name, row.unplaced = self.chars(str(buffer.name)), buffer.open
        dims = () if buffer.open else buffer.dims
        row.ndims = len(dims)
        for i, dim in enumerate(dims[:lib.HD_MAX_DIMS]):
            self.dim(row, i, dim)
        row.shared = buffer.shared
        if buffer.of is not None:
            row.of = self.chars(str(buffer.of.name))
        if buffer.on is not None:
            axis, low, past = buffer.on
            row.on = self.chars(f"{axis} {low}..{past}" if past > low + 1 else f"{axis} {low}")
        lib.hd_builder_buffer(self.builder, row, self.at(buffer.site))

    def dim(self, row: Any, i: int, dim: Dim) -> None:
        if isinstance(dim.extent, Extent):
            row.length[i] = self.chars(str(dim.extent))
        else:
            row.extent[i] = dim.extent
        if dim.mark is not None:
            row.mark[i] = self.chars(dim.mark)
        if dim.by is not None:
            row.by[i] = self.chars(dim.by.name)

    def operand(self, given: Union[Tensor, str]) -> str:
        return self.view(given) if isinstance(given, Tensor) else given

    def view(self, tensor: Tensor) -> str:
        index = f"[{', '.join(tensor._index)}]" if tensor._index else ""
        return f"{tensor.name}{index}"

    def list(self, texts: Sequence[str]) -> Tuple[Any, int]:
        self.keep.append(ffi.new("char *[]", [self.chars(text) for text in texts]))
        return self.keep[-1], len(texts)

    def attribute(self, key: str, value: Any) -> str:
        if value is None:
            return key
        return f"{key} %{self.view(value)}" if isinstance(value, Tensor) else f"{key} {value}"

    def op(self, statement: Statement) -> None:
        row = ffi.new("hd_build_op *")
        row.size = ffi.sizeof("hd_build_op")
        row.op = self.chars(statement.op)
        if statement.callee is not None:
            row.callee = self.chars(statement.callee)
        if statement.axis is not None:
            row.axis = self.chars(statement.axis)
        row.results, row.nresults = self.list([self.view(t) for t in statement.results])
        row.operands, row.noperands = self.list([self.operand(x) for x in statement.operands])
        row.attributes, row.nattributes = self.list(
            [self.attribute(key, value) for key, value in statement.attributes])
        lib.hd_builder_op(self.builder, row, self.at(statement.site))

    def line(self, line: Line) -> None:
        words, cookie = [self.chars(word) for word in line.words], self.at(line.site)
        if len(words) > 1:
            lib.hd_builder_for(self.builder, *words, cookie)
        elif line.opens:
            lib.hd_builder_block(self.builder, words[0], cookie)
        elif words:
            lib.hd_builder_line(self.builder, words[0], cookie)
        else:
            lib.hd_builder_end(self.builder, cookie)

    def finish(self) -> Program:
        out = ffi.new("hd_module **")
        with Diag(self.sites) as diag:
            diag.check(lib.hd_builder_finish(self.builder, diag.p, out))
        return Program._of(out[0], self.sites)

"""Host programs built statement by statement: loops, streams, transfers, events."""
from __future__ import annotations

from typing import Any, List, Mapping, Optional, Sequence, Tuple, Union

from ._error import Site, caller_site, refuse
from ._expr import Expr, Index, of_two, word
from ._library import lib
from ._symbolic import (Axes, Buffer, Counts, Dims, Line, Maker, On, Operand, Shape, Tensor,
                        Writer, attributes_of, dims_of, integer, told)


class Scope:
    """A block, for `with`: a loop's gives its variable."""

    def __init__(self, builder: HostBuilder, words: Tuple[str, ...], site: Site) -> None:
        self._builder = builder
        self._line = Line(words, True, site)

    def __enter__(self) -> Expr:
        self._builder._statements.append(self._line)
        return Expr(self._line.words[0])

    def __exit__(self, *_: Any) -> None:
        self._builder._statements.append(Line((), False, self._line.site))


class HostBuilder(Maker):
    """A host program, built as it is written: docs/text-form.md and docs/semantics.md
    say what each line means. Buffers are declared, and operations say where they
    write: `heddle.ops` with `out=`, `c[i] = a` for a copy or a number, and the methods
    here. `with` opens blocks:

        b = heddle.HostBuilder("shift", mesh={"tp": 4})
        tp = b.axis("tp")
        x = b.input("x", "f32", (4, 8), axes=("tp", None), shared=True)
        y = b.output("y", "f32", (4, 8), axes=("tp", None), shared=True)
        with b.group():
            b.send(x[tp], to=(tp + 1) % 4)
            b.recv(y[tp], source=(tp - 1) % 4)
        program = b.build()

    Indices are numbers and `Expr`s, of which ranks compute their own: `x[i]`,
    `x[j * 4:j * 4 + 4]`, `heddle.Block(i, 4)`.
    """
    stage = lib.HD_STAGE_HOST

    def __init__(self, name: str = "program", *, mesh: Optional[Mapping[str, int]] = None,
                 streams: int = 0) -> None:
        super().__init__(name, mesh=mesh)
        self._streams = integer(streams, "streams")

    def _tell(self, writer: Writer) -> None:
        if self._streams > 0:
            lib.hd_builder_streams(writer.builder, self._streams, 1)

    def _new(self, op: str, dtype: str, dims: Dims, on: Optional[On],
             free: bool = False) -> Tensor:
        refuse(f"{op} in a host program says where it writes: out=")

    # Declarations.

    def input(self, name: str, dtype: str, shape: Shape = (), axes: Optional[Axes] = None, *,
              by: Optional[Counts] = None, shared: bool = False) -> Tensor:
        """An argument that is read. `shared`: peers read it or write to it."""
        return self._declare("in", name, dtype, dims_of(shape, axes, by), shared)

    def inout(self, name: str, dtype: str, shape: Shape = (), axes: Optional[Axes] = None, *,
              by: Optional[Counts] = None, shared: bool = False) -> Tensor:
        """An argument that is read and written."""
        return self._declare("inout", name, dtype, dims_of(shape, axes, by), shared)

    def output(self, name: str, dtype: str, shape: Shape = (), axes: Optional[Axes] = None, *,
               by: Optional[Counts] = None, shared: bool = False) -> Tensor:
        """An argument that is written."""
        return self._declare("out", name, dtype, dims_of(shape, axes, by), shared)

    def temp(self, name: str, dtype: str, shape: Shape = (), axes: Optional[Axes] = None, *,
             by: Optional[Counts] = None, shared: bool = False,
             of: Optional[Tensor] = None) -> Tensor:
        """A buffer of the program's own, events too: `b.temp("here", "event", (4,))`. `of`
        is another whose bytes it renames."""
        return self._declare("temp", name, dtype, dims_of(shape, axes, by), shared, of)

    def _declare(self, role: str, name: str, dtype: str, dims: Dims, shared: bool,
                 of: Optional[Tensor] = None) -> Tensor:
        buffer = Buffer(role, name, name, dtype, dims, None, caller_site())
        buffer.shared, buffer.of = shared, None if of is None else of._buffer
        self._arguments.append(buffer)
        return Tensor(self, buffer, dims, None)

    # Numbers and blocks.

    def axis(self, name: str) -> Expr:
        """A rank's own coordinate on an axis of the mesh."""
        if name not in self._mesh:
            refuse(f"the mesh has no axis {name!r}: it has {', '.join(self._mesh) or 'none'}")
        return Expr(name)

    def let(self, name: str, value: Index) -> Expr:
        """Gives an expression a name from here to the end of the block."""
        self._statements.append(Line((f"let {name} = {word(value)}",), False, caller_site()))
        return Expr(name)

    @staticmethod
    def min(a: Index, b: Index) -> Expr:
        return of_two("min", a, b)

    @staticmethod
    def max(a: Index, b: Index) -> Expr:
        return of_two("max", a, b)

    @staticmethod
    def cdiv(a: Index, b: Index) -> Expr:
        """`a / b`, rounded up."""
        return of_two("cdiv", a, b)

    def loop(self, variable: str, first: Index, past: Index) -> Scope:
        """`with b.loop("j", 0, 4) as j:`"""
        return Scope(self, (variable, word(first), word(past)), caller_site())

    def when(self, condition: Index) -> Scope:
        """`with b.when(j < 3):`, behind which may stand `with b.otherwise():`"""
        return Scope(self, (f"if {word(condition)}",), caller_site())

    def otherwise(self) -> Scope:
        return Scope(self, ("else",), caller_site())

    def on_stream(self, stream: Index) -> Scope:
        """What is in it goes to a work stream, instead of the caller's."""
        return Scope(self, (f"on stream {word(stream)}",), caller_site())

    def group(self) -> Scope:
        """Transfers in it are issued together: none waits for another."""
        return Scope(self, ("group",), caller_site())

    def launch(self) -> Scope:
        """Products in it are done by one kernel, with the waits and records between."""
        return Scope(self, ("launch",), caller_site())

    # Operations.

    def op(self, name: str, *operands: Operand, out: Union[Tensor, Sequence[Tensor]] = (),
           axis: Optional[str] = None, callee: Optional[str] = None, **keys: Any) -> None:
        """Any operation, as docs/operations.md lists them, with its keys: True for one
        without a value, a tensor, a number, several, an `Expr`, or a word such as "gelu"; `from_` is
        the key `from`. `callee` is the function that a `call` names."""
        results = [out] if isinstance(out, Tensor) else list(out)
        self._write(name, results, told(operands), attributes_of(keys), callee, axis)

    def send(self, x: Tensor, *, to: Index, get: bool = False, done: Optional[Tensor] = None,
             axis: Optional[str] = None) -> None:
        """To the rank of that coordinate. `get`: it reads, instead of being written to.
        `done` is an event that is recorded once all is sent; the stream does not wait."""
        self.op("send", x, to=to, get=get, done=done, axis=axis)

    def recv(self, out: Tensor, *, source: Index, get: bool = False,
             axis: Optional[str] = None) -> None:
        """From the rank of that coordinate, which sends with `get` as well or without."""
        self.op("recv", out=out, from_=source, get=get, axis=axis)

    def all_gather(self, x: Tensor, out: Tensor, *, axis: Optional[str] = None) -> None:
        self.op("all_gather", x, out=out, axis=axis)

    def all_to_all(self, x: Tensor, out: Tensor, *, axis: Optional[str] = None) -> None:
        self.op("all_to_all", x, out=out, axis=axis)

    def reduce_scatter(self, x: Tensor, out: Tensor, *, by: str = "sum",
                       axis: Optional[str] = None) -> None:
        """`by` is "sum", "max" or "min"."""
        self._reduce("reduce_scatter", x, [out], by, axis)

    def all_reduce(self, x: Tensor, out: Tensor, *, by: str = "sum",
                   axis: Optional[str] = None) -> None:
        """`by` is "sum", "max" or "min"."""
        self._reduce("all_reduce", x, [out], by, axis)

    def reduce(self, x: Tensor, out: Optional[Tensor] = None, *, root: Index, by: str = "sum",
               axis: Optional[str] = None) -> None:
        """To the rank of that coordinate, which alone needs `out`."""
        self._reduce("reduce", x, [] if out is None else [out], by, axis, root=root)

    def broadcast(self, x: Optional[Tensor] = None, out: Optional[Tensor] = None, *, root: Index,
                  axis: Optional[str] = None) -> None:
        """From the rank of that coordinate, which names `x`, as the others do `out`."""
        self.op("broadcast", *([] if x is None else [x]), out=() if out is None else out,
                root=root, axis=axis)

    def _reduce(self, op: str, x: Tensor, out: List[Tensor], by: str, axis: Optional[str],
                **keys: Any) -> None:
        if by not in ("sum", "max", "min"):
            refuse(f"{op} by {by!r}, which is none of sum, max, min")
        if by != "sum":
            keys[by] = True
        self.op(op, x, out=out, axis=axis, **keys)

    def record(self, *events: Tensor) -> None:
        """Marks this point of the stream."""
        self.op("record", out=events)

    def wait(self, *events: Tensor) -> None:
        """The stream waits for the last record of each that was issued before."""
        self.op("wait", *events)

    def fork(self) -> None:
        """Work streams wait for what the caller's was given before."""
        self.op("fork")

    def join(self) -> None:
        """The caller's stream waits for what work streams were given before."""
        self.op("join")

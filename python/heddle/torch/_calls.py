"""Calls of programs on tensors: what one needs is made of what its tensors look like the
first time that such tensors come, and found by that ever after."""
import collections
import contextlib
import functools
import math
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor
from torch.cuda import is_current_stream_capturing

from .._compile import Executable, compile, torch_stream
from .._error import UnsupportedError, refuse
from .._group import Group
from .._program import Program
from ._group import find

ALIGNED = 16  # bytes, of what a run on CUDA is given
# Executables that a group keeps. All ranks make the same calls, and so drop the same.
KEPT = 64
SMALL = 8 << 20  # bytes of partial sums that one kernel reduces faster than a pipeline does
LOOKS = 16 * KEPT  # kinds of calls that a group remembers

# Results, and what lies like one: sizes and strides.
Lie = Tuple[Sequence[Any], Sequence[Any]]


class Key(NamedTuple):
    """What a program is made of, `text(*sizes)`, and where it runs."""
    text: Callable[..., str]
    sizes: Tuple[Any, ...]
    device: torch.device
    partial: float = math.inf  # bytes of the partial sums of a rank, in a reduction


class Call(NamedTuple):
    """What a call on tensors that look like some others takes."""
    key: Key  # of its executables
    results: Sequence[Lie]
    order: Sequence[int]  # of the program's arguments, among the tensors and then the results
    loose: Sequence[Tuple[int, Callable[[Tensor], Tensor]]]  # which tensors are packed, by what


class Made(NamedTuple):
    """A program's executables. What lets runs be captured makes others slower, so that
    there are two on CUDA, of which the second takes as much memory again."""
    plain: Executable
    capturable: Optional[Executable]

    def close(self) -> None:
        for one in self:
            if one is not None:
                one.close()


class Table:
    """The executables of a group. A CUDA graph has addresses of those that were
    captured, so that they stay as long as the group."""

    def __init__(self) -> None:
        self.kept: "collections.OrderedDict[Any, Made]" = collections.OrderedDict()
        self.captured: Dict[Any, Executable] = {}
        self.calls: Dict[Any, Call] = {}

    def find(self, key: Any, capturing: bool) -> Optional[Executable]:
        made = self.kept.get(key)
        if made is not None:
            self.kept.move_to_end(key)
        if not capturing:
            return None if made is None else made.plain
        if made is not None and made.capturable is not None:
            self.captured[key] = made.capturable
            self.kept[key] = Made(made.plain, None)
        return self.captured.get(key)

    def add(self, key: Any, made: Made) -> None:
        """The one used the longest ago is dropped."""
        self.kept[key] = made
        if len(self.kept) > KEPT:
            self.kept.popitem(last=False)[1].close()

    def remember(self, look: Any, call: Call) -> Call:
        if len(self.calls) >= LOOKS:
            self.calls.clear()
        self.calls[look] = call
        return call


def table_of(group: Group) -> Table:
    table: Optional[Table] = getattr(group, "_torch_table", None)
    if table is None:
        table = group._torch_table = Table()  # type: ignore[attr-defined]
    return table


stream_of = getattr(torch._C, "_cuda_getCurrentRawStream", functools.partial(torch_stream, torch))


def dense(sizes: Sequence[Any]) -> Lie:
    """Without gaps, the last dimension the innermost."""
    strides, step = [], 1
    for size in reversed(sizes):
        strides.append(step)
        step = step * size
    return sizes, strides[::-1]


def turned(w: Tensor) -> bool:
    """Whether a weight [in, out] is stored [out, in]."""
    return w.stride(0) == 1 and w.stride(1) != 1


def like_weight(w: Tensor) -> Lie:
    """Its gradient, which is stored as it is."""
    k, n = w.shape
    return ((k, n), (1, k)) if turned(w) else ((k, n), (n, 1))


def pack_turned(w: Tensor) -> Tensor:
    return w.t().contiguous().t()


def packs(tensors: Sequence[Tensor], weights: Sequence[int]
          ) -> List[Tuple[int, Callable[[Tensor], Tensor]]]:
    """What has to be packed, which runs would do slowly; `weights` may lie turned."""
    found: List[Tuple[int, Callable[[Tensor], Tensor]]] = []
    for i, tensor in enumerate(tensors):
        if i in weights and turned(tensor):
            if not tensor.t().is_contiguous():
                found.append((i, pack_turned))
        elif not tensor.is_contiguous():
            found.append((i, Tensor.contiguous))
    return found


def lower(program: Program, transfer: str, transport: Optional[str]) -> Program:
    """Once for both executables, and proven."""
    complete = program.lower(transfer=transfer, transport=transport)
    complete.check(program, transport=transport)
    return complete


def bind(group: Group, table: Table, key: Key, complete: Program, transport: Optional[str]
         ) -> Executable:
    """The one that is not captured."""
    device, on_cuda = str(key.device), key.device.type == "cuda"
    plain = compile(complete, group, device=device, check=False, transport=transport)
    capturable = None
    try:
        if on_cuda and key not in table.captured:
            capturable = compile(complete, group, device=device, check=False, transport=transport,
                                 capturable=True)
    except BaseException:
        plain.close()
        raise
    table.add(key, Made(plain, capturable))
    return plain


def make(group: Group, table: Table, key: Key, capturing: bool) -> Executable:
    """The executables of `text(*sizes)`, the program's text, on a device. Small reductions
    go by one kernel, which no prediction knows yet."""
    program = Program(key.text(*key.sizes), name="heddle.torch")
    if capturing:
        shapes = ", ".join(f"{a.name} {a.dtype}{list(a.local_shape)}" for a in program.arguments)
        refuse(f"{program.name} of {shapes} first comes in a capture of a CUDA graph, where its "
               "program cannot be made: call it with such tensors once before, on all ranks")
    if key.partial <= SMALL and key.device.type == "cuda":
        with contextlib.suppress(UnsupportedError):  # on all ranks or on none
            return bind(group, table, key, lower(program, "bulk", "sm"), "sm")
    return bind(group, table, key, lower(program, "auto", None), None)


def place(tensors: List[Tensor], on_cuda: bool) -> List[int]:
    """Their addresses, of copies where a run on CUDA may not read them."""
    addresses = [tensor.data_ptr() for tensor in tensors]
    if on_cuda:
        for i, address in enumerate(addresses):
            if address % ALIGNED != 0:
                tensors[i] = tensors[i].clone()
                addresses[i] = tensors[i].data_ptr()
    return addresses


def run(plan: Callable[..., Call], name: str, tensors: List[Tensor], rest: Tuple[Any, ...]
        ) -> List[Tensor]:
    """Makes `plan`'s results of the tensors, on the group of that name. The plan, of the
    tensors, the group's name and `rest`, refuses what does not fit.

    On CUDA a run is in order with PyTorch's current stream, as is whatever its allocator
    uses the memory for next: nothing is kept of tensors."""
    group, first = find(name), tensors[0]
    table, on_cuda = table_of(group), first.is_cuda
    look = (plan, rest, *[(t.shape, t.stride(), t.dtype, t.device) for t in tensors])
    call = table.calls.get(look)
    if call is None:
        call = table.remember(look, plan(tensors, name, *rest))
    capturing = on_cuda and is_current_stream_capturing()
    made = table.find(call.key, capturing)
    if made is None:
        made = make(group, table, call.key, capturing)
    for i, pack in call.loose:
        tensors[i] = pack(tensors[i])
    addresses = place(tensors, on_cuda)
    results = [first.new_empty_strided(*lie) for lie in call.results]
    addresses += [result.data_ptr() for result in results]
    made._run_at([addresses[i] for i in call.order], stream_of(first.get_device()) if on_cuda else 0,
                 (tensors, results))
    return results

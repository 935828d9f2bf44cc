"""The operators `torch.ops.heddle.*`: programs on tensors, with fake kernels for
tracing and with gradients, which are such operators again.

An operator is given a group by its name. What it runs is compiled the first time
that its shapes, dtypes and group come, and kept.
"""
import collections
import itertools
import math
import weakref
from typing import Any, Callable, Dict, List, NoReturn, Optional, Sequence, Tuple

import torch
from torch import Tensor

from .._compile import Executable, compile, torch_stream
from .._error import UnsupportedError, refuse
from .._group import Group
from .._program import Program
from . import _programs
from ._group import find, size_of
from ._programs import Rows, Weight

DTYPES = {torch.float64: "f64", torch.float32: "f32", torch.float16: "f16",
          torch.bfloat16: "bf16"}
ALIGNED = 16  # bytes, of what a run on CUDA is given
# Executables that a group keeps. All ranks make the same calls, and so drop the same.
KEPT = 64


class Table:
    """The executables of a group. A CUDA graph has addresses of those that were
    captured, so that they stay as long as the group."""

    def __init__(self) -> None:
        self.kept: "collections.OrderedDict[Any, Executable]" = collections.OrderedDict()
        self.captured: Dict[Any, Executable] = {}

    def find(self, key: Any, capturing: bool) -> Optional[Executable]:
        found = self.captured.get(key)
        if found is None and key in self.kept:
            self.kept.move_to_end(key)
            found = self.kept[key]
            if capturing:
                self.captured[key] = self.kept.pop(key)
        return found

    def add(self, key: Any, made: Executable) -> None:
        """The one used the longest ago is dropped."""
        self.kept[key] = made
        if len(self.kept) > KEPT:
            self.kept.popitem(last=False)[1].close()


tables: "weakref.WeakKeyDictionary[Group, Table]" = weakref.WeakKeyDictionary()


def executable(name: str, key: Tuple[Any, ...], text: Callable[..., str], device: torch.device
               ) -> Executable:
    """What runs `text(*key)` on that group."""
    group, on_cuda = find(name), device.type == "cuda"
    table = tables.get(group)
    if table is None:
        table = tables[group] = Table()
    capturing = on_cuda and torch.cuda.is_current_stream_capturing()
    whole = text, key, device
    found = table.find(whole, capturing)
    if found is None:
        program = Program(text(*key), name="heddle.torch")
        if capturing:
            shapes = ", ".join(f"{a.name} {a.dtype}{list(a.local_shape)}" for a in program.arguments)
            refuse(f"{program.name} of {shapes} first comes in a capture of a CUDA graph, where its "
                   "program cannot be made: call it with such tensors once before, on all ranks")
        found = compile(program, group, device=str(device), capturable=on_cuda)
        table.add(whole, found)
    return found


def run(made: Executable, *tensors: Tensor) -> None:
    """Of dense tensors, as many elements as the program's arguments have and in their
    order. On CUDA a run is in order with PyTorch's current stream, as is whatever its
    allocator uses the memory for next."""
    device = tensors[0].device
    stream = torch_stream(torch, device.index) if device.type == "cuda" else 0
    made._run_at([tensor.data_ptr() for tensor in tensors], stream, tensors)


def turned(w: Tensor) -> bool:
    return w.stride(0) == 1 and w.stride(1) != 1


def empty_gradient(w: Tensor) -> Tensor:
    """Stored as the weight is."""
    k, n = w.shape
    return w.new_empty(n, k).t() if turned(w) else w.new_empty(k, n)


def dense(x: Tensor) -> Tensor:
    """Without gaps, which a run packs slowly, and where a run on CUDA may read it."""
    x = x.contiguous()
    return x if x.data_ptr() % ALIGNED == 0 or x.device.type == "cpu" else x.clone()


def place(w: Tensor) -> Tuple[Weight, Tensor]:
    """A weight [k, n], and the tensor that lies dense, which may be [n, k]."""
    k, n = w.shape
    if turned(w):
        return Weight(k, n, True), dense(w.t())
    return Weight(k, n, False), dense(w)


def divide(x: Tensor, dim: int, tp: int, gathered: bool) -> Rows:
    """How the rows of `x` lie, of which `dim` is one rank's or, `gathered`, all of them."""
    extent = x.shape[dim]
    rest = math.prod(x.shape[dim + 1:-1])
    batch = math.prod(x.shape[:dim])
    return Rows(batch, tp, (extent // tp if gathered else extent) * rest)


def same(what: str, tensors: Sequence[Tensor]) -> str:
    """The dtype of all of them."""
    first = tensors[0]
    for other in tensors[1:]:
        if other.dtype != first.dtype:
            refuse(f"{what} of {first.dtype} and {other.dtype}: dtypes differ")
        if other.device != first.device:
            refuse(f"{what} of tensors on {first.device} and on {other.device}")
    if first.dtype not in DTYPES:
        refuse(f"{what} of {first.dtype}: it takes float64, float32, float16 and bfloat16")
    return DTYPES[first.dtype]


def judge(what: str, x: Tensor, ws: Sequence[Tensor], dim: int) -> None:
    """Refuses shapes that do not fit, before anything is exchanged."""
    if len(ws) == 0:
        refuse(f"{what} has no weight")
    if x.dim() < 2:
        refuse(f"{what}: x is {list(x.shape)}, and needs two dimensions, rows and features")
    if not 0 <= dim < x.dim() - 1:
        refuse(f"{what}: dimension {dim} of x, which is {list(x.shape)}: ranks share rows, which "
               f"are dimensions 0 to {x.dim() - 2}")
    for w in ws:
        if w.dim() != 2 or w.shape[0] != x.shape[-1]:
            refuse(f"{what}: x is {list(x.shape)} and w {list(w.shape)}: w must be "
                   f"[{x.shape[-1]}, columns]")
    same(what, [x, *ws])
    if 0 in x.shape or any(0 in w.shape for w in ws):
        refuse(f"{what}: x is {list(x.shape)} and w {list(ws[0].shape)}: there is nothing in it")


def judge_division(what: str, x: Tensor, dim: int, tp: int) -> None:
    if x.shape[dim] % tp != 0:
        refuse(f"{what}: dimension {dim} of x is {x.shape[dim]}, which {tp} ranks do not divide")


# ------------------------------------------------------------------- operators

library = torch.library.Library("heddle", "DEF")
tags = (torch._C.Tag.needs_fixed_stride_order,)


def define(schema: str, fake: Callable[..., Any]) -> Callable[[Callable[..., Any]], Any]:
    """Makes an operator of the function that is decorated."""
    name = "heddle::" + schema.partition("(")[0]

    def decorate(fn: Callable[..., Any]) -> Any:
        torch.library.define(name, schema[schema.index("("):], lib=library, tags=tags)
        torch.library.impl(name, ("CPU", "CUDA"), fn, lib=library)
        torch.library.register_fake(name, fake, lib=library)
        return getattr(torch.ops.heddle, name[8:]).default

    return decorate


def widen(x: Tensor, dim: int, tp: int, features: Any) -> List[Any]:
    shape = list(x.shape)
    shape[dim] = shape[dim] * tp
    shape[-1] = features
    return shape


def narrow(x: Tensor, dim: int, tp: int, features: Any) -> List[Any]:
    shape = list(x.shape)
    shape[dim] = shape[dim] // tp
    shape[-1] = features
    return shape


def gather_shapes(x: Tensor, ws: Sequence[Tensor], dim: int, keep: bool, group: str
                  ) -> Tuple[Tensor, List[Tensor]]:
    judge("all_gather_matmul", x, ws, dim)
    tp = size_of(group)
    kept = x.new_empty(widen(x, dim, tp, x.shape[-1]) if keep else [0])
    return kept, [x.new_empty(widen(x, dim, tp, w.shape[1])) for w in ws]


@define("all_gather_matmul(Tensor x, Tensor[] ws, int dim, bool keep, str group) "
        "-> (Tensor, Tensor[])", gather_shapes)
def gather_op(x: Tensor, ws: Sequence[Tensor], dim: int, keep: bool, group: str
              ) -> Tuple[Tensor, List[Tensor]]:
    kept, ys = gather_shapes(x, ws, dim, keep, group)
    tp, k = size_of(group), x.shape[-1]
    rows = divide(x, dim, tp, False)
    weights, stored = zip(*map(place, ws))
    made = executable(group, (rows, weights, k, DTYPES[x.dtype], keep), _programs.gather, x.device)
    pairs = itertools.chain.from_iterable(zip(stored, ys))
    run(made, dense(x), *[kept] * keep, *pairs)
    return kept, ys


def backward_shapes(gys: Sequence[Tensor], ws: Sequence[Tensor], h: Tensor, extra: Optional[Tensor],
                    wanted: Sequence[int], dim: int, group: str) -> Tuple[Tensor, List[Tensor]]:
    tp, k = size_of(group), ws[0].shape[0]
    same("all_gather_matmul_backward", [*gys, *ws, h] + ([] if extra is None else [extra]))
    gx = gys[0].new_empty(narrow(gys[0], dim, tp, k))
    return gx, [empty_gradient(w) if want else w.new_empty([0]) for w, want in zip(ws, wanted)]


@define("all_gather_matmul_backward(Tensor[] gys, Tensor[] ws, Tensor h, Tensor? extra, int[] wanted, "
        "int dim, str group) -> (Tensor, Tensor[])", backward_shapes)
def backward_op(gys: Sequence[Tensor], ws: Sequence[Tensor], h: Tensor, extra: Optional[Tensor],
                wanted: Sequence[int], dim: int, group: str) -> Tuple[Tensor, List[Tensor]]:
    gx, gws = backward_shapes(gys, ws, h, extra, wanted, dim, group)
    tp, k = size_of(group), ws[0].shape[0]
    rows = divide(gys[0], dim, tp, True)
    weights, stored = zip(*map(place, ws))
    key = (rows, weights, k, DTYPES[h.dtype], extra is not None, tuple(map(bool, wanted)))
    made = executable(group, key, _programs.backward, h.device)
    gys = [dense(gy) for gy in gys]
    given = [*itertools.chain.from_iterable(zip(gys, stored))]
    if extra is not None:
        given.append(dense(extra))
    given.append(gx)
    if any(wanted):
        given.append(dense(h))
    for gy, gw, want in zip(gys, gws, wanted):
        if want:
            given += [gy, gw]
    run(made, *given)
    return gx, gws


def reduce_shapes(x: Tensor, w: Tensor, dim: int, group: str) -> Tensor:
    judge("matmul_reduce_scatter", x, [w], dim)
    tp = size_of(group)
    judge_division("matmul_reduce_scatter", x, dim, tp)
    return x.new_empty(narrow(x, dim, tp, w.shape[1]))


@define("matmul_reduce_scatter(Tensor x, Tensor w, int dim, str group) -> Tensor", reduce_shapes)
def reduce_op(x: Tensor, w: Tensor, dim: int, group: str) -> Tensor:
    y = reduce_shapes(x, w, dim, group)
    rows = divide(x, dim, size_of(group), True)
    weight, stored = place(w)
    made = executable(group, (rows, weight, DTYPES[x.dtype], True), _programs.reduce, x.device)
    run(made, dense(x), stored, y)
    return y


def sum_shapes(x: Tensor, w: Tensor, group: str) -> Tensor:
    judge("matmul_all_reduce", x, [w], 0)
    size_of(group)
    return x.new_empty([*x.shape[:-1], w.shape[1]])


@define("matmul_all_reduce(Tensor x, Tensor w, str group) -> Tensor", sum_shapes)
def sum_op(x: Tensor, w: Tensor, group: str) -> Tensor:
    y = sum_shapes(x, w, group)
    tp, total = size_of(group), math.prod(x.shape[:-1])
    weight, stored = place(w)
    dtype = DTYPES[x.dtype]
    if total % tp == 0:
        rows = Rows(1, tp, total // tp)
        made = executable(group, (rows, weight, dtype, False), _programs.reduce, x.device)
    else:
        made = executable(group, (tp, total, weight, dtype), _programs.reduce_whole, x.device)
    run(made, dense(x), stored, y)
    return y


def local_shapes(x: Tensor, w: Tensor, group: str) -> Tensor:
    judge("replicated_matmul", x, [w], 0)
    return x.new_empty([*x.shape[:-1], w.shape[1]])


@define("replicated_matmul(Tensor x, Tensor w, str group) -> Tensor", local_shapes)
def local_op(x: Tensor, w: Tensor, group: str) -> Tensor:
    local_shapes(x, w, group)
    return x.detach() @ w.detach()


@define("add_shared(Tensor x, Tensor b, str group) -> Tensor", lambda x, b, group: x.new_empty(x.shape))
def add_op(x: Tensor, b: Tensor, group: str) -> Tensor:
    """A bias that all ranks have, added to the rows that each has of its own."""
    return x.detach() + b.detach()


# ------------------------------------------------------------------- gradients


def keep_gather(ctx: Any, inputs: Tuple[Any, ...], output: Any) -> None:
    _, ws, ctx.dim, keep, ctx.group = inputs
    ctx.kept = keep
    ctx.save_for_backward(output[0], *ws)
    ctx.set_materialize_grads(False)


def flow_gather(ctx: Any, extra: Optional[Tensor], gys: Sequence[Optional[Tensor]]) -> Any:
    h, *ws = ctx.saved_tensors
    # autograd does not say which of a list it wants: weights say so themselves.
    wanted = [int(w.requires_grad) for w in ws]
    if any(wanted) and not ctx.kept:
        refuse("all_gather_matmul needs keep=True where a weight has a gradient")
    shape = list(next(gy for gy in gys if gy is not None).shape[:-1]) if any(
        gy is not None for gy in gys) else list(h.shape[:-1])
    full = [ws[i].new_zeros(*shape, ws[i].shape[1]) if gy is None else gy
            for i, gy in enumerate(gys)]
    gx, gws = backward_call(full, ws, h, extra if ctx.kept else None, wanted, ctx.dim, ctx.group)
    return gx, [g if want else None for g, want in zip(gws, wanted)], None, None, None


def keep_reduce(ctx: Any, inputs: Tuple[Any, ...], output: Any) -> None:
    x, w, *rest = inputs
    ctx.dim, ctx.group = rest if len(rest) == 2 else (None, rest[0])
    ctx.save_for_backward(x, w)


def product(x: Tensor, g: Tensor) -> Tensor:
    """The gradient of a weight of which the whole input and the whole gradient are here."""
    return x.reshape(-1, x.shape[-1]).t() @ g.reshape(-1, g.shape[-1])


def flow_reduce(ctx: Any, gy: Tensor) -> Any:
    x, w = ctx.saved_tensors
    all_rows, (gx,) = gather_call(gy, [w.t()], ctx.dim, ctx.needs_input_grad[1], ctx.group)
    gw = product(x, all_rows) if ctx.needs_input_grad[1] else None
    return gx, gw, None, None


def flow_sum(ctx: Any, gy: Tensor) -> Any:
    """Every rank has the whole sum and makes the same of it: its gradient is there."""
    x, w = ctx.saved_tensors
    gx = gy @ w.t() if ctx.needs_input_grad[0] else None
    return gx, product(x, gy) if ctx.needs_input_grad[1] else None, None


def flow_local(ctx: Any, gy: Tensor) -> Any:
    x, w = ctx.saved_tensors
    gx = torch.ops.heddle.matmul_all_reduce(gy, w.t(), ctx.group) if ctx.needs_input_grad[0] \
        else None
    return gx, product(x, gy) if ctx.needs_input_grad[1] else None, None


def keep_add(ctx: Any, inputs: Tuple[Any, ...], output: Any) -> None:
    ctx.group = inputs[2]


def flow_add(ctx: Any, gy: Tensor) -> Any:
    """The bias's gradient is the sum over the rows of all ranks: a product with ones."""
    rows = gy.reshape(-1, gy.shape[-1])
    ones = rows.new_ones(1, rows.shape[0])
    gb = torch.ops.heddle.matmul_all_reduce(ones, rows, ctx.group)[0] \
        if ctx.needs_input_grad[1] else None
    return gy, gb, None


gather_call, backward_call = torch.ops.heddle.all_gather_matmul, \
    torch.ops.heddle.all_gather_matmul_backward
torch.library.register_autograd("heddle::all_gather_matmul", flow_gather,
                                setup_context=keep_gather, lib=library)
torch.library.register_autograd("heddle::matmul_reduce_scatter", flow_reduce,
                                setup_context=keep_reduce, lib=library)
torch.library.register_autograd("heddle::matmul_all_reduce", flow_sum,
                                setup_context=keep_reduce, lib=library)
torch.library.register_autograd("heddle::replicated_matmul", flow_local,
                                setup_context=keep_reduce, lib=library)
torch.library.register_autograd("heddle::add_shared", flow_add, setup_context=keep_add, lib=library)


def refuse_second(ctx: Any, *_: Any) -> NoReturn:
    raise UnsupportedError("all_gather_matmul has no gradient of its gradient")


torch.library.register_autograd("heddle::all_gather_matmul_backward", refuse_second, lib=library)

"""The operators `torch.ops.heddle.*`: programs on tensors, with fake kernels for
tracing. Their gradients are in _gradients.py.

An operator is given a group by its name. What it runs is compiled the first time
that its shapes, dtypes and group come, and kept.
"""
import math
from typing import Any, Callable, List, Optional, Sequence, Tuple

import torch
from torch import Tensor

from .._error import refuse
from . import _programs
from ._calls import Call, Key, Lie, dense, like_weight, packs, run, turned
from ._group import size_of
from ._programs import Rows, Weight

DTYPES = {torch.float64: "f64", torch.float32: "f32", torch.float16: "f16",
          torch.bfloat16: "bf16"}
SMALL = 8 << 20  # bytes of a rank's partial sums


def weight_of(w: Tensor) -> Weight:
    return Weight(w.shape[0], w.shape[1], turned(w))


def divide(x: Tensor, dim: int, tp: int, gathered: bool) -> Rows:
    """How the rows of `x` lie, of which `dim` is one rank's or, `gathered`, all of them."""
    extent = x.shape[dim]
    rest = math.prod(x.shape[dim + 1:-1])
    batch = math.prod(x.shape[:dim])
    return Rows(batch, tp, (extent // tp if gathered else extent) * rest)


def same(what: str, tensors: Sequence[Tensor]) -> None:
    """Refuses tensors of several dtypes, or on several devices."""
    first = tensors[0]
    for other in tensors[1:]:
        if other.dtype != first.dtype:
            refuse(f"{what} of {first.dtype} and {other.dtype}: dtypes differ")
        if other.device != first.device:
            refuse(f"{what} of tensors on {first.device} and on {other.device}")
    if first.dtype not in DTYPES:
        refuse(f"{what} of {first.dtype}: it takes float64, float32, float16 and bfloat16")


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


def define(schema: str, fake: Callable[..., Any], kernel: Callable[..., Any]) -> Any:
    """Makes an operator of a kernel, and of one that makes tensors without memory."""
    name = "heddle::" + schema.partition("(")[0]
    torch.library.define(name, schema[schema.index("("):], lib=library, tags=tags)
    torch.library.impl(name, ("CPU", "CUDA"), kernel, lib=library)
    torch.library.register_fake(name, fake, lib=library)
    return getattr(torch.ops.heddle, name[8:]).default


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


def gather_results(x: Tensor, ws: Sequence[Tensor], dim: int, keep: bool, group: str) -> List[Lie]:
    judge("all_gather_matmul", x, ws, dim)
    tp = size_of(group)
    return [dense(widen(x, dim, tp, x.shape[-1]))] * keep + \
        [dense(widen(x, dim, tp, w.shape[1])) for w in ws]


def plan_gather(tensors: Sequence[Tensor], group: str, dim: int, keep: bool) -> Call:
    x, *ws = tensors
    results, n = gather_results(x, ws, dim, keep, group), len(tensors)
    rows = divide(x, dim, size_of(group), False)
    key = rows, tuple(map(weight_of, ws)), x.shape[-1], DTYPES[x.dtype], keep
    order = [0] + [n] * keep
    for i in range(1, n):
        order += [i, n + keep + i - 1]
    return Call(Key(_programs.gather, key, x.device), results, order, packs(tensors, range(1, n)))


def gather_kernel(x: Tensor, ws: Sequence[Tensor], dim: int, keep: bool, group: str
                  ) -> List[Tensor]:
    return run(plan_gather, group, [x, *ws], (dim, keep))


def gather_fake(x: Tensor, ws: Sequence[Tensor], dim: int, keep: bool, group: str) -> List[Tensor]:
    return [x.new_empty_strided(*lie) for lie in gather_results(x, ws, dim, keep, group)]


# The rows of all ranks, with `keep`, and their products.
gather_op = define("all_gather_matmul(Tensor x, Tensor[] ws, int dim, bool keep, str group) "
                   "-> Tensor[]", gather_fake, gather_kernel)


def judge_backward(gys: Sequence[Tensor], ws: Sequence[Tensor], rows: Sequence[Tensor],
                   wanted: Sequence[int], dim: int, tp: int) -> None:
    """Refuses what is not of one gather; `rows` is all that has the rows of all ranks."""
    lead, k = list(gys[0].shape[:-1]), ws[0].shape[0]
    if not (len(gys) == len(ws) == len(wanted) and 0 <= dim < len(lead) and
            all(w.dim() == 2 and w.shape[0] == k and list(gy.shape) == [*lead, w.shape[1]]
                for gy, w in zip(gys, ws)) and
            all(list(one.shape) == [*lead, k] for one in rows)):
        shapes = [[list(one.shape) for one in several] for several in (gys, ws, rows)]
        refuse(f"all_gather_matmul_backward of gradients {shapes[0]}, weights {shapes[1]} and rows "
               f"{shapes[2]}, {len(wanted)} wanted, along dimension {dim}: they do not fit")
    judge_division("all_gather_matmul_backward", gys[0], dim, tp)


def backward_results(gys: Sequence[Tensor], ws: Sequence[Tensor], rows: Sequence[Tensor],
                     wanted: Sequence[int], dim: int, group: str) -> List[Lie]:
    tp = size_of(group)
    judge_backward(gys, ws, rows, wanted, dim, tp)
    k = ws[0].shape[0]
    return [dense(narrow(gys[0], dim, tp, k))] + \
        [like_weight(w) for w, want in zip(ws, wanted) if want]


def plan_backward(tensors: Sequence[Tensor], group: str, dim: int, wanted: Sequence[int],
                  extra: bool) -> Call:
    same("all_gather_matmul_backward", tensors)
    n = len(wanted)
    gys, ws = tensors[:n], tensors[n:2 * n]
    results = backward_results(gys, ws, tensors[2 * n:], wanted, dim, group)
    rows, k = divide(gys[0], dim, size_of(group), True), ws[0].shape[0]
    key = (rows, tuple(map(weight_of, ws)), k, DTYPES[gys[0].dtype], extra,
           tuple(map(bool, wanted)))
    order, result = [], len(tensors)
    for i in range(n):
        order += [i, n + i]
    order += [2 * n] * extra + [result]
    if any(wanted):
        order.append(2 * n + extra)
    for i in range(n):
        if wanted[i]:
            result += 1
            order += [i, result]
    return Call(Key(_programs.backward, key, gys[0].device), results, order,
                packs(tensors, range(n, 2 * n)))


def backward_kernel(gys: Sequence[Tensor], ws: Sequence[Tensor], h: Optional[Tensor],
                    extra: Optional[Tensor], wanted: Sequence[int], dim: int, group: str
                    ) -> List[Tensor]:
    tensors = [*gys, *ws]
    if extra is not None:
        tensors.append(extra)
    if any(wanted):
        if h is None:
            refuse("all_gather_matmul_backward of a weight needs the rows of all ranks")
        tensors.append(h)
    return run(plan_backward, group, tensors, (dim, tuple(wanted), extra is not None))


def backward_fake(gys: Sequence[Tensor], ws: Sequence[Tensor], h: Optional[Tensor],
                  extra: Optional[Tensor], wanted: Sequence[int], dim: int, group: str
                  ) -> List[Tensor]:
    rows = [one for one in (h, extra) if one is not None]
    return [gys[0].new_empty_strided(*lie)
            for lie in backward_results(gys, ws, rows, wanted, dim, group)]


# The gradient of x, and of the weights that are wanted, for which `h` are the rows of all ranks.
backward_op = define("all_gather_matmul_backward(Tensor[] gys, Tensor[] ws, Tensor? h, Tensor? extra, "
                     "int[] wanted, int dim, str group) -> Tensor[]", backward_fake, backward_kernel)


def reduce_result(x: Tensor, w: Tensor, dim: int, group: str) -> Lie:
    judge("matmul_reduce_scatter", x, [w], dim)
    tp = size_of(group)
    judge_division("matmul_reduce_scatter", x, dim, tp)
    return dense(narrow(x, dim, tp, w.shape[1]))


def is_small(x: Tensor, w: Tensor) -> bool:
    """Whether one kernel reduces the partial sums faster than a pipeline does."""
    return x.is_cuda and math.prod(x.shape[:-1]) * w.shape[1] * x.element_size() <= SMALL


def plan_reduce(tensors: Sequence[Tensor], group: str, dim: int) -> Call:
    x, w = tensors
    result = reduce_result(x, w, dim, group)
    sizes = divide(x, dim, size_of(group), True), weight_of(w), DTYPES[x.dtype], True
    key = Key(_programs.reduce, sizes, x.device, _programs.reduce_at_once if is_small(x, w) else None)
    return Call(key, [result], range(3), packs(tensors, [1]))


def reduce_kernel(x: Tensor, w: Tensor, dim: int, group: str) -> Tensor:
    return run(plan_reduce, group, [x, w], (dim,))[0]


def reduce_fake(x: Tensor, w: Tensor, dim: int, group: str) -> Tensor:
    return x.new_empty_strided(*reduce_result(x, w, dim, group))


reduce_op = define("matmul_reduce_scatter(Tensor x, Tensor w, int dim, str group) -> Tensor",
                   reduce_fake, reduce_kernel)


def sum_result(x: Tensor, w: Tensor, group: str) -> Lie:
    judge("matmul_all_reduce", x, [w], 0)
    size_of(group)
    return dense([*x.shape[:-1], w.shape[1]])


def plan_sum(tensors: Sequence[Tensor], group: str) -> Call:
    x, w = tensors
    result = sum_result(x, w, group)
    tp, total = size_of(group), math.prod(x.shape[:-1])
    weight, dtype = weight_of(w), DTYPES[x.dtype]
    if total % tp == 0:
        text, at_once = _programs.reduce, _programs.reduce_at_once  # type: Any, Any
        sizes: Tuple[Any, ...] = (Rows(1, tp, total // tp), weight, dtype, False)
    else:
        text = at_once = _programs.reduce_whole
        sizes = tp, total, weight, dtype
    key = Key(text, sizes, x.device, at_once if is_small(x, w) else None)
    return Call(key, [result], range(3), packs(tensors, [1]))


def sum_kernel(x: Tensor, w: Tensor, group: str) -> Tensor:
    return run(plan_sum, group, [x, w], ())[0]


def sum_fake(x: Tensor, w: Tensor, group: str) -> Tensor:
    return x.new_empty_strided(*sum_result(x, w, group))


sum_op = define("matmul_all_reduce(Tensor x, Tensor w, str group) -> Tensor", sum_fake, sum_kernel)


def local_fake(x: Tensor, w: Tensor, group: str) -> Tensor:
    judge("replicated_matmul", x, [w], 0)
    return x.new_empty([*x.shape[:-1], w.shape[1]])


def local_kernel(x: Tensor, w: Tensor, group: str) -> Tensor:
    judge("replicated_matmul", x, [w], 0)
    return x @ w


local_op = define("replicated_matmul(Tensor x, Tensor w, str group) -> Tensor", local_fake,
                  local_kernel)


def add_fake(x: Tensor, b: Tensor, group: str) -> Tensor:
    return x.new_empty(x.shape)


def add_kernel(x: Tensor, b: Tensor, group: str) -> Tensor:
    return x + b


# A bias that all ranks have, added to the rows that each has of its own.
add_op = define("add_shared(Tensor x, Tensor b, str group) -> Tensor", add_fake, add_kernel)

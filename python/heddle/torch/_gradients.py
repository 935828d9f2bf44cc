"""The operators with their gradients, and the ways to them.

PyTorch's dispatcher takes a call of an operator to what is registered here, and that on
to the kernel. Where nothing between would look at the call, no mode, transform, trace
or autocast, the functions at the end go there at once, which takes half as long.
"""
from typing import Any, Callable, List, Optional, Sequence, Tuple

import torch
from torch import Tensor, _C
from torch.amp import autocast_mode
from torch.autograd import Function, forward_ad
from torch.compiler import is_compiling

from .._error import refuse
from . import _ops
from ._calls import WATCHING, run_plain, turned
from ._group import AnyGroup, name_of
from ._ops import backward_op, gather_op

# ------------------------------------------------------------------------- ways

Keys = Optional[Any]  # what the dispatcher has found in a call; None if it was not asked
ORDINARY = (torch.Tensor, torch.nn.Parameter)
# The keys of a call that nobody but autograd and the kernel looks at.
PLAIN = {(_C.DispatchKeySet(getattr(_C.DispatchKey, name)) |
          _C.DispatchKeySet(getattr(_C.DispatchKey, "Autograd" + name))).raw_repr()
         for name in ("CPU", "CUDA")}


def is_direct(*tensors: Tensor) -> bool:
    """Whether the dispatcher would bring a call on them to autograd, and on to the kernel."""
    if is_compiling():
        return False
    for asks in WATCHING[:-1]:
        if asks():
            return False
    try:
        for tensor in tensors:
            if type(tensor) not in ORDINARY or tensor.is_neg() or not tensor.data_ptr():
                return False
    except RuntimeError:  # a sparse or an opaque one
        return False
    return True


def is_wanted(*tensors: Any) -> bool:
    """Whether a gradient is; of forward mode, too, which Function refuses."""
    return forward_ad._current_level >= 0 or \
        torch.is_grad_enabled() and _C._any_requires_grad(*tensors)


def below(keys: Keys, op: Any, kernel: Callable[..., Any], *args: Any) -> Any:
    """What the operator makes, without a gradient."""
    if keys is None or keys.raw_repr() in PLAIN:
        return kernel(*args)
    with _C._AutoDispatchBelowAutograd():
        return op.redispatch(keys & _C._after_autograd_keyset, *args)


# -------------------------------------------------------------------- gradients


def flat(x: Tensor) -> Tensor:
    return x.reshape(-1, x.shape[-1])


def product(x: Tensor, g: Tensor, w: Tensor) -> Tensor:
    """The gradient of a weight of which the whole input and the whole gradient are here,
    stored as the weight is."""
    return (flat(g).t() @ flat(x)).t() if turned(w) else flat(x).t() @ flat(g)


def save_factors(ctx: Any, x: Tensor, w: Tensor) -> None:
    """An activation is kept for the gradient of a weight alone."""
    ctx.save_for_backward(x if ctx.needs_input_grad[2] else None, w)


def total(terms: Sequence[Optional[Tensor]]) -> Optional[Tensor]:
    """The sum of those that there are."""
    there = [term for term in terms if term is not None]
    return sum(there[1:], there[0]) if there else None


class Gather(Function):  # type: ignore[misc, unused-ignore]
    @staticmethod
    def forward(ctx: Any, keys: Keys, dim: int, keep: bool, group: str, x: Tensor, *ws: Tensor) -> Any:
        made = below(keys, gather_op, _ops.gather_kernel, x, list(ws), dim, keep, group)
        ctx.dim, ctx.keep, ctx.group = dim, keep, group
        ctx.save_for_backward(made[0] if keep and any(ctx.needs_input_grad[5:]) else None, *ws)
        ctx.set_materialize_grads(False)
        return tuple(made)

    @staticmethod
    def backward(ctx: Any, *gradients: Optional[Tensor]) -> Any:
        h, *ws = ctx.saved_tensors  # once: checkpoints unpack it
        wanted = [int(needs) for needs in ctx.needs_input_grad[5:]]
        if any(wanted) and h is None:
            refuse("all_gather_matmul needs keep=True where a weight has a gradient")
        shapes = [g.shape[:-1] for g in gradients if g is not None]
        if not shapes:
            return (None,) * len(ctx.needs_input_grad)
        extra, gys = (gradients[0] if ctx.keep else None), gradients[ctx.keep:]
        full = [w.new_zeros(*shapes[0], w.shape[1]) if gy is None else gy for gy, w in zip(gys, ws)]
        made = gather_backward(full, ws, h, extra, wanted, ctx.dim, ctx.group)
        gws = iter(made[1:])
        return (None, None, None, None, made[0], *[next(gws) if want else None for want in wanted])


class GatherBackward(Function):  # type: ignore[misc, unused-ignore]
    """Of `tensors`: the gradients of products, the weights, and then h and extra. What is
    linear in all of these has gradients of the same kind."""

    @staticmethod
    def forward(ctx: Any, keys: Keys, wanted: Sequence[int], dim: int, group: str, h: Optional[Tensor],
                extra: Optional[Tensor], *tensors: Tensor) -> Any:
        n = len(wanted)
        made = below(keys, backward_op, _ops.backward_kernel, list(tensors[:n]), list(tensors[n:]), h,
                     extra, wanted, dim, group)
        ctx.dim, ctx.group, ctx.wanted = dim, group, wanted
        ctx.save_for_backward(h, *tensors)
        ctx.set_materialize_grads(False)
        return tuple(made)

    @staticmethod
    def backward(ctx: Any, ggx: Optional[Tensor], *gradients: Optional[Tensor]) -> Any:
        n, left = len(ctx.wanted), iter(gradients)
        h, *saved = ctx.saved_tensors
        gys, ws = saved[:n], saved[n:]
        ggws = [next(left) if want else None for want in ctx.wanted]
        rows: Optional[Tensor] = None
        through: Sequence[Optional[Tensor]] = [None] * n
        if ggx is not None:
            rows, *through = gather(ggx, ws, ctx.dim, True, ctx.group)
        to_gys = [total([y, None if g is None else h @ g]) for y, g in zip(through, ggws)]
        to_ws = [None if rows is None else product(rows, gy, w) for gy, w in zip(gys, ws)]
        to_h = total([None if g is None else gy @ g.t() for gy, g in zip(gys, ggws)])
        return (None, None, None, None, to_h, rows if ctx.needs_input_grad[5] else None, *to_gys, *to_ws)


class Reduce(Function):  # type: ignore[misc, unused-ignore]
    @staticmethod
    def forward(ctx: Any, keys: Keys, x: Tensor, w: Tensor, dim: int, group: str) -> Any:
        ctx.dim, ctx.group = dim, group
        save_factors(ctx, x, w)
        return below(keys, _ops.reduce_op, _ops.reduce_kernel, x, w, dim, group)

    @staticmethod
    def backward(ctx: Any, gy: Tensor) -> Any:
        x, w = ctx.saved_tensors
        keep = ctx.needs_input_grad[2]
        *rows, gx = gather(gy, [w.t()], ctx.dim, keep, ctx.group)
        return None, gx, product(x, rows[0], w) if keep else None, None, None


class Sum(Function):  # type: ignore[misc, unused-ignore]
    @staticmethod
    def forward(ctx: Any, keys: Keys, x: Tensor, w: Tensor, group: str) -> Any:
        ctx.group = group
        save_factors(ctx, x, w)
        return below(keys, _ops.sum_op, _ops.sum_kernel, x, w, group)

    @staticmethod
    def backward(ctx: Any, gy: Tensor) -> Any:
        """Every rank has the whole sum and makes the same of it: its gradient is there. In
        the products with it, where they are differentiated again, it is what all ranks have."""
        x, w = ctx.saved_tensors
        gx = replicated(gy, w.t(), ctx.group) if ctx.needs_input_grad[1] else None
        gw = None
        if ctx.needs_input_grad[2]:
            gw = replicated(flat(gy).t(), flat(x), ctx.group).t() if torch.is_grad_enabled() else \
                product(x, gy, w)
        return None, gx, gw, None


class Local(Function):  # type: ignore[misc, unused-ignore]
    @staticmethod
    def forward(ctx: Any, keys: Keys, x: Tensor, w: Tensor, group: str) -> Any:
        ctx.group = group
        save_factors(ctx, x, w)
        return below(keys, _ops.local_op, _ops.local_kernel, x, w, group)

    @staticmethod
    def backward(ctx: Any, gy: Tensor) -> Any:
        x, w = ctx.saved_tensors
        gx = all_reduce(gy, w.t(), ctx.group) if ctx.needs_input_grad[1] else None
        gw = None
        if ctx.needs_input_grad[2]:
            gw = replicated(flat(x).t(), flat(gy), ctx.group) if torch.is_grad_enabled() else \
                product(x, gy, w)
        return None, gx, gw, None


class AddShared(Function):  # type: ignore[misc, unused-ignore]
    @staticmethod
    def forward(ctx: Any, keys: Keys, x: Tensor, b: Tensor, group: str) -> Any:
        ctx.group = group
        return below(keys, _ops.add_op, _ops.add_kernel, x, b, group)

    @staticmethod
    def backward(ctx: Any, gy: Tensor) -> Any:
        """The bias's gradient is the sum over the rows of all ranks: a product with ones."""
        rows = flat(gy)
        gb = all_reduce(rows.new_ones(1, rows.shape[0]), rows, ctx.group)[0] \
            if ctx.needs_input_grad[2] else None
        return None, gy, gb, None


# -------------------------------------------------- what the dispatcher comes to


def register(op: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def decorate(fn: Callable[..., Any]) -> Callable[..., Any]:
        _ops.library.impl(op, fn, "Autograd", with_keyset=True)
        return fn

    return decorate


@register(gather_op)
def enter_gather(keys: Keys, x: Tensor, ws: Sequence[Tensor], dim: int, keep: bool, group: str
                 ) -> List[Tensor]:
    if is_wanted(x, ws):
        return list(Gather.apply(keys, dim, keep, group, x, *ws))
    return below(keys, gather_op, _ops.gather_kernel, x, ws, dim, keep, group)


@register(backward_op)
def enter_backward(keys: Keys, gys: Sequence[Tensor], ws: Sequence[Tensor], h: Optional[Tensor],
                   extra: Optional[Tensor], wanted: Sequence[int], dim: int, group: str
                   ) -> List[Tensor]:
    if is_wanted(gys, ws, h, extra):
        return list(GatherBackward.apply(keys, wanted, dim, group, h, extra, *gys, *ws))
    return below(keys, backward_op, _ops.backward_kernel, gys, ws, h, extra, wanted, dim, group)


@register(_ops.reduce_op)
def enter_reduce(keys: Keys, x: Tensor, w: Tensor, dim: int, group: str) -> Tensor:
    if is_wanted(x, w):
        return Reduce.apply(keys, x, w, dim, group)
    return below(keys, _ops.reduce_op, _ops.reduce_kernel, x, w, dim, group)


@register(_ops.sum_op)
def enter_sum(keys: Keys, x: Tensor, w: Tensor, group: str) -> Tensor:
    if is_wanted(x, w):
        return Sum.apply(keys, x, w, group)
    return below(keys, _ops.sum_op, _ops.sum_kernel, x, w, group)


@register(_ops.local_op)
def enter_local(keys: Keys, x: Tensor, w: Tensor, group: str) -> Tensor:
    if is_wanted(x, w):
        return Local.apply(keys, x, w, group)
    return below(keys, _ops.local_op, _ops.local_kernel, x, w, group)


@register(_ops.add_op)
def enter_add(keys: Keys, x: Tensor, b: Tensor, group: str) -> Tensor:
    if is_wanted(x, b):
        return AddShared.apply(keys, x, b, group)
    return below(keys, _ops.add_op, _ops.add_kernel, x, b, group)


def lower(op: Any, kind: str, key: str) -> None:
    """Under autocast operators take what a matmul of PyTorch's would: tensors of 32 bits or
    less become of autocast's dtype."""
    own = _C.DispatchKeySet(getattr(_C.DispatchKey, key))

    def enter(*args: Any) -> Any:
        cast = autocast_mode._cast(args, kind, torch.get_autocast_dtype(kind))
        with _C._ExcludeDispatchKeyGuard(own):
            return op(*cast)

    _ops.library.impl(op, enter, key)


for lowered in (gather_op, _ops.reduce_op, _ops.sum_op, _ops.local_op, _ops.add_op):
    lower(lowered, "cpu", "AutocastCPU")
    lower(lowered, "cuda", "AutocastCUDA")


# ------------------------------------------------------- what this package calls


def gather(x: Tensor, ws: Sequence[Tensor], dim: int, keep: bool, group: AnyGroup) -> List[Tensor]:
    """With `keep` the rows of all ranks, and then their products."""
    if not is_compiling():
        made = run_plain(_ops.plan_gather, group, [x, *ws], (dim, keep))
        if made is not None:
            return made
    if is_direct(x, *ws):
        return enter_gather(None, x, ws, dim, keep, name_of(group))
    return gather_op(x, ws, dim, keep, name_of(group))


def gather_backward(gys: Sequence[Tensor], ws: Sequence[Tensor], h: Optional[Tensor],
                    extra: Optional[Tensor], wanted: Sequence[int], dim: int, group: str
                    ) -> List[Tensor]:
    """The gradient of x, and those of the weights that are `wanted`, made of all rows
    that the forward pass has kept, `h`. `extra` is the gradient of these."""
    rest: Tuple[Tensor, ...] = tuple(t for t in (h, extra) if t is not None)
    if is_direct(*gys, *ws, *rest):
        return enter_backward(None, gys, ws, h, extra, wanted, dim, group)
    return backward_op(gys, ws, h, extra, wanted, dim, group)


def reduce_scatter(x: Tensor, w: Tensor, dim: int, group: AnyGroup) -> Tensor:
    if not is_compiling():
        made = run_plain(_ops.plan_reduce, group, [x, w], (dim,))
        if made is not None:
            return made[0]
    if is_direct(x, w):
        return enter_reduce(None, x, w, dim, name_of(group))
    return _ops.reduce_op(x, w, dim, name_of(group))


def all_reduce(x: Tensor, w: Tensor, group: AnyGroup) -> Tensor:
    if not is_compiling():
        made = run_plain(_ops.plan_sum, group, [x, w], ())
        if made is not None:
            return made[0]
    if is_direct(x, w):
        return enter_sum(None, x, w, name_of(group))
    return _ops.sum_op(x, w, name_of(group))


def replicated(x: Tensor, w: Tensor, group: AnyGroup) -> Tensor:
    if is_direct(x, w):
        return enter_local(None, x, w, name_of(group))
    return _ops.local_op(x, w, name_of(group))


def add_shared(x: Tensor, b: Tensor, group: AnyGroup) -> Tensor:
    if is_direct(x, b):
        return enter_add(None, x, b, name_of(group))
    return _ops.add_op(x, b, name_of(group))

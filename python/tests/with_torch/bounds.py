"""How far a training run in f32 may be from one in double precision, which has no error
to speak of. The bound is derived as docs/numerics.md derives its own: each result of
an operator is off by a random number whose spread is u |v|, and of a product also
sqrt(K) u sum|a b|. Plain PyTorch trains in double precision with such errors put in,
several times, and the spread of what comes out, times lambda = 6, is the bound. So it
has every operator, the gradients and all steps in it.
"""
import torch
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

LAMBDA, SAMPLES, U = 6, 6, 2.0 ** -24
aten = torch.ops.aten


class Errors(TorchDispatchMode):
    """Puts errors of f32 into what operators make in double precision."""

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        out = op(*args, **(kwargs or {}))
        if op.is_view or not isinstance(out, torch.Tensor) or not out.is_floating_point():
            return out
        spread = out.abs() * U
        if op in (aten.mm.default, aten.bmm.default):
            a, b = args
            spread = spread + U * a.shape[-1] ** 0.5 * (a.abs() @ b.abs())
        return out.add_(torch.randn_like(out) * spread)


def local(parameter):
    """This rank's part of it."""
    return (parameter.to_local() if isinstance(parameter, DTensor) else parameter).detach()


def compare(test, found, train, *parts):
    """`train()` gives tensors of plain PyTorch in double precision; `found` are those to
    be judged, each a part of one of them."""
    exact = train()
    spread = [torch.zeros(()).double() for _ in exact]
    for _ in range(SAMPLES):
        with Errors():
            for i, (bad, good) in enumerate(zip(train(), exact)):
                spread[i] = spread[i] + (bad - good).square().mean() / SAMPLES
    worst = 0.0
    for mine, whole, square, part in zip(found, exact, spread, parts):
        error = (mine.double() - part(whole)).square().mean().sqrt()
        bound = LAMBDA * square.sqrt()
        worst = max(worst, float(error / bound))
        test.assertLessEqual(float(error), float(bound))
    return worst

"""Communication that goes on under products, for tensor-parallel models of PyTorch.

    import heddle.torch as ht

    y = ht.all_gather_matmul(x, w.t(), group)       # rows of all ranks times own columns
    z = ht.matmul_reduce_scatter(y, v.t(), group)   # own rows of the sum over ranks

A group is a ProcessGroup, a DeviceMesh of one dimension, the name of a process
group, a `heddle.Group`, or None for all ranks. All ranks of it make the same calls
in the same order, with the same shapes. Weights are [in, out], as torch.mm takes
them; the `.t()` of what torch.nn.Linear has costs nothing. Docs: docs/torch.md.
"""
from typing import List, Sequence, Tuple

import torch
from torch import Tensor

from .._group import Group
from ._group import AnyGroup, find, name_of
from ._fuse import backend, fuse
from ._gradients import all_reduce, gather, reduce_scatter, replicated
from ._parallel import ColwiseParallel, RowwiseParallel, parallelize_module

__all__ = [
    "ColwiseParallel", "RowwiseParallel", "all_gather_matmul", "backend", "fuse",
    "fused_all_gather_matmul", "group_of", "matmul_all_reduce", "matmul_reduce_scatter",
    "parallelize_module", "replicated_matmul",
]


def group_of(group: AnyGroup = None) -> Group:
    """The group that the operators of this module use for it. It is made the first
    time, which is collective, and closed with the process group; closing it gives
    back what it holds, and the next use makes another."""
    return group if isinstance(group, Group) else find(name_of(group))


def _dimension(x: Tensor, dim: int) -> int:
    return dim + x.dim() if dim < 0 else dim


def fused_all_gather_matmul(x: Tensor, ws: Sequence[Tensor], group: AnyGroup = None, *,
                            gather_dim: int = 0) -> Tuple[Tensor, List[Tensor]]:
    """`g`, the rows of all ranks, and `[g @ w for w in ws]`, each rank's own weights:
    torch.ops.symm_mem.fused_all_gather_matmul. `x` is [.., rows, in], and
    `gather_dim` one of its dimensions but the last. The gradient of `x` is scattered
    while those of the weights are made."""
    rows, *ys = gather(x, list(ws), _dimension(x, gather_dim), True, group)
    return rows, ys


def all_gather_matmul(x: Tensor, w: Tensor, group: AnyGroup = None, *, gather_dim: int = 0
                      ) -> Tensor:
    """`g @ w`, where `g` has the rows of all ranks and `w` is each rank's own. Where `w`
    needs a gradient, `g` is kept for it."""
    keep = torch.is_grad_enabled() and w.requires_grad
    return gather(x, [w], _dimension(x, gather_dim), keep, group)[-1]


def matmul_reduce_scatter(x: Tensor, w: Tensor, group: AnyGroup = None, *, scatter_dim: int = 0
                          ) -> Tensor:
    """This rank's rows of the sum over ranks of `x @ w`, cut along `scatter_dim`. The
    gradient of the result is gathered while that of `x` is made."""
    return reduce_scatter(x, w, _dimension(x, scatter_dim), group)


def matmul_all_reduce(x: Tensor, w: Tensor, group: AnyGroup = None) -> Tensor:
    """The sum over ranks of `x @ w`, on every rank. Every rank is taken to make the
    same of it, so that its gradient is the same on all and nothing is exchanged for
    it."""
    return all_reduce(x, w, group)


def replicated_matmul(x: Tensor, w: Tensor, group: AnyGroup = None) -> Tensor:
    """`x @ w` of an `x` that is the same on all ranks and a `w` that is each rank's own.
    Nothing is exchanged for it; the gradient of `x` is the sum over ranks, which
    matmul_all_reduce makes."""
    return replicated(x, w, group)

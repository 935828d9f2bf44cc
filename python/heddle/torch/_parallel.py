"""Linear layers of a module cut over ranks, as torch's parallelize_module does it."""
from typing import Any, Mapping, Optional

import torch
from torch import Tensor, nn

from .._error import refuse
from ._gradients import add_shared, all_reduce, gather, reduce_scatter, replicated
from ._group import AnyGroup, find, name_of, size_of


class Cut(nn.Module):  # type: ignore[misc, unused-ignore]
    """A Linear of which this rank has a part. `dim` is the dimension of activations
    over ranks, or None where all ranks have them whole."""

    def __init__(self, linear: Any, dim: Optional[int], group: str) -> None:
        super().__init__()
        self.group, self.dim = group, dim
        tp, rank = size_of(group), find(group).rank
        self.weight = self.part(linear.weight, self.along, tp, rank)
        self.bias = linear.bias if self.along or linear.bias is None else \
            self.part(linear.bias, 0, tp, rank)

    along = 0  # which dimension of the weight is cut

    @staticmethod
    def part(whole: Any, along: int, tp: int, rank: int) -> Any:
        extent = whole.shape[along]
        if extent % tp != 0:
            refuse(f"dimension {along} of a weight of {list(whole.shape)} is {extent}, which {tp} "
                   "ranks do not divide")
        return nn.Parameter(whole.detach().chunk(tp, along)[rank].clone(),
                            requires_grad=whole.requires_grad)


class ColumnLinear(Cut):
    """Its own columns of the output."""

    def forward(self, x: Tensor) -> Tensor:
        w = self.weight.t()
        if self.dim is None:
            y = replicated(x, w, self.group)
        else:
            keep = torch.is_grad_enabled() and w.requires_grad
            dim = self.dim + x.dim() if self.dim < 0 else self.dim
            y = gather(x, [w], dim, keep, self.group)[-1]
        return y if self.bias is None else y + self.bias.to(y.dtype)


class RowLinear(Cut):
    """Its own rows of the weight, so that outputs are partial sums. The bias is on all
    ranks, and added once."""

    along = 1

    def forward(self, x: Tensor) -> Tensor:
        w = self.weight.t()
        if self.dim is None:
            y = all_reduce(x, w, self.group)
            return y if self.bias is None else y + self.bias.to(y.dtype)
        dim = self.dim + x.dim() if self.dim < 0 else self.dim
        y = reduce_scatter(x, w, dim, self.group)
        if self.bias is None:
            return y
        return add_shared(y, self.bias, self.group)


class ColwiseParallel:
    """A Linear whose columns are cut over ranks. Its input is gathered along
    `gather_dim` while it is multiplied, or with None is on all ranks already."""

    def __init__(self, gather_dim: Optional[int] = None) -> None:
        self.dim = gather_dim
        self.kind = ColumnLinear


class RowwiseParallel:
    """A Linear whose rows are cut over ranks, as its input is. Its output is scattered
    along `scatter_dim` while it is made, or with None is whole on all ranks."""

    def __init__(self, scatter_dim: Optional[int] = None) -> None:
        self.dim = scatter_dim
        self.kind = RowLinear


def parallelize_module(module: Any, group: AnyGroup, plan: Mapping[str, Any]) -> Any:
    """Replaces the Linears that `plan` names, `{"up": ColwiseParallel(0)}`, by ones that
    have this rank's part of the weight. All ranks have the same module. Returns it."""
    name = name_of(group)
    for path, style in plan.items():
        linear = module.get_submodule(path)
        if not isinstance(linear, nn.Linear):
            refuse(f"'{path}' is {type(linear).__name__}, and only a Linear is cut over ranks")
        if not isinstance(style, (ColwiseParallel, RowwiseParallel)):
            refuse(f"'{path}' is given {style!r}: neither ColwiseParallel nor RowwiseParallel")
        parent, _, child = path.rpartition(".")
        setattr(module.get_submodule(parent), child, style.kind(linear, style.dim, name))
    return module

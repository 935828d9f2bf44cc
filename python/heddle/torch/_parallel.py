"""Linear layers of a module cut over ranks, as torch's parallelize_module does it."""
from typing import Any, Dict, Mapping, Optional

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard

from .._error import refuse
from ._gradients import add_shared, all_reduce, gather, reduce_scatter, replicated
from ._group import OWN, AnyGroup, find, name_of, process_group, size_of


def mesh_of(group: AnyGroup, device: torch.device) -> Optional[DeviceMesh]:
    """What DTensors of the group's ranks are on; None of ranks that PyTorch has no group of."""
    if isinstance(group, DeviceMesh):
        return group
    if name_of(group).startswith(OWN):
        return None
    return DeviceMesh.from_group(process_group(group), device.type)


def local(parameter: Any) -> Tensor:
    """This rank's part of it, with its gradient."""
    return parameter.to_local() if isinstance(parameter, DTensor) else parameter


class Cut(nn.Module):  # type: ignore[misc, unused-ignore]
    """A Linear of which this rank has a part. `dim` is the dimension of activations
    over ranks, or None where all ranks have them whole.

    Its parameters are DTensors on `mesh`, where there is one, so that whoever looks at
    all of them, as clip_grad_norm_ does, takes a part for a part, and what all ranks have
    for one."""

    def __init__(self, linear: Any, dim: Optional[int], group: str, mesh: Optional[DeviceMesh]
                 ) -> None:
        super().__init__()
        self.group, self.dim, self.mesh = group, dim, mesh
        self.weight = self.part(linear.weight, self.along)
        self.bias = None if linear.bias is None else \
            self.part(linear.bias, None if self.along else 0)

    along = 0  # which dimension of the weight is cut

    def part(self, whole: Any, along: Optional[int]) -> Any:
        """Of a parameter that is cut along that dimension, or that all ranks have."""
        mine, tp = whole.detach(), size_of(self.group)
        if along is not None:
            if whole.shape[along] % tp != 0:
                refuse(f"dimension {along} of a weight of {list(whole.shape)} is "
                       f"{whole.shape[along]}, which {tp} ranks do not divide")
            mine = mine.chunk(tp, along)[find(self.group).rank].clone()
        if self.mesh is not None:
            where = Replicate() if along is None else Shard(along)
            mine = DTensor.from_local(mine, self.mesh, [where], run_check=False)
        return nn.Parameter(mine, requires_grad=whole.requires_grad)

    def add_bias(self, y: Tensor) -> Tensor:
        return y if self.bias is None else y + local(self.bias).to(y.dtype)


class ColumnLinear(Cut):
    """Its own columns of the output."""

    def forward(self, x: Tensor) -> Tensor:
        w = local(self.weight).t()
        if self.dim is None:
            y = replicated(x, w, self.group)
        else:
            keep = torch.is_grad_enabled() and w.requires_grad
            dim = self.dim + x.dim() if self.dim < 0 else self.dim
            y = gather(x, [w], dim, keep, self.group)[-1]
        return self.add_bias(y)


class RowLinear(Cut):
    """Its own rows of the weight, so that outputs are partial sums. The bias is on all
    ranks, and added once."""

    along = 1

    def forward(self, x: Tensor) -> Tensor:
        w = local(self.weight).t()
        if self.dim is None:
            return self.add_bias(all_reduce(x, w, self.group))
        dim = self.dim + x.dim() if self.dim < 0 else self.dim
        y = reduce_scatter(x, w, dim, self.group)
        if self.bias is None:
            return y
        return add_shared(y, local(self.bias), self.group)


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
    have this rank's part of the weight. All ranks have the same module. Returns it.

    Parameters are DTensors, cut or on all ranks; of a `heddle.Group`, which PyTorch has no
    ranks of, they are this rank's part, and what looks at all of a model's parameters does
    not know of the others."""
    name = name_of(group)
    meshes: Dict[torch.device, Optional[DeviceMesh]] = {}
    for path, style in plan.items():
        linear = module.get_submodule(path)
        if not isinstance(linear, nn.Linear):
            refuse(f"'{path}' is {type(linear).__name__}, and only a Linear is cut over ranks")
        if not isinstance(style, (ColwiseParallel, RowwiseParallel)):
            refuse(f"'{path}' is given {style!r}: neither ColwiseParallel nor RowwiseParallel")
        parent, _, child = path.rpartition(".")
        device = linear.weight.device
        if device not in meshes:
            meshes[device] = mesh_of(group, device)
        setattr(module.get_submodule(parent), child,
                style.kind(linear, style.dim, name, meshes[device]))
    return module

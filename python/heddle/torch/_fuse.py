"""Finds collectives beside products in graphs of torch.compile, as DTensor and
functional collectives leave them, and puts the operators in their place."""
import collections
import operator
from typing import Any, Counter, Dict, List, Optional, Tuple

import torch

from ._ops import gather_op, reduce_op, sum_op

aten, c10d = torch.ops.aten, torch.ops._c10d_functional
VIEWS = (aten.view.default, aten.reshape.default, aten._unsafe_view.default)
SPLITS = (aten.split.Tensor, aten.split_with_sizes.default)


def shape_of(node: Any) -> Optional[List[int]]:
    """Of numbers alone, or None."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or not all(isinstance(n, int) for n in value.shape):
        return None
    return list(value.shape)


def is_call(node: Any, *targets: Any) -> bool:
    return isinstance(node, torch.fx.Node) and node.op == "call_function" and node.target in targets


def joined(cat: Any) -> Optional[Tuple[Any, int]]:
    """What a cat joins along a dimension, if that is all parts of one tensor in order:
    the tensor and the dimension along which it was split."""
    whole, at, along = None, 0, None
    for i, part in enumerate(cat.args[0]):
        if is_call(part, operator.getitem) and is_call(part.args[0], *SPLITS):
            split = part.args[0]
            source, dim = split.args[0], split.args[2] if len(split.args) > 2 else 0
            if part.args[1] != i:
                return None
        elif is_call(part, aten.slice.Tensor):
            source, dim = part.args[:2]
            if part.args[2] != at:
                return None
        else:
            return None
        shape = shape_of(part)
        if shape is None or (whole is not None and (source is not whole or dim != along)):
            return None
        whole, along, at = source, dim, at + shape[dim]
    shape = None if whole is None else shape_of(whole)
    return None if shape is None or along is None or shape[along] != at else (whole, along)


def behind_views(node: Any) -> Any:
    """The tensor of which `node` has all features, with its rows in other dimensions."""
    while is_call(node, *VIEWS):
        source, shape, other = node.args[0], shape_of(node), shape_of(node.args[0])
        if shape is None or other is None or shape[-1] != other[-1]:
            break
        node = source
    return node


def gathered(node: Any) -> Optional[Tuple[Any, int, str]]:
    """The own part, the dimension and the group's name of what was gathered."""
    dim = 0
    if is_call(node, aten.cat.default):
        found = joined(node)
        if found is None or found[1] != 0:
            return None
        dim = node.args[1] if len(node.args) > 1 else 0
        node = found[0]
    if not is_call(node, c10d.wait_tensor.default):
        return None
    node = node.args[0]
    if not is_call(node, c10d.all_gather_into_tensor.default) or not isinstance(node.args[2], str):
        return None
    part = node.args[0]
    shape = shape_of(part)
    if shape is None or not 0 <= dim % len(shape) < len(shape) - 1:
        return None
    return part, dim % len(shape), node.args[2]


def multiplied(node: Any) -> Optional[Tuple[Any, Any]]:
    """The operands of a product, which may have a bias but no factors."""
    if is_call(node, aten.mm.default):
        return node.args
    if is_call(node, aten.addmm.default) and not node.kwargs:
        return node.args[1:]
    return None


def depends(node: Any, on: Any) -> bool:
    seen, open_ = set(), [node]
    while open_:
        node = open_.pop()
        if node is on:
            return True
        if node not in seen:
            seen.add(node)
            open_.extend(node.all_input_nodes)
    return False


class Pass:
    def __init__(self, graph: Any) -> None:
        self.graph = graph
        self.counts: Counter[str] = collections.Counter()

    def call(self, target: Any, args: Tuple[Any, ...], shape: Any, like: Any) -> Any:
        node = self.graph.call_function(target, args)
        if shape is not None:
            node.meta["val"] = like.meta["val"].new_empty(shape)
        return node

    def gather(self, node: Any) -> None:
        """All products of one gathered tensor."""
        found = gathered(node)
        if found is None:
            return
        part, dim, group = found
        products = []
        for mm in self.graph.nodes:
            operands = multiplied(mm)
            if operands is not None and behind_views(operands[0]) is node and \
                    shape_of(mm) is not None and not depends(operands[1], node):
                products.append((mm, operands[1]))
        shape = shape_of(node)
        if not products or shape is None:
            return
        with self.graph.inserting_after(node):
            made = self.call(gather_op, (part, [w for _, w in products], dim, True, group),
                             None, part)
        with self.graph.inserting_after(made):
            rows = self.call(operator.getitem, (made, 0), shape, node)
        for i, (mm, _) in enumerate(products, 1):
            with self.graph.inserting_after(made):
                y = self.call(operator.getitem, (made, i), [*shape[:-1], mm.meta["val"].shape[1]],
                              mm)
            with self.graph.inserting_after(y):
                result = self.call(aten.reshape.default, (y, shape_of(mm)), shape_of(mm), mm)
            if is_call(mm, aten.addmm.default):
                with self.graph.inserting_after(mm):
                    result = self.call(aten.add.Tensor, (result, mm.args[0]), shape_of(mm), mm)
            mm.replace_all_uses_with(result)
        node.replace_all_uses_with(rows, delete_user_cb=lambda user: user is not made)
        self.counts["all_gather_matmul"] += 1

    def reduce(self, wait: Any) -> None:
        """A product whose partial sums are scattered or reduced."""
        collective, dim = wait.args[0], 0
        scatter = is_call(collective, c10d.reduce_scatter_tensor.default)
        if not scatter and not is_call(collective, c10d.all_reduce.default):
            return
        whole, kind, group = collective.args[0], collective.args[1], collective.args[-1]
        if scatter and is_call(whole, aten.cat.default):
            found = joined(whole)
            if found is None or (whole.args[1] if len(whole.args) > 1 else 0) != 0:
                return
            whole, dim = found
        shape, mm = shape_of(whole), behind_views(whole)
        if kind != "sum" or not isinstance(group, str) or not is_call(mm, aten.mm.default) or \
                shape is None or not 0 <= dim < len(shape) - 1:
            return
        if len(mm.users) != 1 or len(collective.users) != 1:
            return
        features = shape_of(mm.args[0])
        if features is None:
            return
        rows = [*shape[:-1], features[1]]
        with self.graph.inserting_before(wait):
            x = self.call(aten.reshape.default, (mm.args[0], rows), rows, mm)
            if scatter:
                y = self.call(reduce_op, (x, mm.args[1], dim, group), shape_of(wait), wait)
            else:
                y = self.call(sum_op, (x, mm.args[1], group), shape_of(wait), wait)
        wait.replace_all_uses_with(y)
        self.counts["matmul_reduce_scatter" if scatter else "matmul_all_reduce"] += 1


def fuse(module: Any) -> Dict[str, int]:
    """Changes a GraphModule of ATen operators in place, and says how many of each
    pattern it has replaced: a gathered tensor and its products, a product and the
    reduce-scatter or all-reduce of it. What has sizes that are no numbers stays."""
    work = Pass(module.graph)
    for node in list(module.graph.nodes):
        if is_call(node, c10d.wait_tensor.default):
            work.reduce(node)
    for node in list(module.graph.nodes):
        if is_call(node, c10d.wait_tensor.default, aten.cat.default):
            work.gather(node)
    if work.counts:
        torch.fx.passes.tools_common.legalize_graph(module)
        drop_dead(module.graph)
        module.recompile()
    return dict(work.counts)


def drop_dead(graph: Any) -> None:
    """Collectives that nothing uses any more go as well."""
    for node in reversed(list(graph.nodes)):
        if node.op == "call_function" and not node.users and (
                node.target in (c10d.wait_tensor.default, c10d.all_gather_into_tensor.default,
                                c10d.reduce_scatter_tensor.default, c10d.all_reduce.default)
                or not node.is_impure()):
            graph.erase_node(node)


def backend(module: Any, inputs: Any) -> Any:
    """For torch.compile(model, backend=heddle.torch.backend): traces forward and
    backward, replaces what `fuse` finds, and runs the rest as it is."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.aot_autograd import make_boxed_func

    def compile_graph(graph: Any, _: Any) -> Any:
        for name, n in fuse(graph).items():
            replaced[name] += n
        return make_boxed_func(graph.forward)

    return aot_autograd(fw_compiler=compile_graph, bw_compiler=compile_graph)(module, inputs)


replaced: Counter[str] = collections.Counter()  # by the backend, in this process

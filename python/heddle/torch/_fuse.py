"""Finds collectives beside products in graphs of torch.compile, as DTensor and
functional collectives leave them, and puts the operators in their place."""
import collections
import operator
from typing import Any, Counter, Dict, List, Optional, Sequence, Tuple

import torch

from ._group import size_of
from ._ops import backward_op, gather_op, reduce_op, sum_op

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


def summands(whole: Any, users: Sequence[Any]) -> Optional[List[Any]]:
    """The products that a tensor is the sum of, where nothing but `users` uses it, and
    nothing else the products."""
    node = behind_views(whole)
    if any(user not in users for user in whole.users) or (node is not whole and len(node.users) > 1):
        return None
    if multiplied(node) is not None:
        return None if shape_of(multiplied(node)[0]) is None else [node]  # type: ignore[index]
    if not is_call(node, aten.add.Tensor) or node.kwargs or len(node.args) != 2:
        return None
    found: List[Any] = []
    for part in node.args:
        if not isinstance(part, torch.fx.Node) or shape_of(part) != shape_of(node):
            return None
        terms = summands(part, [node])
        if terms is None:
            return None
        found += terms
    return found


def shared_bias(node: Any, group: str) -> Optional[Any]:
    """The bias of which each rank adds its share, as DTensor has it."""
    if is_call(node, aten.div.Tensor) and node.args[1] == size_of(group):
        return node.args[0]
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
        """Products whose partial sums are scattered or reduced."""
        collective, dim = wait.args[0], 0
        users = [collective]
        scatter = is_call(collective, c10d.reduce_scatter_tensor.default)
        if not scatter and not is_call(collective, c10d.all_reduce.default):
            return
        whole, kind, group = collective.args[0], collective.args[1], collective.args[-1]
        if kind != "sum" or not isinstance(group, str) or len(collective.users) != 1:
            return
        if scatter and is_call(whole, aten.cat.default):
            found = joined(whole)
            if found is None or (whole.args[1] if len(whole.args) > 1 else 0) != 0:
                return
            users = [part.args[0] if is_call(part, operator.getitem) else part
                     for part in whole.args[0]]
            whole, dim = found
        shape, terms = shape_of(whole), summands(whole, users)
        if shape is None or not 0 <= dim < len(shape) - 1 or terms is None:
            return
        if len(terms) == 1:
            self.reduce_one(wait, scatter, terms[0], shape, dim, group)
        elif scatter and all(is_call(mm, aten.mm.default) for mm in terms):
            self.reduce_several(wait, terms, shape, dim, group)

    def rows(self, mm: Any, shape: List[int]) -> Any:
        """The first operand of a product, with rows as its sum has them."""
        operand = multiplied(mm)[0]  # type: ignore[index]
        sizes = [*shape[:-1], shape_of(operand)[1]]  # type: ignore[index]
        return self.call(aten.reshape.default, (operand, sizes), sizes, mm)

    def reduce_one(self, wait: Any, scatter: bool, mm: Any, shape: List[int], dim: int, group: str
                   ) -> None:
        bias = None
        if is_call(mm, aten.addmm.default):
            bias = shared_bias(mm.args[0], group)
            if bias is None:
                return
        with self.graph.inserting_before(wait):
            operands, w = (self.rows(mm, shape),), multiplied(mm)[1]  # type: ignore[index]
            y = self.call(reduce_op, (*operands, w, dim, group), shape_of(wait), wait) if scatter \
                else self.call(sum_op, (*operands, w, group), shape_of(wait), wait)
            if bias is not None:
                y = self.call(aten.add.Tensor, (y, bias), shape_of(wait), wait)
        wait.replace_all_uses_with(y)
        self.counts["matmul_reduce_scatter" if scatter else "matmul_all_reduce"] += 1

    def reduce_several(self, wait: Any, terms: List[Any], shape: List[int], dim: int, group: str
                       ) -> None:
        """What flows back through products of one gathered tensor is the sum of theirs."""
        with self.graph.inserting_before(wait):
            gys = [self.rows(mm, shape) for mm in terms]
            ws = [self.call(aten.t.default, (mm.args[1],), shape_of(mm.args[1])[::-1],  # type: ignore
                            mm) for mm in terms]
            made = self.call(backward_op, (gys, ws, None, None, [0] * len(ws), dim, group), None,
                             wait)
            y = self.call(operator.getitem, (made, 0), shape_of(wait), wait)
        wait.replace_all_uses_with(y)
        self.counts["all_gather_matmul_backward"] += 1


def fuse(module: Any) -> Dict[str, int]:
    """Changes a GraphModule of ATen operators in place, and says how many of each
    pattern it has replaced: a gathered tensor and its products, a product and the
    reduce-scatter or all-reduce of it, a sum of products and the reduce-scatter of
    it. What has sizes that are no numbers stays."""
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

"""Functional collectives and a tensor-parallel model of DTensor, with what the backend
puts in the place of collectives, against the same without it."""
import unittest

import heddle.torch as ht
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives
from heddle.torch import _fuse
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput, RowwiseParallel,
                                               SequenceParallel, parallelize_module)

RANK, TP = dist.get_rank(), dist.get_world_size()


HIDDEN, WIDTH = 16, 4


class Block(nn.Module):
    """Attention and a gated MLP behind norms, in a residual stream."""

    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(HIDDEN) for _ in range(2))
        self.attention, self.mlp = Attention(), Mlp()

    def forward(self, x):
        x = x + self.attention(self.norms[0](x))
        return x + self.mlp(self.norms[1](x))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(HIDDEN, HIDDEN) for _ in range(4))

    def forward(self, x):
        q, k, v = (f(x).unflatten(-1, (-1, WIDTH)).transpose(1, 2) for f in (self.q, self.k, self.v))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.up = (nn.Linear(HIDDEN, 2 * HIDDEN) for _ in range(2))
        self.down = nn.Linear(2 * HIDDEN, HIDDEN)

    def forward(self, x):
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


def plan_of(sequence):
    """With sequence parallelism ranks share rows between the products, or have them all."""
    columns = {name: ColwiseParallel() for name in ("attention.q", "attention.k", "attention.v",
                                                    "mlp.gate", "mlp.up")}
    if not sequence:
        return {**columns, "attention.out": RowwiseParallel(), "mlp.down": RowwiseParallel()}
    whole = {name: PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))
             for name in ("attention", "mlp")}
    rows = {name: RowwiseParallel(output_layouts=Shard(1)) for name in ("attention.out", "mlp.down")}
    return {"norms.0": SequenceParallel(), "norms.1": SequenceParallel(), **whole, **columns, **rows}


def draw(*shape):
    return torch.randint(-1, 2, shape).float()


class Fuse(unittest.TestCase):
    def judge(self, fn, args, counts):
        """The same values and gradients, exactly."""
        torch._dynamo.reset()
        expected = fn(*args)
        gy = draw(*expected.shape)
        wanted = torch.autograd.grad(expected, args, gy)
        _fuse.replaced.clear()
        y = torch.compile(fn, backend=ht.backend, fullgraph=True)(*args)
        found = torch.autograd.grad(y, args, gy)
        self.assertEqual(dict(_fuse.replaced), counts)
        for a, b in zip((y, *found), (expected, *wanted)):
            self.assertTrue(torch.equal(a, b), (a, b))

    def test_gather(self):
        group = dist.group.WORLD
        for dim, shape in ((0, (2, 6)), (1, (3, 2, 6))):
            def fn(x, w, v, dim=dim):
                g = collectives.all_gather_tensor_autograd(x, dim, group)
                return torch.cat([g @ w, g @ v.t()], -1)
            self.judge(fn, [t.requires_grad_() for t in (draw(*shape), draw(6, 4), draw(5, 6))],
                       {"all_gather_matmul": 1, "all_gather_matmul_backward": 1})

    def test_gather_with_biases(self):
        """One of which is made of another product of the gathered rows."""
        def fn(x, w, v, b):
            g = collectives.all_gather_tensor_autograd(x, 0, dist.group.WORLD)
            y = torch.addmm(b, g, w)
            return torch.addmm(y, g, v)
        self.judge(fn, [t.requires_grad_() for t in (draw(2, 6), draw(6, 4), draw(6, 4), draw(4))],
                   {"all_gather_matmul": 1, "all_gather_matmul_backward": 1})

    def test_product_with_factors_stays(self):
        def fn(x, w, b):
            g = collectives.all_gather_tensor_autograd(x, 0, dist.group.WORLD)
            return torch.addmm(b, g, w, alpha=2)
        self.judge(fn, [t.requires_grad_() for t in (draw(2, 6), draw(6, 4), draw(4))], {})

    def test_reduce_scatter(self):
        group = dist.group.WORLD
        for dim, shape in ((0, (2 * TP, 6)), (1, (3, 2 * TP, 6))):
            def fn(x, w, dim=dim):
                return collectives.reduce_scatter_tensor_autograd(x @ w, "sum", dim, group)
            self.judge(fn, [t.requires_grad_() for t in (draw(*shape), draw(6, 4))],
                       {"matmul_reduce_scatter": 1, "all_gather_matmul": 1})

    def test_reduce_scatter_of_a_sum_of_products(self):
        """As it flows back to a tensor that was gathered for several; in the other direction
        they are products of one gather."""
        def fn(x, w, y, v):
            return collectives.reduce_scatter_tensor_autograd(x @ w + (y @ v + y @ w), "sum", 1,
                                                              dist.group.WORLD)
        self.judge(fn, [t.requires_grad_() for t in (draw(3, 2 * TP, 6), draw(6, 4),
                                                     draw(3, 2 * TP, 6), draw(6, 4))],
                   {"all_gather_matmul_backward": 1, "all_gather_matmul": 1})

    def test_sums_of_something_else_stay(self):
        """What is used elsewhere, or no product, or has factors."""
        for fn in (lambda x, w: x @ w + x, lambda x, w: torch.add(x @ w, x @ w.t(), alpha=2),
                   lambda x, w: (lambda p: p + p * 2)(x @ w)):
            def scattered(x, w, fn=fn):
                return collectives.reduce_scatter_tensor(fn(x, w), "sum", 0, dist.group.WORLD)
            torch._dynamo.reset()
            _fuse.replaced.clear()
            x, w = draw(2 * TP, 6), draw(6, 6)
            found = torch.compile(scattered, backend=ht.backend, fullgraph=True)(x, w)
            self.assertTrue(torch.equal(found, scattered(x, w)))
            self.assertEqual(dict(_fuse.replaced), {})

    def test_bias_of_which_each_rank_adds_its_share(self):
        """DTensor's; any other bias stays, with its reduction."""
        for share, count in ((TP, 1), (TP + 1, 0)):
            def fn(x, w, b, share=share):
                y = torch.addmm(b / share, x, w)
                return collectives.reduce_scatter_tensor(y, "sum", 0, dist.group.WORLD), \
                    collectives.all_reduce(torch.addmm(b / share, x, w * 2), "sum", dist.group.WORLD)
            torch._dynamo.reset()
            _fuse.replaced.clear()
            args = draw(2 * TP, 6), draw(6, 4), draw(4)
            found = torch.compile(fn, backend=ht.backend, fullgraph=True)(*args)
            for a, b in zip(found, fn(*args)):
                self.assertTrue(torch.allclose(a, b, rtol=0, atol=1e-5))
            self.assertEqual(dict(_fuse.replaced),
                             {"matmul_reduce_scatter": 1, "matmul_all_reduce": 1} if count else {})

    def test_all_reduce(self):
        def fn(x, w):
            return collectives.all_reduce(x @ w, "sum", dist.group.WORLD)
        _fuse.replaced.clear()
        x, w = draw(3, 5, 6), draw(6, 4)
        y = torch.compile(fn, backend=ht.backend, fullgraph=True)(x, w)
        self.assertEqual(_fuse.replaced["matmul_all_reduce"], 1)
        self.assertTrue(torch.equal(y, fn(x, w)))

    def test_what_is_no_pattern_stays(self):
        def fn(x, w):
            return collectives.all_reduce(x @ w, "max", dist.group.WORLD)
        _fuse.replaced.clear()
        x, w = draw(4, 6), draw(6, 4)
        self.assertTrue(torch.equal(torch.compile(fn, backend=ht.backend)(x, w), fn(x, w)))
        self.assertEqual(dict(_fuse.replaced), {})

    def test_model_of_dtensor(self):
        mesh = init_device_mesh("cpu", (TP,))
        model = nn.Sequential(nn.Linear(6, 4 * TP, bias=False), nn.ReLU(),
                              nn.Linear(4 * TP, 6, bias=False))
        with torch.no_grad():
            for p in model.parameters():
                p.copy_(draw(*p.shape))
        model = parallelize_module(model, mesh, {
            "0": ColwiseParallel(input_layouts=Shard(0)),
            "2": RowwiseParallel(output_layouts=Shard(0), use_local_output=True)})
        x = draw(2, 6)
        expected = model(x)
        expected.square().sum().backward()
        wanted = [p.grad.to_local().clone() for p in model.parameters()]
        model.zero_grad()
        _fuse.replaced.clear()
        y = torch.compile(model, backend=ht.backend)(x)
        y.square().sum().backward()
        self.assertTrue(torch.equal(y, expected))
        for p, g in zip(model.parameters(), wanted):
            self.assertTrue(torch.equal(p.grad.to_local(), g))
        self.assertGreaterEqual(_fuse.replaced["all_gather_matmul"], 2, _fuse.replaced)
        self.assertGreaterEqual(_fuse.replaced["matmul_reduce_scatter"], 1, _fuse.replaced)

    def test_block_of_dtensor(self):
        """Attention and a gated MLP as models of PyTorch's are cut over ranks: every collective
        with products beside it is found, forward and backward."""
        for sequence in (True, False):
            with self.subTest(sequence=sequence):
                self.judge_block(sequence)

    def judge_block(self, sequence):
        torch._dynamo.reset()
        model = Block()
        for p in model.parameters():
            dist.broadcast(p.data, 0)
        parallelize_module(model, init_device_mesh("cpu", (TP,)), plan_of(sequence))
        x = torch.randn(2, 4 * TP, HIDDEN)
        dist.broadcast(x, 0)
        x = x.chunk(TP, 1)[RANK].clone() if sequence else x
        found = []
        _fuse.replaced.clear()
        for run in (model, torch.compile(model, backend=ht.backend)):
            model.zero_grad()
            y = run(x)
            y.square().sum().backward()
            found.append([y.detach(), *(p.grad.to_local() if isinstance(p.grad, DTensor) else p.grad
                                        for p in model.parameters())])
        for a, b in zip(*found):
            self.assertTrue(torch.allclose(a, b, rtol=1e-3, atol=1e-4 * float(y.detach().abs().max())))
        parts = {"all_gather_matmul": 4, "matmul_reduce_scatter": 2, "all_gather_matmul_backward": 2}
        self.assertEqual(dict(_fuse.replaced), parts if sequence else {"matmul_all_reduce": 7})

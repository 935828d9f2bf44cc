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
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel, parallelize_module)

RANK, TP = dist.get_rank(), dist.get_world_size()


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
                       {"all_gather_matmul": 1})

    def test_gather_with_biases(self):
        """One of which is made of another product of the gathered rows."""
        def fn(x, w, v, b):
            g = collectives.all_gather_tensor_autograd(x, 0, dist.group.WORLD)
            y = torch.addmm(b, g, w)
            return torch.addmm(y, g, v)
        self.judge(fn, [t.requires_grad_() for t in (draw(2, 6), draw(6, 4), draw(6, 4), draw(4))],
                   {"all_gather_matmul": 1})

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

"""Gradients, and gradients of gradients, as finite differences in float64 have them.

What is differenced must be one function: here each rank has the tensors of all, takes
its own part, calls the operator and has what all of them made. So all ranks change
one number at a time together, and get one Jacobian.
"""
import unittest

import heddle.torch as ht
import torch
import torch.distributed as dist
from heddle.torch import _gradients
from torch.autograd import Function, gradcheck, gradgradcheck
from torch.utils.checkpoint import checkpoint

RANK, TP = dist.get_rank(), dist.get_world_size()
K, N, M = 2, 3, 1


class Enter(Function):
    """This rank's part of [TP, ..], which all ranks have alike."""

    @staticmethod
    def forward(ctx, everything):
        return everything[RANK].clone()

    @staticmethod
    def backward(ctx, gradient):
        return Leave.apply(gradient)


class Leave(Function):
    """The parts of all ranks."""

    @staticmethod
    def forward(ctx, part):
        found = [torch.empty_like(part, memory_format=torch.contiguous_format) for _ in range(TP)]
        dist.all_gather(found, part.contiguous())
        return torch.stack(found)

    @staticmethod
    def backward(ctx, gradient):
        return Enter.apply(gradient)


enter, leave = Enter.apply, Leave.apply


def draw(*shape):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


class Gradients(unittest.TestCase):
    def judge(self, fn, *inputs):
        self.assertTrue(gradcheck(fn, inputs))
        self.assertTrue(gradgradcheck(fn, inputs))

    def test_all_gather_matmul(self):
        for dim, shape in ((0, (1, K)), (1, (2, 1, K))):
            for turned in (False, True):
                def fn(x, w, dim=dim, turned=turned):
                    own = enter(w).t() if turned else enter(w)
                    return leave(ht.all_gather_matmul(enter(x), own, gather_dim=dim))
                with self.subTest(dim=dim, turned=turned):
                    self.judge(fn, draw(TP, *shape), draw(TP, N, K) if turned else draw(TP, K, N))

    def test_all_gather_matmul_of_one_that_has_a_gradient(self):
        x, w = draw(TP, 1, K), draw(TP, K, N)
        self.judge(lambda x: leave(ht.all_gather_matmul(enter(x), w[RANK].detach())), x)
        self.judge(lambda w: leave(ht.all_gather_matmul(x[RANK].detach(), enter(w))), w)

    def test_several_weights_of_one_gather(self):
        """And the gathered rows themselves, of which a product is used as well."""
        def fn(x, w, v):
            rows, (y, z) = ht.fused_all_gather_matmul(enter(x), [enter(w), enter(v).t()])
            return leave(y), leave(z * rows.square())
        self.judge(fn, draw(TP, 1, K), draw(TP, K, N), draw(TP, K, K))

    def test_matmul_reduce_scatter(self):
        for dim, shape in ((0, (TP, K)), (1, (2, TP, K))):
            with self.subTest(dim=dim):
                self.judge(lambda x, w: leave(ht.matmul_reduce_scatter(enter(x), enter(w).t(),
                                                                       scatter_dim=dim)),
                           draw(TP, *shape), draw(TP, N, K))

    def test_matmul_all_reduce(self):
        """Which all ranks have, and of rows that they do not divide."""
        for rows in (TP, TP + 1):
            with self.subTest(rows=rows):
                self.judge(lambda x, w: ht.matmul_all_reduce(enter(x), enter(w)),
                           draw(TP, rows, K), draw(TP, K, N))

    def test_replicated_matmul(self):
        self.judge(lambda x, w: leave(ht.replicated_matmul(x, enter(w))), draw(2, K), draw(TP, K, N))

    def test_bias_that_is_shared(self):
        self.judge(lambda x, b: leave(_gradients.add_shared(enter(x), b, None).square()),
                   draw(TP, 2, K), draw(K))

    def test_by_the_dispatcher(self):
        """As graphs and modes call them."""
        ops, name = torch.ops.heddle, dist.group.WORLD.group_name
        self.judge(lambda x, w: leave(ops.all_gather_matmul(enter(x), [enter(w)], 0, True, name)[1]),
                   draw(TP, 1, K), draw(TP, K, N))
        self.judge(lambda x, w: leave(ops.matmul_reduce_scatter(enter(x), enter(w), 0, name)),
                   draw(TP, TP, K), draw(TP, K, N))

    def test_third(self):
        """Of what is linear in x and in w: exactly, of small integers."""
        def fn(x, w):
            return leave(ht.all_gather_matmul(enter(x), enter(w)))
        x, w = (torch.randint(-2, 3, s).double().requires_grad_() for s in ((TP, 2, K), (TP, K, N)))
        found = []
        for y in (fn(x, w), x.flatten(0, 1) @ w):
            for _ in range(3):
                g, h = torch.autograd.grad(y.pow(3).sum(), (x, w), create_graph=True)
                y = torch.cat([g.flatten(), h.flatten()]) % 5
            found.append(y.detach())
        self.assertTrue(torch.equal(*found))

    def test_checkpoints_make_them_anew(self):
        def fn(x, w, v):
            return ht.matmul_reduce_scatter(ht.all_gather_matmul(x, w).relu(), v)
        inputs = [torch.randn(*shape, requires_grad=True) for shape in ((2, K), (K, N), (N, K))]
        found = []
        for run in (lambda: fn(*inputs), lambda: checkpoint(fn, *inputs, use_reentrant=False)):
            found.append(torch.autograd.grad(run().square().sum(), inputs))
        for a, b in zip(*found):
            self.assertTrue(torch.equal(a, b))

    def test_forward_mode_is_refused(self):
        x, w = torch.randn(2, TP, K)
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(x, x)
            for call in (ht.matmul_all_reduce, torch.ops.heddle.matmul_all_reduce.default):
                with self.assertRaisesRegex(NotImplementedError, "forward mode AD"):
                    call(dual, w.t(), dist.group.WORLD.group_name)

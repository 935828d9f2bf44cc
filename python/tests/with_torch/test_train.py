"""Tensor-parallel models train 20 steps as plain PyTorch does that has all of the model:
two MLP layers, and attention with an MLP behind it, with sequence parallelism and
without. bounds.py says how far they may be off."""
import copy
import unittest

import heddle
import heddle.torch as ht
import torch
import torch.distributed as dist
import torch.nn.functional as F
from bounds import compare, local
from torch import nn
from torch.distributed.tensor import DTensor

RANK, TP = dist.get_rank(), dist.get_world_size()
BATCH, ROWS, HIDDEN, HEADS, WIDTH, STEPS = 2, 2 * TP, 16, 4, 4, 20


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(HIDDEN, 8 * TP)
        self.down = nn.Linear(8 * TP, HIDDEN)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(x)))


class Attention(nn.Module):
    """Of the heads that it has weights for. Rows are gathered once for three products."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(HIDDEN, HEADS * WIDTH, bias=False) for _ in range(3))
        self.out = nn.Linear(HEADS * WIDTH, HIDDEN, bias=False)
        self.dim = None  # that ranks share, of a cut one

    def cut(self, dim):
        self.dim = dim
        for name, along in (("q", 0), ("k", 0), ("v", 0), ("out", 1)):
            linear = getattr(self, name)
            linear.weight = nn.Parameter(linear.weight.detach().chunk(TP, along)[RANK].clone())
        return self

    def forward(self, x):
        weights = [linear.weight.t() for linear in (self.q, self.k, self.v)]
        if self.dim is None:
            projected = [x @ w for w in weights]
        else:
            _, projected = ht.fused_all_gather_matmul(x, weights, gather_dim=self.dim)
        q, k, v = (p.unflatten(-1, (-1, WIDTH)).transpose(-2, -3) for p in projected)
        if self.dim is None:
            mixed = torch.softmax(q @ k.transpose(-1, -2) / WIDTH ** 0.5, -1) @ v
        else:
            mixed = F.scaled_dot_product_attention(q, k, v)
        mixed = mixed.transpose(-2, -3).flatten(-2)
        if self.dim is None:
            return x + mixed @ self.out.weight.t()
        return x + ht.matmul_reduce_scatter(mixed, self.out.weight.t(), scatter_dim=self.dim)


def train(model, xs, targets):
    """The outputs of the last step and all parameters after it."""
    model = copy.deepcopy(model)
    sgd = torch.optim.SGD(model.parameters(), lr=0.003)
    for x, target in zip(xs, targets):
        sgd.zero_grad()
        y = model(x)
        (y - target).square().sum().backward()
        sgd.step()
    return [y.detach(), *(local(p) for p in model.parameters())]


class Train(unittest.TestCase):
    def judge(self, whole, parallel, dim):
        """`parallel` has this rank's part of `whole`; it sees rows of its own along `dim`,
        or all of them."""
        xs, targets = torch.randn(2, STEPS, BATCH, ROWS, HIDDEN)
        rows = (lambda t: t) if dim is None else lambda t: t.chunk(TP, dim)[RANK]
        found = train(parallel, map(rows, xs), map(rows, targets))
        parts = [rows]
        for whole_p, p in zip(whole.parameters(), map(local, parallel.parameters())):
            cut = [d for d in range(p.dim()) if p.shape[d] != whole_p.shape[d]]
            parts.append((lambda t, d=cut[0]: t.chunk(TP, d)[RANK]) if cut else lambda t: t)
        doubled = copy.deepcopy(whole).double()
        # The same random errors on all ranks.
        worst = compare(self, found, lambda: train(doubled, xs.double(), targets.double()), *parts)
        before = [p.detach() for p in whole.parameters()]
        moved = [float((a - part(b)).abs().max())
                 for a, b, part in zip(found[1:], before, parts[1:])]
        self.assertGreater(min(moved), 1e-3)  # it has learnt something
        if RANK == 0:
            print(f"largest error {worst:.3f} of its bound", flush=True)

    def test_mlp(self):
        for dim in (1, None):
            with self.subTest(dim=dim):
                whole = nn.Sequential(Mlp(), Mlp())
                plan = {f"{i}.{name}": style(dim) for i in range(2) for name, style in
                        (("up", ht.ColwiseParallel), ("down", ht.RowwiseParallel))}
                self.judge(whole, ht.parallelize_module(copy.deepcopy(whole), None, plan), dim)

    def test_attention(self):
        whole = nn.Sequential(Attention(), Mlp())
        parallel = copy.deepcopy(whole)
        parallel[0].cut(1)
        ht.parallelize_module(parallel, None, {"1.up": ht.ColwiseParallel(1),
                                               "1.down": ht.RowwiseParallel(1)})
        self.judge(whole, parallel, 1)

    def test_bound_finds_what_is_wrong(self):
        """A rank whose weights are not updated with the others' partial sums."""
        whole = Mlp()
        parallel = ht.parallelize_module(copy.deepcopy(whole), None, {
            "up": ht.ColwiseParallel(1), "down": ht.RowwiseParallel(1)})
        with torch.no_grad():
            local(parallel.up.weight)[0, 0] += 1e-4
        with self.assertRaises(AssertionError):
            self.judge(whole, parallel, 1)

    def test_clipping_by_the_norm_of_all(self):
        """As one that has all of the model clips, so that what all ranks have stays alike."""
        whole = nn.Sequential(nn.Linear(HIDDEN, 8 * TP), nn.GELU(),
                              nn.Linear(8 * TP, HIDDEN)).double()
        x, target = torch.randn(2, ROWS, HIDDEN, dtype=torch.float64)
        for dim in (0, None):
            rows = (lambda t: t) if dim is None else lambda t: t.chunk(TP, dim)[RANK]
            parallel = ht.parallelize_module(copy.deepcopy(whole), None, {
                "0": ht.ColwiseParallel(dim), "2": ht.RowwiseParallel(dim)})
            norms = []
            for model, part in ((whole, lambda t: t), (parallel, rows)):
                model.zero_grad()
                (model(part(x)) - part(target)).square().sum().backward()
                norms.append(nn.utils.clip_grad_norm_(model.parameters(), 1e-2))
            # Sums of fewer than 2^12 terms, in another order: 2^-53 each, and room.
            error = abs(float(norms[1].full_tensor()) - float(norms[0]))
            self.assertLess(error, 2.0 ** -38 * float(norms[0]))
            for name, p in parallel.named_parameters():
                self.assertIsInstance(p, DTensor, name)
                self.assertEqual(p.shape, whole.get_parameter(name).shape)
                mine = p.grad.to_local()
                if not p.placements[0].is_shard():
                    others = [torch.empty_like(mine) for _ in range(TP)]
                    dist.all_gather(others, mine)
                    for other in others:
                        self.assertTrue(torch.equal(other, mine), name)

    def test_layers_of_a_group_that_pytorch_has_not(self):
        with heddle.Group.from_torch() as group:
            layer = ht.parallelize_module(nn.ModuleList([nn.Linear(HIDDEN, TP)]), group,
                                          {"0": ht.ColwiseParallel()})[0]
            self.assertIs(type(layer.weight), nn.Parameter)
            self.assertEqual(layer(torch.randn(ROWS, HIDDEN)).shape, (ROWS, 1))

    def test_what_is_no_linear(self):
        for path, style, words in (("", ht.ColwiseParallel(), "is Mlp, and only a Linear"),
                                   ("up", 3, "is given 3: neither")):
            with self.assertRaisesRegex(heddle.ArgumentError, words):
                ht.parallelize_module(Mlp(), None, {path: style})
        with self.assertRaisesRegex(heddle.ArgumentError, f"is {TP + 1}, which {TP} ranks do not"):
            ht.parallelize_module(nn.ModuleList([nn.Linear(3, TP + 1)]), None,
                                  {"0": ht.ColwiseParallel()})

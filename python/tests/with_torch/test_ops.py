"""The operators and their gradients, exactly: small integers, whose products and sums
every dtype here holds."""
import datetime
import gc
import threading
import types
import unittest
import weakref
from unittest import mock

import heddle
import heddle.torch as ht
import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

RANK, TP = dist.get_rank(), dist.get_world_size()
K, N, M = 6, 5, 3


def draw(dtype, *shape):
    """The same on all ranks."""
    return torch.randint(-1, 2, shape).to(dtype)


def own(weights, turned):
    """This rank's weight, as a leaf, and as [in, out]; stored [out, in] if `turned`."""
    leaf = weights[RANK].t().contiguous() if turned else weights[RANK].clone()
    leaf.requires_grad_()
    return leaf, leaf.t() if turned else leaf


def mine(whole, dim):
    return whole.chunk(TP, dim)[RANK].clone()


class Same(unittest.TestCase):
    def same(self, mine, expected):
        self.assertEqual(mine.shape, expected.shape)
        self.assertTrue(torch.equal(mine, expected), (mine, expected))

    def each(self):
        """Shapes of x, which dimension ranks share, and how weights are stored: all of
        it for one dtype, and one for each other."""
        shapes = (((2 * TP, K), 0), ((3, 2 * TP, K), 1), ((TP, 3, K), 0), ((2, 3, TP, 2, K), -3))
        cases = [(torch.float32, shape, dim, turned) for shape, dim in shapes
                 for turned in (False, True)]
        for dtype in (torch.float64, torch.bfloat16, torch.float16):
            i = int(torch.randint(0, len(cases), ()))
            cases.append((dtype, *cases[i % 8][1:]))
        for dtype, shape, dim, turned in cases:
            with self.subTest(dtype=dtype, shape=shape, dim=dim, turned=turned):
                yield dtype, shape, dim, turned


class Operators(Same):
    def test_all_gather_matmul(self):
        for dtype, shape, dim, turned in self.each():
            x, w = draw(dtype, *shape), draw(dtype, TP, K, N)
            gy = draw(dtype, TP, *shape[:-1], N)
            leaf, weight = own(w, turned)
            part = mine(x, dim).requires_grad_()
            y = ht.all_gather_matmul(part, weight, gather_dim=dim)
            self.same(y, x @ w[RANK])
            y.backward(gy[RANK])
            whole, all_w = x.clone().requires_grad_(), w.clone().requires_grad_()
            torch.autograd.backward([whole @ v for v in all_w], list(gy))
            self.same(part.grad, mine(whole.grad, dim))
            self.same(leaf.grad.t() if turned else leaf.grad, all_w.grad[RANK])
            with torch.no_grad():
                self.same(ht.all_gather_matmul(part, weight, gather_dim=dim), x @ w[RANK])

    def test_several_weights_of_one_gather(self):
        """Of which some need no gradient, or get none, and all rows have one."""
        for dtype, shape, dim, turned in self.each():
            x, ws = draw(dtype, *shape), [draw(dtype, TP, K, n) for n in (N, M, N)]
            ge, gys = draw(dtype, TP, *shape), [draw(dtype, TP, *shape[:-1], n) for n in (N, M)]
            leaves, weights = zip(*(own(w, turned) for w in ws))
            leaves[1].requires_grad_(False)
            part = mine(x, dim).requires_grad_()
            rows, ys = ht.fused_all_gather_matmul(part, weights, gather_dim=dim)
            self.same(rows, x)
            for y, w in zip(ys, ws):
                self.same(y, x @ w[RANK])
            torch.autograd.backward([rows, ys[0], ys[1]], [ge[RANK], gys[0][RANK], gys[1][RANK]])
            whole, first = x.clone().requires_grad_(), ws[0].clone().requires_grad_()
            torch.autograd.backward([*(whole @ v for v in first), *(whole @ v for v in ws[1]),
                                     *(whole * 1 for _ in range(TP))], [*gys[0], *gys[1], *ge])
            self.same(part.grad, mine(whole.grad, dim))
            self.same(leaves[0].grad.t() if turned else leaves[0].grad, first.grad[RANK])
            self.assertIsNone(leaves[1].grad)
            self.assertEqual(leaves[2].grad.count_nonzero(), 0)

    def test_matmul_reduce_scatter(self):
        for dtype, shape, dim, turned in self.each():
            x, w, gy = draw(dtype, TP, *shape), draw(dtype, TP, K, N), draw(dtype, *shape[:-1], N)
            leaf, weight = own(w, turned)
            part = x[RANK].clone().requires_grad_()
            y = ht.matmul_reduce_scatter(part, weight, scatter_dim=dim)
            all_x, all_w = x.clone().requires_grad_(), w.clone().requires_grad_()
            whole = sum(a @ b for a, b in zip(all_x, all_w))
            self.same(y, mine(whole, dim))
            y.backward(mine(gy, dim))
            whole.backward(gy)
            self.same(part.grad, all_x.grad[RANK])
            self.same(leaf.grad.t() if turned else leaf.grad, all_w.grad[RANK])

    def test_matmul_all_reduce(self):
        """Of rows that ranks divide, and one more."""
        for dtype, shape, _, turned in self.each():
            for shape in (shape, (2 * TP + 1, K)):
                x, w, gy = draw(dtype, TP, *shape), draw(dtype, TP, K, N), draw(dtype, *shape[:-1], N)
                leaf, weight = own(w, turned)
                part = x[RANK].clone().requires_grad_()
                y = ht.matmul_all_reduce(part, weight)
                all_x, all_w = x.clone().requires_grad_(), w.clone().requires_grad_()
                whole = sum(a @ b for a, b in zip(all_x, all_w))
                self.same(y, whole)
                y.backward(gy)
                whole.backward(gy)
                self.same(part.grad, all_x.grad[RANK])
                self.same(leaf.grad.t() if turned else leaf.grad, all_w.grad[RANK])

    def test_replicated_matmul(self):
        for dtype, shape, _, turned in self.each():
            x, w, gy = draw(dtype, *shape), draw(dtype, TP, K, N), draw(dtype, TP, *shape[:-1], N)
            leaf, weight = own(w, turned)
            part = x.clone().requires_grad_()
            ht.replicated_matmul(part, weight).backward(gy[RANK])
            whole, all_w = x.clone().requires_grad_(), w.clone().requires_grad_()
            torch.autograd.backward([whole @ v for v in all_w], list(gy))
            self.same(part.grad, whole.grad)
            self.same(leaf.grad.t() if turned else leaf.grad, all_w.grad[RANK])

    def test_gradients_and_inputs_that_do_not_lie_dense(self):
        x, w = draw(torch.float32, 2 * TP, 2 * K), draw(torch.float32, TP, K, N)
        leaf, weight = own(w, False)
        part = mine(x, 0).requires_grad_()
        ht.all_gather_matmul(part[:, ::2], weight).sum().backward()
        all_w = w.clone().requires_grad_()
        whole = x.clone().requires_grad_()
        sum((whole[:, ::2] @ v).sum() for v in all_w).backward()
        self.same(part.grad, mine(whole.grad, 0))
        self.same(leaf.grad, all_w.grad[RANK])

    def test_traces_agree_with_runs(self):
        """Fake kernels and gradients, as torch.library judges them."""
        for dtype, turned in ((torch.float32, False), (torch.float64, True)):
            _, w = own(draw(dtype, TP, K, N), turned)
            x = draw(dtype, TP, 2, K)
            for op, args in ((torch.ops.heddle.all_gather_matmul, (x, [w, w], 0, True, "0")),
                             (torch.ops.heddle.all_gather_matmul, (x, [w.detach()], 1, False, "0")),
                             (torch.ops.heddle.matmul_reduce_scatter, (x, w, 0, "0")),
                             (torch.ops.heddle.matmul_all_reduce, (x, w, "0"))):
                name = dist.group.WORLD.group_name
                args = (*args[:-1], name)
                torch.library.opcheck(op.default, args, test_utils=(
                    "test_schema", "test_autograd_registration", "test_faketensor"))


    def test_reductions_at_once(self):
        """What is for one kernel on CUDA: proven for it, and right by the cpu's own means."""
        from heddle.torch import _calls, _programs
        for turned, scatter in ((False, True), (True, False), (True, True)):
            sizes = _programs.Rows(1, TP, 3), _programs.Weight(K, N, turned), "f32", scatter
            program = heddle.Program(_programs.reduce_at_once(*sizes))
            self.assertEqual(str(_calls.lower(program, "bulk", "sm")).count("matmul %"), 1)
            x, w = draw(torch.float32, TP, 1, TP, 3, K), draw(torch.float32, TP, K, N)
            mine_w = (w.mT if turned else w)[RANK:RANK + 1].contiguous()
            with heddle.compile(program, ht.group_of()) as reduce:
                y = reduce(x[RANK].clone(), mine_w)
            whole = sum(x[r, 0] @ w[r] for r in range(TP))
            self.same(y, whole[RANK:RANK + 1] if scatter else whole)


class Seen(TorchDispatchMode):
    """The names of operators, in order."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        self.names.append(op._schema.name)
        return op(*args, **(kwargs or {}))


class Ways(Same):
    """Functions call kernels without PyTorch's dispatcher only where it makes no difference."""

    def setUp(self):
        self.x, self.w = draw(torch.float32, TP, K), draw(torch.float32, K, N)

    def test_modes_and_profilers_see_operators(self):
        for x in (self.x, self.x.clone().requires_grad_()):
            y = ht.matmul_all_reduce(x, self.w)
            with Seen() as seen:
                self.same(ht.matmul_all_reduce(x, self.w), y)
            self.assertEqual(seen.names.count("heddle::matmul_all_reduce"), 1)
            with torch.autograd.profiler.profile() as profile:
                self.same(ht.matmul_all_reduce(x, self.w), y)
            self.assertIn("heddle::matmul_all_reduce", {e.name for e in profile.function_events})

    def test_tensors_that_are_not_what_lies_in_memory(self):
        self.same(ht.matmul_all_reduce(self.x._neg_view(), self.w), -TP * (self.x @ self.w))
        self.same(ht.matmul_all_reduce(torch._efficientzerotensor(TP, K), self.w), torch.zeros(TP, N))
        found = ht.matmul_all_reduce(self.x.to("meta"), self.w.to("meta"))
        self.assertEqual((found.device.type, found.shape), ("meta", (TP, N)))

    def test_transforms(self):
        xs = draw(torch.float32, 3, TP, K)
        self.same(torch.vmap(lambda x: ht.matmul_all_reduce(x, self.w))(xs), TP * (xs @ self.w))
        self.same(torch.vmap(ht.matmul_reduce_scatter)(xs, torch.stack([self.w] * 3)),
                  torch.stack([mine(TP * (x @ self.w), 0) for x in xs]))
        with self.assertRaisesRegex(RuntimeError, "Batching rule not implemented"):
            torch.vmap(lambda x: ht.all_gather_matmul(x, self.w))(xs)
        leaf = self.x.clone().requires_grad_()
        for call in (ht.matmul_reduce_scatter, ht.all_gather_matmul):
            with self.assertRaisesRegex(RuntimeError, "Batching rule not implemented"):
                y = call(leaf, self.w)
                torch.autograd.grad(y, leaf, torch.ones(2, *y.shape), is_grads_batched=True)
        with self.assertRaisesRegex(RuntimeError, "setup_context"):
            torch.func.grad(lambda x: ht.matmul_all_reduce(x, self.w).sum())(self.x)

    def test_autocast(self):
        """Operators take what a matmul would: and float64, as it is."""
        for dtype, taken in ((torch.float32, torch.bfloat16), (torch.float64, torch.float64)):
            for fn in (ht.all_gather_matmul, ht.matmul_reduce_scatter, ht.matmul_all_reduce,
                       ht.replicated_matmul):
                x, w = (t.to(dtype).requires_grad_() for t in (self.x, self.w))
                with self.subTest(fn.__name__, dtype=dtype):
                    with torch.autocast("cpu", torch.bfloat16):
                        y = fn(x, w)
                    self.same(y, fn(x.to(taken), w.to(taken)))
                    self.assertEqual(y.dtype, taken)
                    found = torch.autograd.grad(y.sum(), (x, w))
                    wanted = torch.autograd.grad(fn(x, w).sum(), (x, w))
                    for gradient, same in zip(found, wanted):
                        self.assertEqual(gradient.dtype, dtype)
                        self.same(gradient, same)

    def test_layers_under_autocast(self):
        for dim in (0, None):
            module = torch.nn.Sequential(torch.nn.Linear(K, N * TP), torch.nn.Linear(N * TP, M))
            ht.parallelize_module(module, None, {"0": ht.ColwiseParallel(dim), "1": ht.RowwiseParallel(dim)})
            with torch.autocast("cpu", torch.bfloat16):
                y = module(self.x)
            self.assertEqual(y.dtype, torch.bfloat16)
            y.sum().backward()
            for one in module.parameters():
                self.assertEqual((one.grad.dtype, one.grad.shape), (one.dtype, one.shape))

    def test_what_no_gradient_needs_is_not_kept(self):
        for fn in (ht.all_gather_matmul, ht.matmul_reduce_scatter, ht.matmul_all_reduce,
                   ht.replicated_matmul, lambda x, w: ht.fused_all_gather_matmul(x, [w])):
            x = self.x.clone().requires_grad_() * 1
            made = fn(x, self.w)
            kept = [weakref.ref(x)]
            if isinstance(made, tuple):
                rows, made = made
                kept.append(weakref.ref(rows))
                del rows
            del x
            self.assertEqual([one() for one in kept], [None] * len(kept))
            self.assertTrue(made[0].requires_grad)

    def test_inference(self):
        with torch.inference_mode():
            self.same(ht.matmul_all_reduce(self.x, self.w), TP * (self.x @ self.w))


class Groups(Same):
    def test_process_groups_meshes_and_groups_of_heddle(self):
        x, w = draw(torch.float32, 2 * TP, K), draw(torch.float32, K, N)
        part = mine(x, 0)
        with heddle.Group.from_torch() as group:
            self.assertEqual((group.rank, group.size), (RANK, TP))
            for which in (None, group, dist.group.WORLD, dist.group.WORLD.group_name,
                          init_device_mesh("cpu", (TP,))):
                self.same(ht.all_gather_matmul(part, w, which), x @ w)

    def test_part_of_the_ranks(self):
        half = TP // 2
        mesh = init_device_mesh("cpu", (half, 2), mesh_dim_names=("a", "b"))
        x, w = draw(torch.float32, TP, K), draw(torch.float32, K, N)
        for axis, ranks in (("a", range(RANK % 2, TP, 2)), ("b", (RANK // 2 * 2, RANK // 2 * 2 + 1))):
            y = ht.all_gather_matmul(x[RANK:RANK + 1], w, mesh[axis])
            self.same(y, x[list(ranks)] @ w)

    def test_group_ends_with_the_process_group(self):
        pg = dist.new_group(list(range(TP)))
        x, w = draw(torch.float32, TP, K), draw(torch.float32, K, N)
        self.same(ht.all_gather_matmul(x[RANK:RANK + 1], w, pg), x @ w)
        group, other = ht.group_of(pg), heddle.Group.from_torch(pg)
        self.assertIs(ht.group_of(pg), group)
        dist.destroy_process_group(pg)
        del pg
        self.assertEqual((repr(group), repr(other)), ("<heddle.Group closed>",) * 2)
        gone = weakref.ref(group)
        del group
        gc.collect()
        self.assertIsNone(gone())

    def test_group_that_was_closed_is_made_anew(self):
        x, w = draw(torch.float32, TP, K), draw(torch.float32, K, N)
        for _ in range(3):
            self.same(ht.all_gather_matmul(x[RANK:RANK + 1], w), x @ w)
            ht.group_of().close()

    def test_what_is_kept_is_bounded(self):
        from heddle.torch import _calls
        for n in range(1, _calls.KEPT + 6):
            ht.matmul_all_reduce(draw(torch.float32, 1, 1), draw(torch.float32, 1, n))
        self.assertEqual(len(_calls.table_of(ht.group_of()).kept), _calls.KEPT)
        ht.group_of().close()

    def test_calls_like_those_before_are_planned(self):
        """Of two shapes by turns, and not of other tensors: their plans are theirs alone."""
        from heddle.torch import _calls
        ht.group_of().close()  # and one with room for more programs
        anew = mock.Mock(side_effect=_calls.run_anew)
        ws = [draw(torch.float32, K, n) for n in (N, M)]
        others = [draw(torch.float64, K, N), draw(torch.float32, N, K).t(), draw(torch.float32, K, 2 * N)[:, ::2]]
        with mock.patch.object(_calls, "run_anew", anew):
            for _ in range(3):
                for w in ws:
                    x = draw(torch.float32, 2 * TP, K)
                    self.same(ht.matmul_reduce_scatter(x, w), mine(TP * (x @ w), 0))
            self.assertEqual(anew.call_count, 2)
            for w in others:
                x = draw(w.dtype, 2 * TP, K)
                self.same(ht.matmul_reduce_scatter(x, w), mine(TP * (x @ w), 0))
            self.assertEqual(anew.call_count, 5)
            ht.group_of().close()
            x = draw(torch.float32, 2 * TP, K)
            self.same(ht.matmul_reduce_scatter(x, ws[0]), mine(TP * (x @ ws[0]), 0))
            self.assertEqual(anew.call_count, 6)

    def test_calls_of_many_tensors(self):
        x, ws = draw(torch.float32, TP, K), [draw(torch.float32, K, 1) for _ in range(70)]
        for _ in range(2):
            for y, w in zip(ht.fused_all_gather_matmul(x[RANK:RANK + 1].clone(), ws)[1], ws):
                self.same(y, x @ w)

    def test_callable_on_tensors_like_those_before(self):
        text = """heddle 2 tensor program twice mesh tp=%d
            in %%x : f32[%d@tp, 3, 2] out %%y : f32[%d@tp, 3, 2] { %%y = add %%x, %%x }""" % (TP, TP, TP)
        with heddle.Group.from_torch() as group:
            twice = heddle.compile(heddle.Program(text), group)
            issue = mock.Mock(side_effect=twice._issue_as_planned)
            with mock.patch.object(twice, "_issue_as_planned", issue):
                for _ in range(3):
                    x, out = torch.randn(1, 3, 2), torch.full((1, 3, 2), torch.nan)
                    self.same(twice(x), 2 * x)
                    self.assertIs(twice(x, out=out), out)
                    self.same(out, 2 * x)
                self.assertEqual(issue.call_count, 5)
                gap = torch.randn(1, 3, 4)[:, :, ::2]
                self.same(twice(gap), 2 * gap)
                self.same(twice(torch.randn(1, 2, 3).mT * 0 + gap), 2 * gap)
                with self.assertRaisesRegex(heddle.ArgumentError, "of 64 bits"):
                    twice(torch.zeros(1, 3, 2, dtype=torch.float64))
                with self.assertRaisesRegex(heddle.ArgumentError, "grad"):
                    twice(torch.zeros(1, 3, 2, requires_grad=True), out=out)
            twice.close()
            with self.assertRaisesRegex(heddle.ArgumentError, "twice is closed"):
                twice(x, out=out)

    def test_a_second_thread_is_refused(self):
        group, refused = ht.group_of(), []

        def call():
            try:
                ht.matmul_all_reduce(torch.ones(1, K), torch.ones(K, N))
            except heddle.ArgumentError as error:
                refused.append(str(error))

        ht.matmul_all_reduce(torch.ones(1, K), torch.ones(K, N))
        for _ in range(2):
            with group._use:
                thread = threading.Thread(target=call)
                thread.start()
                thread.join()
        self.assertEqual(refused, ["another thread is using this group, which one does at a time"] * 2)
        call()  # and this one may again
        self.assertEqual(len(refused), 2)

    def test_what_a_graph_has_is_kept(self):
        """A run in a capture: its executable must outlive the graph."""
        from heddle.torch import _calls
        table, closed = _calls.Table(), []

        def executable(name):
            return types.SimpleNamespace(name=name, close=lambda: closed.append(name))

        def add(i):
            table.add(i, _calls.Made(executable((i, "plain")), executable((i, "captured"))))

        for i in range(3):
            add(i)
        self.assertEqual(table.find(1, True).name, (1, "captured"))
        self.assertEqual(table.find(1, False).name, (1, "plain"))
        for i in range(3, _calls.KEPT + 6):
            add(i)
        dropped = [(i, kind) for i in (0, 2, 1, 3, 4, 5) for kind in ("plain", "captured")]
        dropped.remove((1, "captured"))
        self.assertEqual(closed, dropped)
        self.assertEqual((table.find(2, True), table.find(1, False)), (None, None))
        self.assertIs(table.find(1, True), table.captured[1])
        table.add(1, _calls.Made(executable((1, "anew")), None))
        self.assertEqual(table.find(1, False).name, (1, "anew"))
        self.assertIs(table.find(1, True), table.captured[1])


class Wrong(unittest.TestCase):
    def test_what_does_not_fit(self):
        """Told on this rank before anything is exchanged."""
        x, w = torch.zeros(2, K), torch.zeros(K, N)
        scatter = ht.matmul_reduce_scatter
        for call, words in (
                (lambda: ht.all_gather_matmul(x, w.t()), r"x is \[2, 6\] and w \[5, 6\]: w must be"),
                (lambda: ht.all_gather_matmul(x, w.double()), "float32 and torch.float64: dtypes differ"),
                (lambda: ht.all_gather_matmul(x.long(), w.long()), "torch.int64: it takes float64"),
                (lambda: ht.all_gather_matmul(x, w, gather_dim=1), "dimension 1 of x"),
                (lambda: ht.all_gather_matmul(x[0], w), "needs two dimensions"),
                (lambda: ht.all_gather_matmul(x[:0], w), "there is nothing in it"),
                (lambda: ht.fused_all_gather_matmul(x, []), "has no weight"),
                (lambda: scatter(torch.zeros(TP + 1, K), w),
                 f"dimension 0 of x is {TP + 1}, which {TP} ranks do not divide"),
                (lambda: ht.all_gather_matmul(x, w, "nobody"), "'nobody' names no process group"),
                (lambda: ht.all_gather_matmul(x, w, 7), "7 is no process group"),
                (lambda: ht.all_gather_matmul(x, w, "heddle:999"), "'heddle:999' is gone")):
            with self.subTest(words), self.assertRaisesRegex(heddle.ArgumentError, words):
                call()

    def test_gradients_that_do_not_fit(self):
        """Of the operator that no function of ours gives such."""
        gy, w, h = torch.zeros(TP, N), torch.zeros(K, N), torch.zeros(TP, K)
        name = dist.group.WORLD.group_name
        for args, words in (
                (([gy], [w], h[:1], None, [1], 0), r"rows \[\[1, 6\]\], 1 wanted, along dimension 0"),
                (([gy], [w], h, h.t(), [1], 0), rf"rows \[\[6, {TP}\], \[{TP}, 6\]\]"),
                (([gy], [w.t()], h, None, [1], 0), "they do not fit"),
                (([gy, gy[:1]], [w, w], h, None, [1, 0], 0), "they do not fit"),
                (([gy], [w], h, None, [1], 1), "they do not fit"),
                (([gy], [w], None, None, [1], 0), "needs the rows of all ranks"),
                (([torch.zeros(TP + 1, N)], [w], None, None, [0], 0), f"{TP} ranks do not divide")):
            with self.subTest(words), self.assertRaisesRegex(heddle.ArgumentError, words):
                torch.ops.heddle.all_gather_matmul_backward(*args, name)

    def test_device(self):
        with self.assertRaisesRegex(NotImplementedError, "heddle::matmul_all_reduce.*Sparse"):
            ht.matmul_all_reduce(torch.zeros(2, K).to_sparse(), torch.zeros(K, N))

    def test_ranks_that_disagree(self):
        pg = dist.new_group(list(range(TP)))
        with self.assertRaisesRegex(heddle.Error, "rank 1 binds another program than rank 0: line"):
            ht.matmul_all_reduce(torch.zeros(2 + (RANK == 1), K), torch.zeros(K, N), pg)
        ht.group_of(pg).close()

    def test_ranks_of_which_one_has_the_program(self):
        """It waits in a run that the others do not come to, since they make another program."""
        pg = dist.new_group(list(range(TP)))
        w = torch.zeros(K, N)
        ht.matmul_all_reduce(torch.zeros(2 * TP, K), w, pg)
        rows = 2 * TP if RANK == 0 else 3 * TP
        with self.assertRaisesRegex(
                heddle.ArgumentError, f"rank [0-9] makes another program than rank [0-9] runs: line 4 "
                                      f"of it is 'in %x : f32\\[{TP}@tp, {TP}, 3, {K}\\]', and"):
            ht.matmul_all_reduce(torch.zeros(rows, K), w, pg)
        dist.barrier()
        ht.group_of(pg).close()
        self.assertTrue(torch.equal(ht.matmul_all_reduce(torch.ones(2, K), w + 1, pg),
                                    torch.full((2, N), float(K * TP))))

    def test_deadline_is_the_process_groups(self):
        pg = dist.new_group(list(range(TP)), timeout=datetime.timedelta(seconds=1.5))
        x, w = torch.zeros(TP, K), torch.zeros(K, N)
        ht.matmul_all_reduce(x, w, pg)
        if RANK == 0:
            with self.assertRaisesRegex(heddle.TimeoutError, "1.5 s"):
                ht.matmul_all_reduce(x, w, pg)
        dist.barrier()
        ht.group_of(pg).close()

    def test_tensors_without_memory(self):
        mesh = init_device_mesh("cpu", (TP,))
        text = "heddle 2 tensor program p in %x : f32[2] out %y : f32[2] { %y = scale %x by 2.0 }"
        with heddle.Group.local() as group:
            double = heddle.compile(heddle.Program(text), group)
            x = DTensor.from_local(torch.ones(4)[2:], mesh)
            for absent, words in ((x, r"the DTensor for %x has no memory .* its to_local\(\)"),
                                  (FakeTensorMode().from_tensor(torch.ones(4)[2:]),
                                   "the FakeTensor for %x has no memory")):
                with self.assertRaisesRegex(heddle.ArgumentError, words):
                    double(absent)
            self.assertEqual(double(x.to_local()).tolist(), [2.0, 2.0])

    def test_program_of_other_ranks(self):
        text = (f"heddle 2\ntensor program p\nmesh tp={TP + 1}\nin %x : f32[{TP + 1}@tp]\n"
                f"out %y : f32[{TP + 1}]\n{{\n    %y = set %x\n}}\n")
        with heddle.Group.from_torch() as group:
            with self.assertRaisesRegex(heddle.Error, f"{TP + 1}.*{TP}|{TP}.*{TP + 1}"):
                heddle.compile(heddle.Program(text), group)

    def test_rank_that_does_not_come(self):
        pg = dist.new_group(list(range(TP)))
        if RANK == 0:
            with self.assertRaisesRegex(heddle.TimeoutError, "rank 0 waits for rank 1 in Group.from_to"):
                heddle.Group.from_torch(pg, timeout=0.2)
        dist.barrier()

    def test_attempt_after_some_that_timed_out(self):
        """The last rank comes when the first one has given up twice, and the others,
        who have seen that, wait all the time."""
        pg = dist.new_group(list(range(TP)))
        store = pg.get_group_store()
        if RANK == 0:
            for _ in range(2):
                with self.assertRaisesRegex(heddle.TimeoutError, f"rank 0 waits for rank {TP - 1} "):
                    heddle.Group.from_torch(pg, timeout=1)
            store.set("test/go", "")
        elif RANK == TP - 1:
            store.wait(["test/go"])
        for _ in range(3):
            with heddle.Group.from_torch(pg, timeout=20) as group:
                self.assertEqual((group.rank, group.size), (RANK, TP))
                group.barrier()
        x, w = draw(torch.float32, TP, K), draw(torch.float32, K, N)
        self.assertTrue(torch.equal(ht.all_gather_matmul(x[RANK:RANK + 1], w, pg), x @ w))
        dist.destroy_process_group(pg)

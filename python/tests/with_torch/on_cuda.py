"""heddle.torch on CUDA, all that the tests of the cpu cannot show: streams, the
allocator, graphs, torch.compile, and what a call takes.

usage: on_cuda.py [--ranks N] [--device cuda|cpu] [--only NAME,..] [--list]

Starts its ranks itself; they share GPUs where there are fewer. Each part says how it
went, and one that fails does not keep the others from running. The exit code is 0 if
all have passed. On the cpu it leaves out what is CUDA's. Random data, new each run.
"""
import argparse
import contextlib
import copy
import math
import os
import secrets
import socket
import subprocess
import sys
import time
import traceback

LIMIT = 150  # s that ranks may take
BEGIN = time.monotonic()


def tell(*words):
    print(f"{time.monotonic() - BEGIN:6.1f} s ", *words, flush=True)


def start(ranks):
    """The ranks' processes; the exit code is the worst of theirs."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    seed = secrets.randbits(31)
    tell(f"{ranks} ranks, seed {seed}")
    started = [subprocess.Popen([sys.executable, *sys.argv], env={
        **os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "HEDDLE_SEED": str(seed)})
        for rank in range(ranks)]
    codes = []
    for process in started:
        try:
            codes.append(process.wait(max(LIMIT - (time.monotonic() - BEGIN), 1)))
        except subprocess.TimeoutExpired:
            tell(f"a rank has not ended after {LIMIT} s")
            codes.append(1)
            process.kill()
    sys.exit(int(any(codes)))


def words():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--only", default="")
    parser.add_argument("--list", action="store_true")
    return parser.parse_args()


ARGS = words()
if "RANK" not in os.environ and not ARGS.list:
    start(ARGS.ranks)

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import heddle
import heddle.torch as ht
import torch
import torch.distributed as dist
import torch.nn.functional as F
from bounds import compare, local
from heddle.torch import _calls
from torch import nn

RANK, TP = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
CUDA = ARGS.device == "cuda"
DEVICE = torch.device("cpu")
LAMBDA = 6
UNIT = {torch.float32: 2.0 ** -24, torch.bfloat16: 2.0 ** -8}
ROWS, K, N, M = 64 * TP, 192, 160, 96


def rank_tell(*words):
    if RANK == 0:
        tell(*words)


def check(holds, *words):
    if not holds:
        raise AssertionError(" ".join(map(str, words)))


# ------------------------------------------------------------------ references


class Exact:
    """A value in double precision, and how far a correct one may be off
    (docs/numerics.md)."""

    def __init__(self, value, bound):
        self.value, self.bound = value, bound

    def __getitem__(self, part):
        return Exact(self.value[part], self.bound[part])

    def t(self):
        return Exact(self.value.t(), self.bound.t())

    def chunk(self, dim, rank):
        return Exact(self.value.chunk(TP, dim)[rank], self.bound.chunk(TP, dim)[rank])


def products(pairs, dtype, ranks=1):
    """The sum of products a @ b of operands of `dtype`. Those of a sum over ranks, and
    sums of them on their way, may each be rounded to it."""
    parts = [a.double() @ b.double() for a, b in pairs]
    sizes = sum(a.double().abs() @ b.double().abs() for a, b in pairs)
    count = sum(a.shape[-1] for a, _ in pairs)
    value = sum(parts)
    bound = LAMBDA * math.sqrt(count) * UNIT[torch.float32] * sizes + UNIT[dtype] * value.abs()
    if len(pairs) > 1:
        bound = bound + (ranks + 1) * UNIT[dtype] * sum(part.abs() for part in parts)
    return Exact(value, bound)


WORST = {}


def judge(what, found, exact):
    """The largest error of its bound."""
    check(found.shape == exact.value.shape, what, list(found.shape), list(exact.value.shape))
    error = (found.detach().double() - exact.value).abs()
    bound = exact.bound + 1e-30
    ratio = float((error / bound).max().nan_to_num(math.inf))
    key = "f32" if found.dtype == torch.float32 else "bf16"
    WORST[key] = max(WORST.get(key, 0.0), ratio)
    check(ratio <= 1, f"{what} {key}: error {ratio:.3g} of its bound")


def draw(dtype, *shape):
    """The same on all ranks."""
    return torch.randn(shape, generator=RANDOM, device=DEVICE).to(dtype)


def leaf(tensor, turned=False):
    """This rank's own weight [in, out] that has a gradient; stored [out, in] if `turned`."""
    tensor = tensor.t().contiguous() if turned else tensor.clone()
    tensor.requires_grad_()
    return tensor, tensor.t() if turned else tensor


def mine(whole, dim=0):
    return whole.chunk(TP, dim)[RANK].clone()


def grad(own, turned):
    return own.grad.t() if turned else own.grad


# ------------------------------------------------------------------- operators


def gather(dtype, turned):
    x, w, gy = draw(dtype, ROWS, K), draw(dtype, TP, K, N), draw(dtype, TP, ROWS, N)
    own, weight = leaf(w[RANK], turned)
    part = mine(x).requires_grad_()
    y = ht.all_gather_matmul(part, weight)
    y.backward(gy[RANK])
    judge("all_gather_matmul", y, products([(x, w[RANK])], dtype))
    judge("gradient of x", part.grad, products([(gy[r], w[r].t()) for r in range(TP)], dtype,
                                               TP).chunk(0, RANK))
    judge("gradient of w", grad(own, turned), products([(x.t(), gy[RANK])], dtype))


def fused(dtype, turned):
    x, ws = draw(dtype, ROWS, K), [draw(dtype, TP, K, n) for n in (N, M)]
    gys = [draw(dtype, TP, ROWS, n) for n in (N, M)]
    leaves, weights = zip(*(leaf(w[RANK], turned) for w in ws))
    part = mine(x).requires_grad_()
    rows, ys = ht.fused_all_gather_matmul(part, weights)
    torch.autograd.backward(ys, [gy[RANK] for gy in gys])
    check(torch.equal(rows, x), "the gathered rows are others")
    for y, w, gy, own in zip(ys, ws, gys, leaves):
        judge("fused_all_gather_matmul", y, products([(x, w[RANK])], dtype))
        judge("gradient of w", grad(own, turned), products([(x.t(), gy[RANK])], dtype))
    pairs = [(gy[r], w[r].t()) for gy, w in zip(gys, ws) for r in range(TP)]
    judge("gradient of x", part.grad, products(pairs, dtype, TP).chunk(0, RANK))


def scatter(dtype, turned):
    x, w, gy = draw(dtype, TP, ROWS, K), draw(dtype, TP, K, N), draw(dtype, ROWS, N)
    own, weight = leaf(w[RANK], turned)
    part = x[RANK].clone().requires_grad_()
    y = ht.matmul_reduce_scatter(part, weight)
    y.backward(mine(gy))
    judge("matmul_reduce_scatter", y, products(list(zip(x, w)), dtype, TP).chunk(0, RANK))
    judge("gradient of x", part.grad, products([(gy, w[RANK].t())], dtype))
    judge("gradient of w", grad(own, turned), products([(x[RANK].t(), gy)], dtype))


def reduce(dtype, turned):
    x, w, gy = draw(dtype, TP, ROWS, K), draw(dtype, TP, K, N), draw(dtype, ROWS, N)
    own, weight = leaf(w[RANK], turned)
    part = x[RANK].clone().requires_grad_()
    y = ht.matmul_all_reduce(part, weight)
    y.backward(gy)
    judge("matmul_all_reduce", y, products(list(zip(x, w)), dtype, TP))
    judge("gradient of x", part.grad, products([(gy, w[RANK].t())], dtype))
    judge("gradient of w", grad(own, turned), products([(x[RANK].t(), gy)], dtype))


def replicated(dtype, turned):
    x, w, gy = draw(dtype, ROWS, K), draw(dtype, TP, K, N), draw(dtype, TP, ROWS, N)
    own, weight = leaf(w[RANK], turned)
    part = x.clone().requires_grad_()
    y = ht.replicated_matmul(part, weight)
    y.backward(gy[RANK])
    judge("replicated_matmul", y, products([(x, w[RANK])], dtype))
    judge("gradient of x", part.grad, products([(gy[r], w[r].t()) for r in range(TP)], dtype, TP))
    judge("gradient of w", grad(own, turned), products([(x.t(), gy[RANK])], dtype))


def part_operators():
    """All operators, forward and backward, in f32 and bf16."""
    for dtype in UNIT:
        for operator in (gather, fused, scatter, reduce, replicated):
            operator(dtype, operator is not fused and bool(SEED & 1))
    return " ".join(f"{name} {ratio:.3f}" for name, ratio in WORST.items()) + " of the bound"


# ----------------------------------------------------- streams and the allocator


def part_stream():
    """A stream of the caller's, busy when the operator is called."""
    dtype, side = torch.float32, torch.cuda.Stream()
    x, w = draw(dtype, ROWS, K), draw(dtype, TP, K, N)[RANK].clone()
    part = torch.full((ROWS // TP, K), math.nan, device=DEVICE)
    ht.all_gather_matmul(mine(x), w)  # its program is made
    torch.cuda.synchronize()
    begin = time.monotonic()
    with torch.cuda.stream(side):
        torch.cuda._sleep(400_000_000)  # some 0.2 s
        part.copy_(mine(x))
        y = ht.all_gather_matmul(part, w)
        z = y + 0
        busy, took = not side.query(), time.monotonic() - begin
    side.synchronize()
    check(busy, "the stream was waited for:", took, "s")
    judge("on a side stream", z, products([(x, w)], dtype))
    return f"issued in {took * 1e3:.1f} ms"


def part_allocator():
    """100 steps whose memory is used again at once, and none of it kept."""
    dtype, steps = torch.float32, 100
    used = 0
    for i in range(steps):
        x, w = draw(dtype, ROWS, K), draw(dtype, TP, K, N)
        v = draw(dtype, TP, N, K)
        h = ht.all_gather_matmul(mine(x), w[RANK].clone())
        y = ht.matmul_reduce_scatter(h.relu_(), v[RANK].clone())
        del h
        # What was freed is overwritten, in the order of the stream.
        for shape in ((ROWS // TP, K), (K, N), (ROWS, N), (N, K)):
            torch.full(shape, math.nan, device=DEVICE)
        if i % 10 == 9:
            hidden = [products([(x, w[r])], dtype) for r in range(TP)]
            exact = products([(h.value.relu(), v[r]) for r, h in enumerate(hidden)], dtype, TP)
            for r, h in enumerate(hidden):  # the errors of the operands, in their plain sum
                exact.bound += h.bound @ v[r].double().abs()
            judge("in a step", y, exact.chunk(0, RANK))
        del x, w, v, y
        now = torch.cuda.memory_allocated() if CUDA else 0
        if i == 10:
            used = now
    check(now <= used + 2 ** 20, f"{now - used} bytes more are allocated than {steps - 10} steps before")
    return f"{steps} steps, {now / 1e6:.1f} MB allocated"


# ----------------------------------------------------------------------- graphs


def layer(x, w, v):
    return ht.matmul_reduce_scatter(F.silu(ht.all_gather_matmul(x, w)), v)


class Layer:
    """An MLP of which this rank has a part, on data that change in place. Its slope has
    no steps: a relu's would change by a whole where an error changes a sign."""

    def __init__(self, dtype, k=K, n=N):
        self.dtype, self.k, self.n = dtype, k, n
        self.x, self.gy = (torch.zeros(ROWS // TP, k, dtype=dtype, device=DEVICE) for _ in range(2))
        self.w, self.v = (torch.zeros(s, dtype=dtype, device=DEVICE) for s in ((k, n), (n, k)))
        for tensor in (self.x, self.w, self.v):
            tensor.requires_grad_()
        self.draw()

    def draw(self):
        self.all_x, self.all_gy = draw(self.dtype, ROWS, self.k), draw(self.dtype, ROWS, self.k)
        self.all_w, self.all_v = draw(self.dtype, TP, self.k, self.n), draw(self.dtype, TP, self.n, self.k)
        with torch.no_grad():
            for own, new in ((self.x, mine(self.all_x)), (self.gy, mine(self.all_gy)),
                             (self.w, self.all_w[RANK]), (self.v, self.all_v[RANK])):
                own.copy_(new)

    def step(self, fn=layer):
        """The output, and the gradients of x and both weights."""
        y = fn(self.x, self.w, self.v)
        return (y, *torch.autograd.grad(y, (self.x, self.w, self.v), self.gy))

    def judge(self, what, found):
        """Against the whole model in double precision, by the norm."""
        x, w, v = (t.double().requires_grad_() for t in (self.all_x, self.all_w, self.all_v))
        y = sum(F.silu(x @ w[r]) @ v[r] for r in range(TP))
        exact = (y, *torch.autograd.grad(y, (x, w, v), self.all_gy.double()))
        parts = (mine(exact[0].detach()), mine(exact[1]), exact[2][RANK], exact[3][RANK])
        # Four roundings of each, random, and sums over as many as this.
        limit = LAMBDA * 4 * (UNIT[self.dtype] + math.sqrt(max(K, N, ROWS)) * UNIT[torch.float32])
        for name, tensor, part in zip(("y", "x", "w", "v"), found, parts):
            error = float((tensor.detach().double() - part.detach()).norm() / part.detach().norm())
            check(error <= limit, f"{what}: {name} is off by {error:.3g} of its norm, limit {limit:.3g}")


def runs():
    """How many of the operators have been issued, not replayed."""
    table = _calls.table_of(ht.group_of())
    made = [one for both in table.kept.values() for one in both.executables()]
    return sum(one.stats()["runs"] for one in [*made, *table.captured.values()])


def part_graph():
    """A step captured by torch.cuda.graph, and 100 replays on new data."""
    model = Layer(torch.float32)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            model.step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    before = runs()
    with torch.cuda.graph(graph):
        found = model.step()
    for i in range(100):
        model.draw()
        for tensor in found:
            tensor.detach().fill_(math.nan)
        if i % 10 == 5:  # among runs that are none
            model.judge("among replays", model.step())
        graph.replay()
        model.judge(f"replay {i}", found)
    check(runs() - before == 10 * 4, runs() - before, "runs were issued, and not replayed")
    GRAPHS.append(graph)  # which has to go before the group's executables
    return "100 replays"


GRAPHS = []


def part_first_in_capture():
    """An operator that was never called before."""
    x, w = draw(torch.float32, ROWS // TP, 48), draw(torch.float32, 48, 56)
    torch.cuda.synchronize()
    try:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            ht.all_gather_matmul(x, w)
    except heddle.ArgumentError as error:
        check("first comes in a capture" in str(error), error)
    else:
        raise AssertionError("it was captured")
    y = ht.all_gather_matmul(x, w)
    judge("after the capture", y[:ROWS // TP] if RANK == 0 else y[-(ROWS // TP):],
          products([(x, w)], torch.float32))
    return "told"


def compiled(mode):
    """Steps by torch.compile."""
    torch._dynamo.reset()
    fn = torch.compile(layer, mode=mode)
    model = Layer(torch.float32)
    counts = []
    for _ in range(8):
        model.draw()
        if mode is not None:
            torch.compiler.cudagraph_mark_step_begin()
        before = runs()
        found = [tensor.clone() for tensor in model.step(fn)]
        counts.append(runs() - before)
        model.judge("a compiled step", found)
    if mode is not None and CUDA:
        check(counts[-1] == 0, "runs that were issued, step by step:", counts)
    return f"operators issued, step by step: {counts}"


def part_compile():
    """torch.compile, by its own backend."""
    return compiled(None)


def part_reduce_overhead():
    """torch.compile(mode="reduce-overhead"), which captures graphs."""
    return compiled("reduce-overhead")


# --------------------------------------------------------------------- training


class Mlp(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(x)))


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


class Told:
    """What bounds.compare says its findings to."""

    @staticmethod
    def assertLessEqual(error, bound):
        check(error <= bound, f"off by {error:.3g}, and may be by {bound:.3g}")


def part_train():
    """20 steps of two MLP layers, as plain PyTorch trains them."""
    steps, batch, rows, hidden, worst = 20, 2, 2 * TP, 16, []
    for dim in (1, None):
        torch.manual_seed(SEED)
        whole = nn.Sequential(Mlp(hidden), Mlp(hidden))
        xs, targets = torch.randn(2, steps, batch, rows, hidden)
        part = (lambda t: t) if dim is None else lambda t: t.chunk(TP, 1)[RANK]
        parallel = copy.deepcopy(whole).to(DEVICE)
        for i in range(2):
            ht.parallelize_module(parallel, None, {f"{i}.up": ht.ColwiseParallel(dim),
                                                   f"{i}.down": ht.RowwiseParallel(dim)})
        found = [t.cpu() for t in train(parallel, *([part(t).to(DEVICE) for t in ts]
                                                    for ts in (xs, targets)))]
        parts = [part]
        for whole_p, p in zip(whole.parameters(), map(local, parallel.parameters())):
            cut = [d for d in range(p.dim()) if p.shape[d] != whole_p.shape[d]]
            parts.append((lambda t, d=cut[0]: t.chunk(TP, d)[RANK]) if cut else lambda t: t)
        doubled = whole.double()
        worst.append(compare(Told, found, lambda: train(doubled, xs.double(), targets.double()),
                             *parts))
    return " ".join(f"{ratio:.3f}" for ratio in worst) + " of the bound"


# ------------------------------------------------------------------------ times


def wait():
    if CUDA:
        torch.cuda.synchronize()


def measure(fn, count=10, samples=5):
    """Medians: us of the host to issue a call, and us of each until all have ended."""
    fn()
    issued, ended = [], []
    for _ in range(samples):
        wait()
        dist.barrier()
        begin = time.perf_counter()
        for _ in range(count):
            fn()
        issued.append(time.perf_counter() - begin)
        wait()
        ended.append(time.perf_counter() - begin)
    return [sorted(times)[samples // 2] / count * 1e6 for times in (issued, ended)]


def part_times():
    """us of a call of the host, and of each until it has ended."""
    rank_tell("us a call:                             issued     ended    and of torch.mm alone")
    shapes = (((128, 256, 256), torch.float32), ((4096, 4096, 2048), torch.bfloat16)) if CUDA else \
        (((64, 64, 64), torch.float32),)
    for (rows, k, n), dtype in shapes:
        x, part, w = draw(dtype, rows, k), draw(dtype, rows // TP, k), draw(dtype, k, n)
        with torch.no_grad():
            local = measure(lambda: torch.mm(x, w))
            for name, fn in (
                    ("all_gather_matmul", lambda: ht.all_gather_matmul(part, w)),
                    ("fused_all_gather_matmul", lambda: ht.fused_all_gather_matmul(part, [w])),
                    ("matmul_reduce_scatter", lambda: ht.matmul_reduce_scatter(x, w)),
                    ("matmul_all_reduce", lambda: ht.matmul_all_reduce(x, w)),
                    ("replicated_matmul", lambda: ht.replicated_matmul(x, w))):
                issued, ended = measure(fn)
                rank_tell(f"{name:24} {str(dtype)[6:]:8} {rows}x{k}x{n}".ljust(54)[:54],
                          f"{issued:9.1f} {ended:9.1f}   {local[0]:9.1f} {local[1]:9.1f}")
    return "medians of 5 times 10"


# ------------------------------------------------------------------------- ranks

PARTS = {"operators": part_operators, "stream": part_stream, "allocator": part_allocator,
         "graph": part_graph, "first_in_capture": part_first_in_capture, "train": part_train,
         "times": part_times, "compile": part_compile, "reduce_overhead": part_reduce_overhead}
OF_CUDA = ("stream", "graph", "first_in_capture", "reduce_overhead")


def run_part(name):
    """Whether it has passed on all ranks. Where it has not, operators get a new group."""
    failure = ""
    try:
        answer = PARTS[name]()
        wait()
    except BaseException:
        failure = traceback.format_exc()
    told = [None] * TP
    dist.all_gather_object(told, failure)
    if not any(told):
        rank_tell(f"{name:17} passed  {answer}")
        return True
    if failure:
        tell(f"{name:17} FAILED on rank {RANK}\n{failure}")
    GRAPHS.clear()
    with contextlib.suppress(Exception):
        ht.group_of().close()
    return False


def main():
    global DEVICE, RANDOM, SEED
    SEED = int(os.environ["HEDDLE_SEED"])
    if CUDA:
        DEVICE = torch.device("cuda", RANK % torch.cuda.device_count())
        torch.cuda.set_device(DEVICE)
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    else:
        torch.set_num_threads(1)
    RANDOM = torch.Generator(DEVICE).manual_seed(SEED)
    dist.init_process_group("gloo")
    rank_tell(f"torch {torch.__version__},", torch.cuda.get_device_name() if CUDA else "cpu",
              f"for {TP} ranks" + (f", {torch.cuda.device_count()} GPUs" if CUDA else ""))
    chosen = ARGS.only.split(",") if ARGS.only else [name for name in PARTS
                                                     if CUDA or name not in OF_CUDA]
    failed = [name for name in chosen if not run_part(name)]
    rank_tell(f"{len(chosen) - len(failed)} passed, {len(failed)} failed", *failed)
    GRAPHS.clear()
    torch._dynamo.reset()
    dist.destroy_process_group()
    sys.stdout.flush()
    sys.exit(len(failed) > 0)


if ARGS.list:
    print(*PARTS)
else:
    main()

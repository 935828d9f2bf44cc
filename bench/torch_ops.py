"""What calls of heddle.torch take on the cpu, beside heddle.compile's callable and
gloo's collectives.

usage: torchrun --nproc-per-node 2 bench/torch_ops.py
"""
import statistics
import time

import heddle
import heddle.torch as ht
import torch
import torch.distributed as dist

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, tp = dist.get_rank(), dist.get_world_size()


def measure(samples, **calls):
    """Medians of the slowest rank, in us; the calls in turns."""
    took = {what: [] for what in calls}
    for i in range(samples + 5):
        for what, call in calls.items():
            dist.barrier()
            begin = time.perf_counter()
            call()
            if i >= 5:
                took[what].append((time.perf_counter() - begin) * 1e6)
    for what, times in took.items():
        slowest = torch.tensor(times)
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        if rank == 0:
            cuts = statistics.quantiles(slowest.tolist(), n=10)
            print(f"  {what:32} {cuts[4]:9.1f} us  (10% {cuts[0]:.1f}, 90% {cuts[-1]:.1f})")


def gather_case(rows, k, n):
    x, w = torch.randn(rows, k), torch.randn(n, k).t()
    text = (f"heddle 2\ntensor program p\nmesh tp={tp}\nin %x : f32[{tp}@tp, {rows}, {k}]\n"
            f"in %w : f32[{tp}@tp, {n}, {k}]\ntemp %g : f32[{tp}@stream, {rows}, {k}]\n"
            f"out %y : f32[{tp}@tp, {tp}@stream, {rows}, {n}]\n{{\n    %g = set %x\n"
            "    %y = matmul %g, %w tb\n}\n")
    own = heddle.compile(heddle.Program(text), ht.group_of())
    part, weight, out = x.view(1, rows, k), w.t(), torch.empty(tp, rows, n)
    everything = torch.empty(tp * rows, k)

    def gloo():
        dist.all_gather_into_tensor(everything, x)
        return everything @ w

    if rank == 0:
        print(f"all-gather + matmul, {tp} ranks, x [{rows}, {k}], w [{k}, {n}], float32")
    with torch.no_grad():
        measure(101, **{"heddle.torch.all_gather_matmul": lambda: ht.all_gather_matmul(x, w),
                        "heddle.compile's callable": lambda: own(part, weight, out=out),
                        "gloo all_gather, then mm": gloo})


def scatter_case(rows, k, n):
    x, w = torch.randn(tp * rows, k), torch.randn(n, k).t()
    out = torch.empty(rows, n)

    def gloo():
        dist.reduce_scatter_tensor(out, x @ w)

    if rank == 0:
        print(f"matmul + reduce-scatter, {tp} ranks, x [{tp * rows}, {k}], w [{k}, {n}], float32")
    with torch.no_grad():
        measure(101, **{"heddle.torch.matmul_reduce_scatter":
                        lambda: ht.matmul_reduce_scatter(x, w), "mm, then gloo reduce_scatter": gloo})


def alone():
    """Of one rank: nothing is waited for, so that what Python takes shows."""
    pg = [dist.new_group([r]) for r in range(tp)][rank]
    x, w = torch.randn(4, 8), torch.randn(8, 8)
    ht.all_gather_matmul(x, w, pg)
    from heddle.torch import _calls
    own, = _calls.table_of(ht.group_of(pg)).kept.values()
    part, out = x.view(1, 4, 8), torch.empty(1, 4, 8)
    if rank == 0:
        print("one rank, x [4, 8], w [8, 8], float32")
    with torch.no_grad():
        measure(501, **{"heddle.torch.all_gather_matmul": lambda: ht.all_gather_matmul(x, w, pg),
                        "its callable": lambda: own.plain(part, w, out=out),
                        "torch.mm": lambda: torch.mm(x, w)})


alone()
gather_case(4, 8, 8)
gather_case(256, 512, 512)
gather_case(512, 1024, 1024)
scatter_case(256, 512, 512)
scatter_case(512, 1024, 1024)
dist.destroy_process_group()

"""What a layer takes on the GPUs of a host, in one call and by turns: a session of the C
library, heddle.compile's callable, heddle.torch's operator, PyTorch's symmetric memory,
and NCCL with a matmul. Of bench/suite.json's shapes, with a rank for each GPU.

usage: two_gpus.py [--ids A3,R3,..] [--ranks N] [--device cuda|cpu] [--rounds N] [--queue N]

Starts its ranks itself. Each answer is checked against sampled rows in double precision
first. A sample is --queue calls in a row, all ranks ready before; "ms" is of a call on
the device, "host us" what it takes the host to issue one, both medians of the slowest
rank. "C of .." issues the runs of that callable's or operator's own session by their
addresses, so that the difference is what Python takes. On the cpu it shows that it
works: a 64th of each extent, by gloo.
"""
import argparse
import faulthandler
import json
import os
import pathlib
import secrets
import socket
import statistics
import subprocess
import sys
import time

# Without multicast, whether the host could or not.
os.environ.update(NCCL_NVLS_ENABLE="0", TORCH_SYMM_MEM_DISABLE_MULTICAST="1", NVSHMEM_DISABLE_NVLS="1")
SUITE = pathlib.Path(__file__).with_name("suite.json")
UNIT = 2.0 ** -8  # of bf16
ALONE = "matmul alone"


def words():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ids", default="A3,A6,A10,R3,R8,X2,X4")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--queue", type=int, default=8)
    parser.add_argument("--limit", type=float, default=170, help="seconds for all")
    return parser.parse_args()


def start(args):
    """The ranks' processes; the exit code is the worst of theirs."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    seed = str(secrets.randbits(31))
    print("seed", seed, flush=True)
    started = [subprocess.Popen([sys.executable, *sys.argv], env={
        **os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(args.ranks),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "HEDDLE_SEED": seed})
        for rank in range(args.ranks)]
    sys.exit(max(abs(process.wait()) for process in started))


ARGS = words()
if "RANK" not in os.environ:
    start(ARGS)

import heddle
import heddle.torch as ht
import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symmetric  # makes torch.ops.symm_mem
from heddle._library import ffi, info, lib
from heddle.torch import _calls, _programs

RANK, TP = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
CUDA = ARGS.device == "cuda"
DTYPE, NAME = (torch.bfloat16, "bf16") if CUDA else (torch.float32, "f32")


def draw(*shape):
    """Of this rank alone."""
    return torch.randn(shape, generator=RANDOM, device=DEVICE).to(DTYPE)


class ByAddress:
    """Runs of an executable's session, as a program in C issues them."""

    def __init__(self, executable, tensors):
        self.n, self.executable, self.tensors = len(tensors), executable, tensors
        self.addresses = ffi.new("void *[]", [ffi.cast("void *", t.data_ptr()) for t in tensors])
        self.options = info("hd_run_options")
        self.pointer, self.diag = executable._core.pointer, executable._diag.p
        if CUDA:
            self.options.stream = ffi.cast("void *", torch.cuda.current_stream().cuda_stream)

    def __call__(self):
        if lib.hd_session_run(self.pointer, self.addresses, self.n, self.options, self.diag) != lib.HD_OK:
            self.executable._fail(lib.HD_ERROR_SYSTEM)
        if not CUDA:
            self.executable._await()
        return self.tensors[-1]


class Shape:
    """The tensors of one, and the ways to make its answer, by name."""

    def __init__(self, kind, row):
        part = (lambda n: n) if CUDA else (lambda n: max(n // 64, 2))
        self.kind, self.m = kind, part(row["M"]) // TP
        self.k, self.n = part(row["K" if kind == "ag" else "k"]), part(row["n" if kind == "ag" else "N"])
        self.x = draw(self.m if kind == "ag" else self.m * TP, self.k)
        self.weight = draw(self.n, self.k)
        self.w = self.weight.t()
        weight = _programs.Weight(self.k, self.n, True)
        rows = _programs.Rows(1, TP, self.m)
        if kind == "ag":
            text = _programs.gather(rows, [weight], self.k, NAME, False)
            x, shape = self.x.view(1, self.m, self.k), (1, TP, self.m, self.n)
            self.op = lambda: ht.all_gather_matmul(self.x, self.w)
        else:
            text = _programs.reduce(rows, weight, NAME, kind == "rs")
            x = self.x.view(1, TP, self.m, self.k)
            shape = (1 if kind == "rs" else TP, self.m, self.n)
            self.op = (lambda: ht.matmul_reduce_scatter(self.x, self.w)) if kind == "rs" else \
                (lambda: ht.matmul_all_reduce(self.x, self.w))
        self.out = torch.full(shape, torch.nan, dtype=DTYPE, device=DEVICE)
        stored = self.weight.view(1, self.n, self.k)
        own = heddle.compile(heddle.Program(text), ht.group_of(), device=str(DEVICE))
        self.op()
        made = next(reversed(_calls.table_of(ht.group_of()).kept.values())).plain
        out = torch.full(shape, torch.nan, dtype=DTYPE, device=DEVICE)
        self.ways = {
            "C of the callable": ByAddress(own, [x, stored, out]),
            "heddle.compile's callable": lambda: own(x, stored, out=self.out),
            "C of the operator": ByAddress(made, [x, stored, out]),
            "heddle.torch": self.op,
            **(self.rivals_ag() if kind == "ag" else self.rivals_sum()),
        }
        self.whole = self.reference()

    def rivals_ag(self):
        gathered = torch.empty(self.m * TP, self.k, dtype=DTYPE, device=DEVICE)
        c = torch.empty(self.m * TP, self.n, dtype=DTYPE, device=DEVICE)

        def sequence():
            dist.all_gather_into_tensor(gathered, self.x)
            return torch.mm(gathered, self.w, out=c)

        def fused():
            return torch.ops.symm_mem.fused_all_gather_matmul(self.x, [self.w], 0, PG, return_A=False)[1][0]

        return {"all-gather, then mm": sequence, **({"symm_mem fused": fused} if CUDA else {}),
                ALONE: lambda: torch.mm(gathered, self.w, out=c)}

    def rivals_sum(self):
        c = torch.empty(self.m * TP, self.n, dtype=DTYPE, device=DEVICE)
        part = torch.empty(self.m, self.n, dtype=DTYPE, device=DEVICE)

        def scatter():
            dist.reduce_scatter_tensor(part, torch.mm(self.x, self.w, out=c))
            return part

        def reduce():
            dist.all_reduce(torch.mm(self.x, self.w, out=c))
            return c

        def fused():
            return torch.ops.symm_mem.fused_matmul_reduce_scatter(self.x, self.w, "sum", 0, PG)

        ways = {"mm, then " + ("reduce-scatter" if self.kind == "rs" else "all-reduce"):
                scatter if self.kind == "rs" else reduce}
        if CUDA:
            ways.update({"symm_mem fused": fused} if self.kind == "rs" else self.shots())
        return {**ways, ALONE: lambda: torch.mm(self.x, self.w, out=c)}

    def shots(self):
        """All-reduces of symmetric memory behind a matmul into it."""
        flat = symmetric.empty(self.m * TP * self.n, dtype=DTYPE, device=DEVICE)
        symmetric.rendezvous(flat, PG)
        c = flat.view(self.m * TP, self.n)

        def two_shot():
            torch.mm(self.x, self.w, out=c)
            torch.ops.symm_mem.two_shot_all_reduce_(flat, "sum", PG)
            return c

        def one_shot():
            torch.mm(self.x, self.w, out=c)
            return torch.ops.symm_mem.one_shot_all_reduce(flat, "sum", PG).view_as(c)

        return {"symm_mem two-shot": two_shot,
                **({"symm_mem one-shot": one_shot} if flat.nbytes <= 4 << 20 else {})}

    def reference(self):
        """Which rows of an answer are looked at, and these in double precision."""
        if self.kind == "ag":
            everything = torch.empty(self.m * TP, self.k, dtype=DTYPE, device=DEVICE)
            dist.all_gather_into_tensor(everything, self.x)
            rows = torch.linspace(0, self.m * TP - 1, 16, device=DEVICE).long()
            return rows, everything[rows].double() @ self.w.double()
        own = torch.linspace(0, self.m - 1, 8, device=DEVICE).long()
        rows = torch.cat([own + rank * self.m for rank in range(TP)])
        whole = self.x[rows].double() @ self.w.double()
        dist.all_reduce(whole)
        return (own, whole.view(TP, 8, -1)[RANK]) if self.kind == "rs" else (rows, whole)

    def judge(self, way, found):
        """Of a norm: the result is rounded to bf16, and so is each rank's partial sum."""
        rows, exact = self.whole
        found = found.view(-1, self.n)[rows].double()
        error = float((found - exact).norm() / exact.norm())
        limit = (1 if self.kind == "ag" else TP + 1) * UNIT
        worst = torch.tensor(error if error == error else 1e30, device=DEVICE)
        dist.all_reduce(worst, dist.ReduceOp.MAX)
        if worst > limit:
            raise SystemExit(f"{way}: off by {float(worst):.3g} of the norm, and may be by {limit:.3g}")


def wait():
    if CUDA:
        torch.cuda.synchronize()


def sample(way):
    """us of the host, and of the device, of a call."""
    wait()
    dist.barrier()
    wait()
    first, last = (torch.cuda.Event(enable_timing=True) if CUDA else None for _ in range(2))
    begin = time.perf_counter()
    if CUDA:
        first.record()
    for _ in range(ARGS.queue):
        way()
    issued = time.perf_counter() - begin
    if CUDA:
        last.record()
        last.synchronize()
        ended = first.elapsed_time(last) * 1e-3
    else:
        ended = issued
    return issued / ARGS.queue * 1e6, ended / ARGS.queue * 1e6


def measure(shape):
    took = {name: [] for name in shape.ways}
    with torch.no_grad():
        for name, way in shape.ways.items():
            found = way()
            if name != ALONE:  # which has nobody else's part
                shape.judge(name, found)
        for _ in range(ARGS.rounds + 2):
            for name, way in shape.ways.items():
                took[name].append(sample(way))
    found = {}
    for name, samples in took.items():
        slowest = torch.tensor(samples[2:], device=DEVICE)
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        found[name] = [sorted(column) for column in slowest.t().tolist()]
    return found


def report(what, found):
    medians = {name: [statistics.median(column) for column in columns] for name, columns in found.items()}
    of = {"heddle.compile's callable": "C of the callable", "heddle.torch": "C of the operator"}
    print(f"\n{what}\n{'':28}{'ms':>9}{'10%':>9}{'90%':>9}{'host us':>9}   of C: time, host us more")
    for name, (host, device) in medians.items():
        times = found[name][1]
        tenth = len(times) // 10
        line = f"  {name:26}{device / 1e3:9.4f}{times[tenth] / 1e3:9.4f}{times[-1 - tenth] / 1e3:9.4f}{host:9.1f}"
        if name in of:
            c_host, c_device = medians[of[name]]
            line += f"   {device / c_device:10.3f} {host - c_host:9.1f}"
        print(line, flush=True)


def main():
    global DEVICE, RANDOM, PG
    faulthandler.dump_traceback_later(ARGS.limit, exit=True)
    DEVICE = torch.device("cuda", RANK % torch.cuda.device_count()) if CUDA else torch.device("cpu")
    RANDOM = torch.Generator(DEVICE).manual_seed(int(os.environ["HEDDLE_SEED"]) + RANK)
    if CUDA:
        torch.cuda.set_device(DEVICE)
        dist.init_process_group("nccl", device_id=DEVICE)
    else:
        torch.set_num_threads(1)
        dist.init_process_group("gloo")
    PG = dist.group.WORLD.group_name
    if CUDA and hasattr(symmetric, "enable_symm_mem_for_group"):
        symmetric.enable_symm_mem_for_group(PG)
    if RANK == 0:
        on = torch.cuda.get_device_name() if CUDA else "the cpu"
        print(f"torch {torch.__version__}, {TP} ranks on {on}, {NAME}; medians of {ARGS.rounds} times "
              f"{ARGS.queue} calls, the slowest rank's", flush=True)
    suite, chosen = json.loads(SUITE.read_text()), ARGS.ids.split(",")
    for kind in ("ag", "rs", "ar"):
        for row in suite[kind]:
            if row["id"].split("-")[0] in chosen:
                shape = Shape(kind, row)
                found = measure(shape)
                if RANK == 0:
                    report(f"{row['id']}: x [{', '.join(map(str, shape.x.shape))}], w [{shape.k}, "
                           f"{shape.n}] of a rank", found)
                del shape
    faulthandler.cancel_dump_traceback_later()
    wait()
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # what PyTorch's symmetric memory has is not taken down in order


main()

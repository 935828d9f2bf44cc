"""What attention over sequences that GPUs share takes by PyTorch's context parallelism
(torch.distributed.tensor.experimental.context_parallel), forward and backward, beside
attention alone of a rank's queries to all keys. Shapes of bench/attention.json.

usage: torchrun --nproc-per-node N bench/torch_context.py [--ids T2,T4] [--causal] [--backward]

Milliseconds, the median of samples of the slowest rank; ways take turns.
"""
import argparse
import importlib
import json
import os
import pathlib
import statistics

os.environ.setdefault("NCCL_NVLS_ENABLE", "0")

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import context_parallel
from torch.nn.attention import SDPBackend, sdpa_kernel

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--ids", default="", help="only these shapes, by id or what it begins with")
parser.add_argument("--causal", action="store_true")
parser.add_argument("--backward", action="store_true", help="forward and backward")
parser.add_argument("--samples", type=int, default=12)
asked = parser.parse_args()

place = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(place)
device = torch.device("cuda", place)
dist.init_process_group("nccl", device_id=device)
rank, size = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh("cuda", (size,), mesh_dim_names=("cp",))


def internals():
    """Where the options of context_parallel are, which moved between versions."""
    for name in ("_context_parallel._attention", "_attention"):
        try:
            module = importlib.import_module("torch.distributed.tensor.experimental." + name)
        except ImportError:
            continue
        if hasattr(module, "_cp_options"):
            return module
    raise SystemExit("this PyTorch's context_parallel has other options")


options = internals()


def say(*words):
    if rank == 0:
        print(*words, flush=True)


def draw(shape, batch, heads, rows, seed):
    generator = torch.Generator(device).manual_seed(seed)
    return torch.randn(batch, heads, rows, shape["D"], dtype=torch.bfloat16, device=device,
                       generator=generator).requires_grad_(asked.backward)


def step(q, k, v, causal):
    """Attention of these, and its gradients where they are asked for."""
    grouped = q.shape[1] != k.shape[1]
    o = F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=grouped)
    if asked.backward:
        for tensor in (q, k, v):
            tensor.grad = None
        o.backward(q.detach())
    return o


def time_of(call):
    ends = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    dist.barrier()
    torch.cuda.synchronize()
    ends[0].record()
    call()
    ends[1].record()
    torch.cuda.synchronize()
    took = torch.tensor(ends[0].elapsed_time(ends[1]), device=device)
    dist.all_reduce(took, dist.ReduceOp.MAX)
    return took.item()


def measure(shape, name, call):
    try:
        times = [time_of(call) for _ in range(asked.samples + 3)][3:]
        say(f"{shape['id']:16} {name:28} {statistics.median(times):9.4f}")
    except Exception as error:  # of a way that this version does not have; all ranks fail alike
        say(f"{shape['id']:16} {name:28} failed: {str(error).splitlines()[0][:100]}")


def measure_shape(shape):
    batch, heads, rows = shape["B"], shape["H"], shape["S"]
    shared = shape.get("Hkv", heads)
    own = [draw(shape, batch, heads, rows // size, 1 + rank), draw(shape, batch, shared, rows, 100),
           draw(shape, batch, shared, rows, 200)]
    # A balanced share of a causal attention is half of the whole one, which is
    # what a rank of more than one computes at least.
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        measure(shape, "alone, cudnn", lambda: step(*own, False))
    del own
    torch.cuda.empty_cache()
    options._cp_options.enable_load_balance = asked.causal
    for backend, word in ((SDPBackend.CUDNN_ATTENTION, "cudnn"),
                          (SDPBackend.FLASH_ATTENTION, "flash")):
        for rotate in ("allgather", "alltoall"):
            options.set_rotate_method(rotate)
            whole = [draw(shape, batch, n, rows, 300 + i).detach()
                     for i, n in enumerate((heads, shared, shared))]
            with context_parallel(mesh, buffers=whole, buffer_seq_dims=[2, 2, 2],
                                  no_restore_buffers=set(whole)), sdpa_kernel(backend):
                for tensor in whole:
                    tensor.requires_grad_(asked.backward)
                measure(shape, f"context_parallel {rotate} {word}",
                        lambda: step(*whole, asked.causal))
            del whole
            torch.cuda.empty_cache()


say(f"torch {torch.__version__}, {size} x {torch.cuda.get_device_name()}, "
    f"{'causal' if asked.causal else 'plain'}, {'forward and backward' if asked.backward else 'forward'}")
shapes = json.loads((pathlib.Path(__file__).parent / "attention.json").read_text())["cp"]
for shape in shapes:
    if not asked.ids or any(shape["id"].split("-")[0] == i or shape["id"] == i
                            for i in asked.ids.split(",")):
        measure_shape(shape)
dist.destroy_process_group()

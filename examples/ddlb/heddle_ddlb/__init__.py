"""heddle as an implementation of DDLB's primitives: what both of them share.

DDLB makes an object for a shape, which draws the inputs, calls its run() again and
again, and validates what the last one returned. A primitive here is a tensor program,
and DDLB's options are those of heddle's lowering.
"""
import abc

import heddle
import torch.distributed as dist
from ddlb.envs import get_master_addr, get_master_port

DTYPES = {"float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16"}


def group_of(communicator):
    """The ranks of DDLB's communicator. They meet by a process group, as those of
    other implementations do: DDLB's barrier between runs is one of it."""
    if not dist.is_initialized():
        dist.init_process_group(
            "nccl" if communicator.device.type == "cuda" else "gloo",
            rank=communicator.rank, world_size=communicator.world_size,
            init_method=f"tcp://{get_master_addr()}:{get_master_port()}")
    return heddle.Group.from_torch()


class Heddle(abc.ABC):
    """What stands in front of DDLB's class of a primitive."""

    DEFAULT_OPTIONS = {
        "transfer": "auto",   # as is predicted to be the fastest
        "streams": 0,         # 0: as many as the pipeline takes by itself
        "chunks": 0,
        "transport": "auto",  # of CUDA
    }
    ALLOWED_VALUES = {
        "transfer": ["auto", "bulk", "pipelined", "broadcast", "direct", "ring"],
        "transport": ["auto", "copy", "sm", "nccl"],
    }

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        if self.dtype not in DTYPES:
            raise ValueError(f"heddle multiplies {', '.join(DTYPES)}, and not {self.dtype}")
        asked = {"transfer": self.options["transfer"]}
        for name in ("streams", "chunks"):
            if int(self.options[name]):
                asked[name] = int(self.options[name])
        self.group = group_of(self.communicator)
        self.compiled = heddle.compile(
            self.program(self.communicator.world_size, DTYPES[self.dtype]), self.group, asked,
            device=str(self.communicator.device), transport=self.options["transport"])
        self.arguments, self.answer = self.place()

    @abc.abstractmethod
    def program(self, tp, dtype):
        """The primitive as a tensor program of `tp` ranks."""

    @abc.abstractmethod
    def place(self):
        """The inputs and the output, as the program's arguments have them."""

    def run(self):
        """What DDLB times. The result is at one place, and the next run's too."""
        return self.compiled(*self.arguments, out=self.answer).view(-1, self.n)

"""A stand-in for what DDLB has: the constructor, options and inputs of its primitives,
on the cpu under torchrun. An answer is judged by the bound that its dtype allows."""
import abc
import os
import types

import torch

DTYPES = {name: getattr(torch, name)
          for name in ("float64", "float32", "float16", "bfloat16", "int32", "int64")}


class Primitive(abc.ABC):
    DEFAULT_OPTIONS = {}
    ALLOWED_VALUES = {}

    def __init__(self, m, n, k, dtype="float32", seed=42, **options):
        self.communicator = types.SimpleNamespace(
            rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]),
            device=torch.device("cpu"))
        self.m, self.n, self.k = m, n, k
        self.dtype, self.torch_dtype = dtype, DTYPES[dtype]
        self.options = {**self.DEFAULT_OPTIONS, **options}
        for name, allowed in self.ALLOWED_VALUES.items():
            if self.options[name] not in allowed:
                raise ValueError(f"{name} is {self.options[name]}, and must be one of {allowed}")
        random = torch.Generator().manual_seed(seed)
        draw = lambda *shape: (2 * torch.rand(*shape, generator=random, dtype=torch.float64)
                               - 1).to(self.torch_dtype)
        self._input_setup(draw(m, k), draw(k, n))

    @abc.abstractmethod
    def run(self):
        pass

    def part(self, extent):
        size = extent // self.communicator.world_size
        return slice(size * self.communicator.rank, size * (self.communicator.rank + 1))

    def judge(self, result, a, b):
        """Products of length k and a sum over ranks, each rounded, in any order."""
        roundings = self.k + self.communicator.world_size
        bound = roundings * torch.finfo(self.torch_dtype).eps * (a.double().abs() @ b.double().abs())
        assert result.shape == bound.shape and result.dtype == self.torch_dtype
        worst = ((result.double() - a.double() @ b.double()).abs() / bound).max().item()
        assert worst <= 1, f"an error is {worst} of its bound"  # which a NaN is not

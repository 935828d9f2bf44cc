"""heddle: a host-IR compiler and runtime for pipelined communication.

    program = heddle.Program(text)
    program.lower().check(against=program)

    def rank(group):
        gather = heddle.compile(program, group)
        return gather(x[program.shard("x", group.rank)])

    heddle.launch(program.ranks, rank)

Importing needs no compiler, no GPU and no other package but cffi. Arrays are
anything with `__dlpack__`: NumPy's, PyTorch's, CuPy's, JAX's.
"""
from . import ops
from ._array import Array
from ._call import Call, View
from ._compile import Executable, Future, compile
from ._error import (ArgumentError, Error, HeddleWarning, Message, OutOfMemoryError, PeerError,
                     ProgramError, Status, SystemFailure, TimeoutError, UnsupportedError)
from ._event import Event
from ._expr import Expr
from ._group import Group, launch
from ._host import HostBuilder
from ._program import Argument, Axis, Prediction, Program, Reference, Size, Timeline
from ._library import version as __version__
from ._symbolic import Block, Builder, Extent, Tensor, blocks

__all__ = [
    "Argument", "ArgumentError", "Array", "Axis", "Block", "Builder", "Call", "Error", "Event",
    "Executable", "Expr", "Extent", "Future", "Group", "HeddleWarning", "HostBuilder", "Message",
    "OutOfMemoryError", "PeerError", "Prediction", "Program", "ProgramError", "Reference", "Size",
    "Status", "SystemFailure", "Tensor", "Timeline", "TimeoutError", "UnsupportedError", "View",
    "blocks", "compile", "launch", "ops",
]

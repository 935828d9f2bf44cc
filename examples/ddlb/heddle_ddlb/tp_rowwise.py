"""Matmul + reduce-scatter: columns of A and rows of B are on the ranks, and each has
its rows of the sum over ranks."""
import heddle
from ddlb.primitives.TPRowwise.tp_rowwise import TPRowwise

from . import Heddle


class HeddleTPRowwise(Heddle, TPRowwise):
    def program(self, tp, dtype):
        b = heddle.Builder("tp_rowwise", mesh={"tp": tp})
        k, rows = self.k // tp, self.m // tp
        columns = b.input("a", dtype, (tp, tp, rows, k), axes=("tp", None, None, None))
        mine = b.input("b", dtype, (tp, 1, k, self.n), axes=("tp", None, None, None))
        partial = (columns @ mine).declare(axes=("tp", "stream", None, None))
        b.output("c", heddle.ops.sum(partial, dim=0).declare(axes=("tp", None, None)))
        return b.build()

    def place(self):
        tp, rows = self.communicator.world_size, self.m // self.communicator.world_size
        # A is cut from a wider matrix: copied once, so that no run has to.
        columns = self.A.contiguous().view(tp, rows, self.A.shape[1])
        return (columns, self.B.unsqueeze(0)), columns.new_empty(rows, self.n)

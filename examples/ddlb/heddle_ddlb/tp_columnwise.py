"""All-gather + matmul: rows of A are on the ranks, B is whole on all of them."""
import heddle
from ddlb.primitives.TPColumnwise.tp_columnwise import TPColumnwise

from . import Heddle


class HeddleTPColumnwise(Heddle, TPColumnwise):
    def program(self, tp, dtype):
        b = heddle.Builder("tp_columnwise", mesh={"tp": tp})
        rows = b.input("a", dtype, (tp, self.m // tp, self.k), axes=("tp", None, None))
        columns = b.input("b", dtype, (self.k, self.n))
        gathered = rows.set(("stream", None, None))  # multiplied as they come
        b.output("c", gathered @ columns)
        return b.build()

    def place(self):
        tp = self.communicator.world_size
        return (self.A, self.B), self.A.new_empty(tp, self.m // tp, self.n)

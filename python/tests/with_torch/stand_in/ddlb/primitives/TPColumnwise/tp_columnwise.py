from ddlb.primitives.base import Primitive


class TPColumnwise(Primitive):
    def _input_setup(self, a, b):
        self.A_unsharded, self.A, self.B = a, a[self.part(self.m)], b

    def validate(self, result):
        self.judge(result, self.A_unsharded, self.B)

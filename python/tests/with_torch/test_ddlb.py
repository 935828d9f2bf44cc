"""examples/ddlb, on a stand-in for DDLB: objects are made, run and validated as DDLB
does it."""
import os
import pathlib
import socket
import subprocess
import sys
import unittest
import warnings

import heddle
import torch
import torch.distributed as dist

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE / "stand_in"), str(pathlib.Path(os.environ["HEDDLE_ROOT"], "examples/ddlb"))]

from heddle_ddlb.tp_columnwise import HeddleTPColumnwise
from heddle_ddlb.tp_rowwise import HeddleTPRowwise

PRIMITIVES = HeddleTPColumnwise, HeddleTPRowwise


def use(primitive, **options):
    """What DDLB's worker does with one."""
    made = primitive(**options)
    for _ in range(3):
        last = made.run()
    made.validate(last)
    last.fill_(torch.nan)  # where the next run's will be
    made.validate(made.run())
    made.group.close()


def be_worker(port, seed):
    """A process of its own, where no process group is, as if mpirun had started it."""
    os.environ["DDLB_MASTER_PORT"] = port
    os.environ.pop("TORCHELASTIC_USE_AGENT_STORE", None)  # torchrun's, at another port
    for primitive in PRIMITIVES:
        use(primitive, m=8, n=5, k=4, seed=int(seed))
    dist.destroy_process_group()


class Ddlb(unittest.TestCase):
    def test_primitives_with_each_option(self):
        tp = dist.get_world_size()
        kinds = [{"transfer": transfer} for transfer in HeddleTPRowwise.ALLOWED_VALUES["transfer"]]
        kinds += [{"transfer": "ring", "streams": 3, "chunks": 2}, {"transfer": "bulk", "chunks": "2"}]
        kinds += [{"dtype": dtype} for dtype in ("float64", "bfloat16", "float16")]
        for primitive in PRIMITIVES:
            for options in kinds:
                with self.subTest(primitive.__name__, **options), warnings.catch_warnings():
                    # that one changes nothing in a program
                    warnings.simplefilter("ignore", heddle.HeddleWarning)
                    seed = int(torch.randint(2**31, ()))
                    use(primitive, m=4 * tp, n=7, k=3 * tp, seed=seed, **options)

    def test_process_of_its_own(self):
        found = [None]
        if dist.get_rank() == 0:
            with socket.socket() as free:
                free.bind(("localhost", 0))
                found = [free.getsockname()[1]]
        dist.broadcast_object_list(found)
        seed = int(torch.randint(2**31, ()))
        worker = subprocess.run([sys.executable, __file__, *map(str, (*found, seed))], text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
        self.assertEqual(worker.returncode, 0, worker.stdout)

    def test_what_does_not_fit(self):
        for words, options in (("transfer is torus", {"transfer": "torus"}),
                               ("float64, .* and not int32", {"dtype": "int32"}),
                               ("chunks|99", {"transfer": "ring", "chunks": 99})):
            for primitive in PRIMITIVES:
                with self.subTest(words), self.assertRaisesRegex(ValueError, words):
                    primitive(m=8, n=5, k=4, **options)


if __name__ == "__main__":
    be_worker(*sys.argv[1:])

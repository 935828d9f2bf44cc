"""What each rank of torchrun does: all tests, or those of one file, in one order on all
ranks."""
import os
import sys
import unittest
import warnings

import torch
import torch.distributed as dist

sys.path.insert(0, os.path.dirname(__file__))
warnings.simplefilter("ignore", FutureWarning)  # PyTorch renames its collectives
torch.set_num_threads(1)
torch.use_deterministic_algorithms(True)  # which makes new memory NaN
dist.init_process_group("gloo")
seed = [int.from_bytes(os.urandom(4), "little")]
dist.broadcast_object_list(seed)
torch.manual_seed(seed[0])
if dist.get_rank() == 0:
    print("seed", seed[0], flush=True)
tests = unittest.defaultTestLoader.discover(os.path.dirname(__file__), *sys.argv[1:])
# A rank that fails must not let the others wait.
done = unittest.TextTestRunner(verbosity=2, failfast=True).run(tests)
if not done.wasSuccessful():
    os._exit(1)
dist.destroy_process_group()

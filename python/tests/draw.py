"""Random data, new in each run of the tests: the seed is printed."""
import multiprocessing
import os
import sys

import numpy as np

SEED = int(os.environ.get("HEDDLE_SEED", 0)) or int.from_bytes(os.urandom(4), "little")
if multiprocessing.current_process().name == "MainProcess":
    print(f"seed {SEED} (HEDDLE_SEED)", file=sys.stderr)
RANDOM = np.random.default_rng(SEED)


def floats(*shape):
    return RANDOM.standard_normal(shape).astype("f4")


def integers(dtype, *shape):
    limits = np.iinfo(dtype)
    return RANDOM.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def poison(like):
    """An array for an answer that nothing has written yet."""
    return np.full_like(like, np.nan if like.dtype.kind == "f" else 77)

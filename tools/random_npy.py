#!/usr/bin/env python3
"""Writes a random array as .npy to standard output, without numpy.

usage: random_npy.py SEED DTYPE [EXTENT...]     DTYPE: f64 f32 f16 bf16 i64 i32 u8

Floating point is even in [-1, 1); bf16 is cut from f32, and stored as raw
bytes ('<V2'), as numpy has no name for it.
"""
import array
import math
import random
import struct
import sys

KINDS = {"f64": ("<f8", "d"), "f32": ("<f4", "f"), "bf16": ("<V2", "f"),
         "f16": ("<f2", "e"), "i64": ("<i8", "q"), "i32": ("<i4", "i"),
         "u8": ("|u1", "B"), "i8": ("|i1", "b")}


def elements(dtype, count, rng):
    code = KINDS[dtype][1]
    if code in "df":
        data = array.array(code, (2 * rng.random() - 1 for _ in range(count)))
        if sys.byteorder == "big":
            data.byteswap()
        if dtype != "bf16":
            return data.tobytes()
        halves = array.array("H", data.tobytes())
        return halves[1::2].tobytes()
    if code == "e":
        return struct.pack("<%de" % count,
                           *(2 * rng.random() - 1 for _ in range(count)))
    low = 0 if dtype == "u8" else -8
    return struct.pack("<%d%s" % (count, code),
                       *(rng.randrange(low, low + 16) for _ in range(count)))


def header(dtype, shape):
    text = "{'descr': '%s', 'fortran_order': False, 'shape': %r, }" % (
        KINDS[dtype][0], tuple(shape))
    text += " " * (63 - (10 + len(text)) % 64) + "\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text.encode()


def main():
    if len(sys.argv) < 3 or sys.argv[2] not in KINDS:
        sys.exit(__doc__)
    shape = [int(word) for word in sys.argv[3:]]
    data = elements(sys.argv[2], math.prod(shape), random.Random(sys.argv[1]))
    sys.stdout.buffer.write(header(sys.argv[2], shape) + data)


main()

"""Checks c = a w^T + bias, computed here, against a file that heddle wrote.

usage: linear.py A W BIAS C
"""
import sys

import npy

(_, (groups, rows, depth), a), (_, (cols, _), w), (_, _, bias), (
    descr, shape, c) = (npy.read(path) for path in sys.argv[1:5])
assert descr == "<f4" and shape == (groups, rows, cols), (descr, shape)
for row in range(groups * rows):
    for col in range(cols):
        want = bias[col] + sum(a[row * depth + i] * w[col * depth + i]
                               for i in range(depth))
        got = c[row * cols + col]
        assert abs(got - want) <= 1e-5, (row, col, got, want)
print(f"{groups * rows * cols} values are right")

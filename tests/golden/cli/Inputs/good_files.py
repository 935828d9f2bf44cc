"""Reads files of every kind through `heddle run` and compares what comes back.

usage: good_files.py HEDDLE PROGRAM FOLDER
"""
import json
import os
import struct
import subprocess
import sys

import npy

heddle, program = sys.argv[1], os.path.abspath(sys.argv[2])
os.chdir(sys.argv[3])
SIX = [0.5, -1.0, 2.0, 3.25, -4.0, 5.0]


def run(*arguments):
    subprocess.run([heddle, "run", program, *arguments], check=True,
                   stdout=subprocess.DEVNULL)


def expect(argument, descr, shape, values, *options):
    """`argument` of the program comes out as these values."""
    run(*options, "--out", f"{argument}=out.npy")
    got = npy.read("out.npy")
    assert got == (descr, shape, tuple(values)), (options, got)


def f32(values):
    return struct.pack("<6f", *values)


# Versions, orders, and conversions that keep every value.
for version in (1, 2, 3):
    npy.write("a.npy", "<f4", (2, 3), SIX, version=version)
    expect("y", "<f4", (2, 3), SIX, "--in", "a=a.npy")
turned = [SIX[i] for i in (0, 3, 1, 4, 2, 5)]
npy.write("a.npy", "<f4", (2, 3), turned, fortran=True)
expect("y", "<f4", (2, 3), SIX, "--in", "a=a.npy")
npy.write("a.npy", "<f2", (2, 3), SIX)
expect("y", "<f4", (2, 3), SIX, "--in", "a=a.npy")
npy.write("a.npy", "<f2", (2, 3), turned, fortran=True)
expect("y", "<f4", (2, 3), SIX, "--in", "a=a.npy")
npy.write("i.npy", "<i4", (2, 3), range(-3, 3))
expect("j", "<i8", (2, 3), range(-3, 3), "--in", "i=i.npy")
npy.write("i.npy", "<i8", (2, 3), [2**62 + 1, -2**63, 2**63 - 1, 0, 1, 2])
expect("j", "<i8", (2, 3), [2**62 + 1, -2**63, 2**63 - 1, 0, 1, 2], "--in",
       "i=i.npy")
npy.write("s.npy", "<f4", (), [21])
expect("s", "<f4", (), [42], "--in", "s=s.npy")

# Raw elements are what the program says; --cast rounds.
bits = [0x3F80, 0xC000, 0x0001, 0x7F80, 0x4049, 0x8000]
npy.write("b.npy", "<V2", (2, 3), bits)
expect("z", "<V2", (2, 3), bits, "--in", "b=b.npy")
npy.write("b.npy", "<f4", (2, 3), [1, 1 + 2**-9, 3, 1e-40, 3.0e38, -0.0])
expect("z", "<V2", (2, 3), [0x3F80, 0x3F80, 0x4040, 0x0001, 0x7F62, 0x8000],
       "--cast", "--in", "b=b.npy")
npy.write("a.npy", "<f8", (2, 3), [0.1, *SIX[1:]])
expect("y", "<f4", (2, 3), struct.unpack("<6f", f32([0.1, *SIX[1:]])), "--cast",
       "--in", "a=a.npy")

# A tensor that does not begin at an aligned offset, among others.
header = json.dumps({
    "__metadata__": {"format": "pt"},
    "odd": {"dtype": "I8", "shape": [3], "data_offsets": [0, 3]},
    "layer.a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [3, 27]},
    "b": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [27, 39]},
}).encode() + b"   "
with open("m.safetensors", "wb") as file:
    file.write(struct.pack("<Q", len(header)) + header + b"abc" + f32(SIX))
    file.write(struct.pack("<6H", *bits))
expect("y", "<f4", (2, 3), SIX, "--in", "a=m.safetensors:layer.a")
expect("z", "<V2", (2, 3), bits, "--in", "b=m.safetensors:b")

# An escaped backslash before u0000 is no NUL.
header = json.dumps({"a\\u0000": {"dtype": "F32", "shape": [2, 3],
                                 "data_offsets": [0, 24]}}).encode()
with open("m.safetensors", "wb") as file:
    file.write(struct.pack("<Q", len(header)) + header + f32(SIX))
expect("y", "<f4", (2, 3), SIX, "--in", "a=m.safetensors:a\\u0000")

# A pipe is read, not mapped.
with open("a.npy", "rb") as file:
    data = file.read()
subprocess.run([heddle, "run", program, "--in", "a=-", "--cast", "--out",
                "y=out.npy"], check=True, input=data, stdout=subprocess.DEVNULL)
assert npy.read("out.npy")[2][1:] == tuple(SIX[1:])

"""Fills a folder with .safetensors files from which `x` cannot be read."""
import json
import os
import struct
import sys

os.chdir(sys.argv[1])
SIX = struct.pack("<6f", *range(6))


def raw(name, header, data=SIX, length=None):
    with open(name + ".safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(header) if length is None else length))
        file.write(header + data)


def tensor(dtype="F32", shape=(2, 3), begin=0, end=24):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def write(name, tensors, data=SIX, **options):
    raw(name, json.dumps(tensors).encode(), data, **options)


raw("crowded", b'{"x":[' + b"0," * 4000000 + b"0]}")
raw("deep", b"[" * 100000)
raw("json", b'{"x": {"dtype": "F32", "shape": [2')
raw("list", b"[1, 2]")
raw("twice", b'{"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}, '
    b'"x": {"dtype": "F32", "shape": [4], "data_offsets": [8, 24]}}')
write("cut", {"x": tensor()}, SIX[4:])
write("fraction", {"x": tensor(shape=(2.5, 3))})
write("header", {"x": tensor()}, length=2**63)
write("hole", {"x": tensor(end=8, shape=(2,)),
               "y": tensor(shape=(1,), begin=20)})
write("kind", {"x": tensor(dtype="I16", shape=(12,))})
write("long", {"x": tensor()}, SIX + b"more")
write("name", {"layer.x": tensor()})
write("negative", {"x": tensor(shape=(-2, -3))})
write("none", {"__metadata__": {"format": "pt"}}, b"")
write("nul", {"x\0y": tensor()})
write("offsets", {"x": tensor(end=20)}, SIX[4:])
write("overflow", {"x": tensor(shape=(2**52, 2**52))})
write("overlap", {"x": tensor(), "y": tensor(shape=(3,), begin=12)})
write("reversed", {"x": tensor(begin=24, end=0)})
write("shape", {"x": tensor(shape=(3, 2))})
with open("empty.safetensors", "wb"):
    pass

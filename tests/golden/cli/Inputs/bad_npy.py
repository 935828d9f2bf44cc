"""Fills a folder with .npy files that are wrong for `%a : f32[2, 3]`."""
import os
import struct
import sys

import npy

os.chdir(sys.argv[1])
SIX = struct.pack("<6f", *range(6))
HEAD = "{'descr': '<f4', 'fortran_order': False, "


def raw(name, header, data=SIX, length=None):
    header += " " * (63 - (10 + len(header)) % 64) + "\n"
    with open(name + ".npy", "wb") as file:
        file.write(b"\x93NUMPY\1\0")
        file.write(struct.pack("<H", len(header) if length is None else length))
        file.write(header.encode("latin1") + data)


raw("big", HEAD + "'shape': (%d, %d)}" % (2**40, 2**40))
raw("big_endian", HEAD.replace("<", ">") + "'shape': (2, 3)}")
raw("cut", HEAD + "'shape': (2, 3)}", SIX[4:])
raw("dims", HEAD + "'shape': (1, 1, 1, 1, 1, 1, 1, 2, 3)}")
raw("header", HEAD + "'shape': (2, 3)}", length=60000)
raw("junk", HEAD + "'shape': (2, 3)} x")
raw("key", HEAD + "'shape': (2, 3), 'more': 1}")
raw("long", HEAD + "'shape': (2, 3)}", SIX + b"more")
raw("missing", "{'descr': '<f4', 'shape': (2, 3)}")
raw("negative", HEAD + "'shape': (-2, -3)}")
raw("object", HEAD.replace("<f4", "|O") + "'shape': (2, 3)}")
raw("overflow", HEAD + "'shape': (99999999999999999999, 3)}")
raw("struct", HEAD.replace("'<f4'", "[('x', '<f4')]") + "'shape': (2, 3)}")
raw("escape", HEAD.replace("<f4", "\x1b[31m") + "'shape': (2, 3)}")
raw("nul", HEAD.replace("<f4", "<f4\0") + "'shape': (2, 3)}")
raw("twice", HEAD + "'shape': (2, 3), 'descr': '<f4'}")
npy.write("double.npy", "<f8", (2, 3), range(6))
npy.write("raw.npy", "<V2", (2, 3), range(6))
npy.write("scalar.npy", "<f4", (), [1])
npy.write("turned.npy", "<f4", (3, 2), range(6))
for name, data in (("empty", b""), ("text", b"1 2 3\n4 5 6\n"),
                   ("version", b"\x93NUMPY\x09\0" + b" " * 100)):
    with open(name + ".npy", "wb") as file:
        file.write(data)

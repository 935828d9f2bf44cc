"""Writes the numbers behind the first argument to it, an npy file of i32; rows of
several have commas between, 1,2 3,4."""
import struct
import sys

path, rows = sys.argv[1], [[int(x) for x in word.split(",")] for word in sys.argv[2:]]
counts = [x for row in rows for x in row]
shape = (len(rows),) if len(rows) == len(counts) else (len(rows), len(rows[0]))
head = "{'descr': '<i4', 'fortran_order': False, 'shape': %s, }" % (shape,)
head += " " * (63 - (len(head) + 10) % 64) + "\n"
with open(path, "wb") as file:
    file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode())
    file.write(struct.pack("<%di" % len(counts), *counts))

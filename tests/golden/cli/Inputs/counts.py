"""Writes the numbers behind the first argument to it, an npy file of i32."""
import struct
import sys

path, counts = sys.argv[1], [int(word) for word in sys.argv[2:]]
head = "{'descr': '<i4', 'fortran_order': False, 'shape': (%d,), }" % len(counts)
head += " " * (63 - (len(head) + 10) % 64) + "\n"
with open(path, "wb") as file:
    file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode())
    file.write(struct.pack("<%di" % len(counts), *counts))

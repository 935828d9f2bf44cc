"""Reads and writes .npy files without numpy."""
import ast
import struct

CODES = {"<f8": "d", "<f4": "f", "<f2": "e", "<i8": "q", "<i4": "i", "|u1": "B",
         "<V2": "H", "|V1": "B"}


def write(path, descr, shape, values, fortran=False, version=1):
    text = "{'descr': %r, 'fortran_order': %r, 'shape': %r, }" % (
        descr, fortran, tuple(shape))
    start = 10 if version == 1 else 12
    text += " " * (63 - (start + len(text)) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY" + bytes([version, 0]))
        file.write(struct.pack("<H" if version == 1 else "<I", len(text)))
        file.write(text.encode("latin1"))
        file.write(pack(descr, values))


def pack(descr, values):
    return struct.pack("<%d%s" % (len(values), CODES[descr]), *values)


def read(path):
    """descr, shape, values"""
    with open(path, "rb") as file:
        data = file.read()
    assert data[:8] == b"\x93NUMPY\1\0", path
    (length,) = struct.unpack("<H", data[8:10])
    assert (10 + length) % 64 == 0, path
    header = ast.literal_eval(data[10:10 + length].decode("latin1"))
    assert not header["fortran_order"]
    code = CODES[header["descr"]]
    size = struct.calcsize("<" + code)
    return header["descr"], header["shape"], struct.unpack(
        "<%d%s" % ((len(data) - 10 - length) // size, code), data[10 + length:])

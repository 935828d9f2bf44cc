"""Makes heddle/_maps.py, a function for each operation on elements, from the rows
of ir/ops.def.

usage: operations.py OPS_DEF OUT
"""
import pathlib
import re
import sys

HEAD = '''"""Operations on elements: made from ir/ops.def when the wheel is built."""
from __future__ import annotations

from ._symbolic import Operand, Result, Tensor, apply_map

__all__ = [{names}]
'''
FUNCTION = '''

def {name}({parameters}, *, out: Result = None) -> Tensor:
    """`%y = {name} {operands}`"""
    return apply_map("{name}", "{numbers}", ({values}), (), out)
'''
NAMES = {1: "x", 2: "ab", 3: "mab"}  # of the operands: select's first one is a mask


def function(name, numbers, n):
    operands = NAMES[n]
    kind = "Tensor" if n == 1 else "Operand"
    kinds = ["Tensor" if operand == "m" else kind for operand in operands]
    return FUNCTION.format(
        name=name, numbers=numbers, values=", ".join(operands) + "," * (n == 1),
        parameters=", ".join(f"{o}: {k}" for o, k in zip(operands, kinds)),
        operands=", ".join(f"%{operand}" for operand in operands))


rows = re.findall(r'^HD_MAP\(\w+, "(\w+)", (\w+), \w+, ([1-9]), 0, 0\)',
                  pathlib.Path(sys.argv[1]).read_text(), re.M)
names = ", ".join(f'"{name}"' for name, _, _ in rows)
pathlib.Path(sys.argv[2]).write_text(
    HEAD.format(names=names) + "".join(function(name, numbers, int(n)) for name, numbers, n in rows))

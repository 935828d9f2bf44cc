"""Expressions of programs, of which ranks compute their own."""
from __future__ import annotations

import numbers
from typing import Any, NoReturn, Union

from ._error import refuse

Index = Union[int, "Expr"]


def word(value: Any) -> str:
    """An operand of an expression, as the text form has it."""
    if isinstance(value, Summand):
        return value.as_word()
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        refuse(f"{value!r} is neither a whole number nor an expression")
    found = int(value)
    return str(found) if found >= 0 else f"({found})"


def joined(a: Any, sign: str, b: Any) -> Expr:
    return Expr(f"({word(a)} {sign} {word(b)})")


class Summand:
    """What stands in sums and differences of expressions."""
    __slots__ = ()

    def as_word(self) -> str:
        """As an operand of an expression."""
        raise NotImplementedError

    def __add__(self, other: Any) -> Expr:
        return joined(self, "+", other)

    def __radd__(self, other: Any) -> Expr:
        return joined(other, "+", self)

    def __sub__(self, other: Any) -> Expr:
        return joined(self, "-", other)

    def __rsub__(self, other: Any) -> Expr:
        return joined(other, "-", self)


class Expr(Summand):
    """A number that each rank computes as it goes: its coordinate on an axis, the
    variable of a loop, or what is computed of these by `+ - * // %`, compared by
    `== != < <= > >=`, and joined by `& | ~`, which are and, or, not. `%` is never
    negative, `//` rounds down."""
    __slots__ = ("text",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return f"<heddle.Expr {self.text}>"

    def __str__(self) -> str:
        return self.text

    def __bool__(self) -> NoReturn:
        raise TypeError(f"{self.text} has a value only when the program runs: `with b.when(..)` "
                        "decides by it, and `& | ~` stand for and, or, not")

    def as_word(self) -> str:
        return self.text

    def __mul__(self, other: Index) -> Expr:
        return joined(self, "*", other)

    def __rmul__(self, other: Index) -> Expr:
        return joined(other, "*", self)

    def __floordiv__(self, other: Index) -> Expr:
        return joined(self, "/", other)

    def __rfloordiv__(self, other: Index) -> Expr:
        return joined(other, "/", self)

    def __mod__(self, other: Index) -> Expr:
        return joined(self, "mod", other)

    def __rmod__(self, other: Index) -> Expr:
        return joined(other, "mod", self)

    def __neg__(self) -> Expr:
        return Expr(f"(-{self.text})")

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return joined(self, "==", other)

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return joined(self, "!=", other)

    def __lt__(self, other: Index) -> Expr:
        return joined(self, "<", other)

    def __le__(self, other: Index) -> Expr:
        return joined(self, "<=", other)

    def __gt__(self, other: Index) -> Expr:
        return joined(self, ">", other)

    def __ge__(self, other: Index) -> Expr:
        return joined(self, ">=", other)

    def __and__(self, other: Index) -> Expr:
        return joined(self, "and", other)

    def __or__(self, other: Index) -> Expr:
        return joined(self, "or", other)

    def __invert__(self) -> Expr:
        return Expr(f"(not {self.text})")


def of_two(name: str, a: Index, b: Index) -> Expr:
    return Expr(f"{name}({word(a)}, {word(b)})")

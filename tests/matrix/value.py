"""Arrays as numpy has them in float64, each element with a bound on how far a correct run
may be from it: 0 says exactly that, infinity that anything is right.

Bounds are worst cases, to first order and a little more: u is half the distance from 1 to
the next number of a dtype, a rounding moves x by u |x| at most, and a sum of K terms that
is computed with unit u by (K + 2) u times the sum of their magnitudes. Sums of small whole
numbers are exact."""
from dataclasses import dataclass

import numpy as np

DIGITS = {"f64": 53, "f32": 24, "f16": 11, "bf16": 8}
SMALLEST = {"f64": 0.0, "f32": 2.0**-126, "f16": 2.0**-24, "bf16": 2.0**-126}
STORED = {"f64": "<f8", "f32": "<f4", "f16": "<f2", "bf16": "<u2", "i32": "<i4", "i64": "<i8",
          "u8": "u1"}


@dataclass
class Value:
    v: np.ndarray
    e: np.ndarray

    def map(self, function):
        """What only moves elements about."""
        return Value(function(self.v), function(self.e))


def exact(v):
    v = np.asarray(v, float)
    return Value(v, np.zeros_like(v))


def is_float(dtype):
    return dtype in DIGITS


def unit(dtype):
    """float64 is what is compared with, so that its own roundings count twice."""
    return 2.0 ** (1 - DIGITS[dtype] if dtype == "f64" else -DIGITS[dtype])


def work(dtype):
    """The unit of what computes: fp32 or better."""
    return unit("f64" if dtype == "f64" else "f32")


def nearest(v, dtype):
    """v as the dtype has it, rounded to nearest even; what is moderate in size."""
    if not is_float(dtype) or dtype == "f64":
        return v
    if dtype == "bf16":
        m, power = np.frexp(v)
        return np.ldexp(np.rint(np.ldexp(m, 8)), power - 8)
    return v.astype(STORED[dtype]).astype(float)


def cast(x, dtype):
    """Stored once, by what adds no error of its own."""
    near = nearest(x.v, dtype)
    if not is_float(dtype):
        return x
    return Value(near, np.where(x.e == 0, 0, x.e + unit(dtype) * (np.abs(near) + x.e)
                                + np.abs(near - x.v) + SMALLEST[dtype]))


def store(x, dtype):
    """The result of arithmetic, rounded when it is stored."""
    if not is_float(dtype):
        return x
    rounds = (x.e > 0) | (nearest(x.v, dtype) != x.v)
    return Value(x.v, x.e + rounds * ((unit(dtype) + work(dtype)) * (np.abs(x.v) + x.e)
                                      + SMALLEST[dtype]))


def is_whole(*values):
    return all((x.e == 0).all() and (x.v == np.rint(x.v)).all() for x in values)


def rounding(size, count, u, whole):
    """The bound of a sum of `count` terms whose magnitudes add up to `size`."""
    bound = (count + 2) * u * size
    return np.where(size * u <= 0.5, 0, bound) if whole else bound


def added(x, axis, u, count=None):
    """The sum along an axis; `count` roundings with unit u, one a term as a rule."""
    size = np.abs(x.v).sum(axis)
    return Value(x.v.sum(axis), x.e.sum(axis) + rounding(size, count or x.v.shape[axis], u,
                                                         is_whole(x)))


def product(a, b, u):
    size = np.abs(a.v) @ np.abs(b.v)
    return Value(a.v @ b.v, a.e @ np.abs(b.v) + np.abs(a.v) @ b.e + a.e @ b.e
                 + rounding(size, a.v.shape[-1], u, is_whole(a, b)))


def least_and_most(x, function):
    """A function that only rises or only falls, of x as far as x may be off."""
    v = function(x.v)
    return Value(v, np.maximum(np.abs(function(x.v - x.e) - v), np.abs(function(x.v + x.e) - v)))


def attention(q, k, v, scale, seen, dtype):
    """softmax(scale q k^T) v of [.., s, d], [.., t, d], [.., t, e], and the logarithm of
    what it divides by; `seen` says which row sees which key, each row one at least. Where
    operands have 16 bits weights may be rounded to these, and results ahead of their end."""
    u, d, t = work(dtype), q.v.shape[-1], k.v.shape[-2]
    turned = k.map(lambda each: np.swapaxes(each, -1, -2))
    s = product(q, turned, u)
    size = scale * (np.abs(q.v) @ np.abs(turned.v))
    s = Value(scale * s.v, scale * s.e + (d + 4) * u * size)
    top = np.where(seen, s.v, -np.inf).max(-1, keepdims=True)
    weight = np.where(seen, np.exp(s.v - top), 0)
    total = weight.sum(-1, keepdims=True)
    p = weight / total
    off = np.where(seen, s.e, 0).max(-1, keepdims=True)
    o = p @ v.v
    spread = (p[..., None] * np.abs(v.v[..., None, :, :] - o[..., None, :])).sum(-2)
    mean = p @ np.abs(v.v)
    once = work(dtype) if dtype in ("f32", "f64") else 2 * unit(dtype)
    oe = np.expm1(2 * off) * spread + p @ v.e + ((t + 16) * u + once) * mean
    lse = (top + np.log(total))[..., 0]
    return (Value(o, oe + 0 * o),
            Value(lse, off[..., 0] + (t + 16) * u * (1 + np.abs(lse))))


def attention_grad(q, k, v, o, lse, do, scale, seen, dtype):
    """Gradients of q, of k and of v, of as many heads each."""
    u = work(dtype)
    half = 0 if dtype in ("f32", "f64") else unit(dtype)
    turn = lambda x: x.map(lambda each: np.swapaxes(each, -1, -2))

    def joined(a, b):
        """Of factors and gradients that may be rounded to 16 bits on their way."""
        size = np.abs(a.v) @ np.abs(b.v)
        x = product(a, b, u)
        return Value(x.v, x.e + 4 * half * (size + x.e))

    s, size = product(q, turn(k), u), np.abs(q.v) @ np.abs(turn(k).v)
    log, off = lse.v[..., None], lse.e[..., None]
    p = np.where(seen, np.exp(scale * s.v - log), 0)
    pe = p * np.expm1(scale * (s.e + 4 * u * size) + off + 4 * u * (np.abs(log) + 2)) + half * p
    slope = product(do, turn(v), u)
    delta = added(Value(do.v * o.v, np.abs(do.v) * o.e + np.abs(o.v) * do.e + do.e * o.e), -1, u)
    left = slope.v - delta.v[..., None]
    le = slope.e + delta.e[..., None] + 2 * u * (np.abs(slope.v) + np.abs(delta.v[..., None]))
    ds = Value(scale * p * left, scale * (p * le + np.abs(left) * pe + pe * le)
               + (4 * u + half) * np.abs(scale * p * left))
    return joined(ds, k), joined(turn(ds), q), joined(turn(Value(p, pe)), do)


def merge(o1, l1, o2, l2, dtype):
    u = work(dtype)
    a = 1 / (1 + np.exp(l2.v - l1.v))
    o = a[..., None] * o1.v + (1 - a[..., None]) * o2.v
    off = l1.e + l2.e + 4 * u * (np.abs(l1.v) + np.abs(l2.v) + 4)
    moved = (a * (1 - a) * np.expm1(2 * off))[..., None]
    oe = (moved * np.abs(o1.v - o2.v) + a[..., None] * o1.e + (1 - a[..., None]) * o2.e
          + 8 * u * (np.abs(o1.v) + np.abs(o2.v)))
    lse = np.logaddexp(l1.v, l2.v)
    return Value(o, oe), Value(lse, off + 8 * u * (1 + np.abs(lse)))


def misses(got, x):
    """Where what was got is wrong."""
    with np.errstate(invalid="ignore"):
        return ~((got == x.v) | (np.abs(got - x.v) <= x.e))


def to_file(v, dtype):
    """As a .npy file has the dtype."""
    if dtype != "bf16":
        return v.astype(STORED[dtype])
    bits = (np.asarray(v, "<f4").view("<u4") >> 16).astype("<u2")
    return bits.view(np.dtype("V2")) if bits.ndim else bits.reshape(1).view("V2").reshape(())


def from_file(array, dtype):
    if dtype != "bf16":
        return array.astype(float)
    bits = np.frombuffer(array.tobytes(), "<u2").reshape(array.shape)
    return (bits.astype("<u4") << 16).view("<f4").astype(float)

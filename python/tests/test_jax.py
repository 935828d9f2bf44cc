"""heddle.jax: runs within functions of JAX's, on the cpu."""
import os
import pathlib
import re
import time
import unittest

os.environ["JAX_PLATFORMS"] = "cpu"

import heddle
import heddle.jax
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from draw import floats, integers

PAGE = pathlib.Path(os.environ["HEDDLE_ROOT"], "docs/python.md")
SCALED = """heddle 2 tensor program scaled in %x : f32[6, 1, 5] in %s : f32[]
out %y : f32[6, 1, 5] { %y = scale %x by %s }"""
CALLED = """heddle 2 tensor program called in %x : DT[6, 5] out %y : DT[6, 5]
{ %y = call "fn" %x }"""
GATHER = """heddle 2 tensor program gather mesh tp=2 in %x : f32[64@tp, 16] out %y : f32[64, 16]
{ %y = set %x }"""
SCATTER = """heddle 2 tensor program scatter mesh tp=2 in %g : f32[2@tp, 64, 16]
out %x : f32[64@tp, 16] { %x = sum %g dim 0 }"""
# A run of one may be taken for one of another, if they are not in order.
COUNTED = """heddle 2 tensor program counted mesh tp=2 in %x : i32[2@tp, 300000]
out %y : i32[2, 300000] { %y = set %x }"""


def train(group, x, w):
    """Steps of the layer that the page shows, whose rows are gathered."""
    (block,) = re.findall(r"^```py\n(gather = heddle.jax.*?)^```$", PAGE.read_text(), re.M | re.S)
    names = {"heddle": heddle, "jax": jax, "jnp": jnp, "group": group,
             "gather_program": heddle.Program(GATHER), "scatter_program": heddle.Program(SCATTER)}
    exec(block, names)
    x, w, told = jnp.asarray(x[32 * group.rank:][:32]), jnp.asarray(w[group.rank]), []
    for _ in range(5):
        value, x, w = names["step"](x, w)
        told.append(value)
    late = jax.jit(lambda x, a: x + 0 * jnp.sum(a @ a @ a))
    last = names["step"](late(x, jnp.ones((900, 900))), w)
    group.close()  # while it is under way
    jax.block_until_ready(last)
    return np.asarray(told), np.asarray(x), np.asarray(w)


def count(group, values):
    """Many runs of two executables, by one function and by several, none waited for. JAX
    has one thread, which is that of the calls."""
    os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
    first, second = (heddle.jax.call(heddle.compile(heddle.Program(COUNTED), group))
                     for _ in range(2))

    @jax.jit
    def both(x):
        return second(first(x)[1 - group.rank][None] + 1), first(x)

    single, found = jax.jit(first), []
    for value in values:
        x = jnp.full((1, 300000), value + group.rank, "int32")
        found += [*both(x), single(x), second(x)]
    for i, value in enumerate(values):
        after, *same = found[4 * i:4 * i + 4]
        for y in same:
            np.testing.assert_array_equal(y[:, 0] - value, [0, 1])
            assert (y == y[:, :1]).all()
        np.testing.assert_array_equal(after[:, -1] - value, [2, 1])


class Late(LookupError):
    """Is told after those that tell of it."""

    def __reduce__(self):
        time.sleep(2)
        return Late, ()


def fail(group, how):
    gather = heddle.jax.call(heddle.compile(heddle.Program(GATHER), group, timeout=1.0))
    x = jnp.zeros((32, 16))
    if group.rank == 1:
        if how == "die":
            os._exit(3)
        raise Late
    (jax.jit(gather) if how == "raise" else gather)(x)


class Jax(unittest.TestCase):
    def setUp(self):
        self.group = heddle.Group.local()
        self.addCleanup(self.group.close)

    def called(self, text, sizes=None, **more):
        executable = heddle.compile(heddle.Program(text), self.group, **more)
        return heddle.jax.call(executable, sizes=sizes)

    def test_traced_and_not_it_is_the_run(self):
        scaled, x = self.called(SCALED), floats(6, 1, 5)
        want = x * np.float32(0.25)
        outer = jax.jit(lambda x, s: scaled(x * 1, s=s)[:, 0] + 0)
        for s in (0.25, np.float32(0.25), jnp.float32(0.25)):
            np.testing.assert_array_equal(outer(x, s), want[:, 0])
            np.testing.assert_array_equal(scaled(jnp.asarray(x), s), want)
            np.testing.assert_array_equal(scaled(x[:, 0], s), want)  # one index is none
        self.assertIsInstance(scaled(x, 1), jax.Array)
        before = scaled.executable.stats()["runs"]
        again = jax.jit(lambda: scaled(jnp.ones((6, 1, 5)), 2.0))  # a constant is no reason to fold
        for _ in range(3):
            again()
        jax.effects_barrier()
        self.assertEqual(scaled.executable.stats()["runs"], before + 3)

    def test_loops_and_branches(self):
        scaled, x = self.called(SCALED), floats(6, 1, 5)
        looped = jax.jit(lambda x, n: jax.lax.fori_loop(0, n, lambda i, x: scaled(x, 0.5), x))
        np.testing.assert_array_equal(looped(x, 4), x / 16)
        branched = jax.jit(lambda x, p: jax.lax.cond(p, lambda: scaled(x, 2.0), lambda: x))
        np.testing.assert_array_equal(branched(x, True), 2 * x)
        np.testing.assert_array_equal(branched(x, False), x)

    def test_inout_and_several_outputs(self):
        both = self.called("""heddle 2 tensor program both in %x : i32[7] inout %s : i32[7]
            out %a : i32[7] out %b : u8[7] { %a = neg %x %b = lt %x, %a %s = add %s, %x }""")
        x, s = (jnp.asarray(integers("i4", 7)) for _ in range(2))
        for function in (both, jax.jit(both)):
            old = np.array(s)
            added, a, b = function(x, s)
            np.testing.assert_array_equal(added, old + x)
            np.testing.assert_array_equal(s, old)
            np.testing.assert_array_equal(a, -x)
            np.testing.assert_array_equal(b, (x < -x).astype("u1"))
        nothing = self.called("heddle 2 tensor program nothing in %x : f32[6] { }", check=False)
        self.assertIsNone(nothing(jnp.zeros(6)))

    def test_sizes(self):
        text = """heddle 2 tensor program sized param m in 1..40 in %x : i32[m, 3]
            out %y : i32[m, 3] { %y = neg %x }"""
        x = jnp.asarray(integers("i4", 40, 3))
        np.testing.assert_array_equal(jax.jit(self.called(text, {"m": 17}))(x)[:17], -x[:17])
        for sizes in ({"m": 41}, None):
            with self.assertLogs("jax"):
                self.assertRaisesRegex(heddle.ArgumentError, "m", self.called(text, sizes), x)

    def test_dtypes(self):
        def fn(call):
            np.asarray(call.results[0])[...] = np.asarray(call.operands[0])[::-1]

        for name, dtype in (("f16", "f2"), ("i32", "i4"), ("u8", "u1"),
                            ("bf16", ml_dtypes.bfloat16), ("f8e4m3", ml_dtypes.float8_e4m3fn),
                            ("f8e5m2", ml_dtypes.float8_e5m2)):
            called = jax.jit(self.called(CALLED.replace("DT", name), calls={"fn": fn}))
            x = np.abs(floats(6, 5) * 9).astype(dtype)
            y = called(jnp.asarray(x))
            self.assertEqual(y.dtype, x.dtype)
            np.testing.assert_array_equal(np.asarray(y), x[::-1])
        for name in ("f64", "i64"):
            with self.assertRaisesRegex(heddle.ArgumentError, "jax_enable_x64"):
                self.called(CALLED.replace("DT", name), calls={"fn": fn})

    def test_what_does_not_fit_is_told_when_it_is_traced(self):
        scaled, x = self.called(SCALED), jnp.zeros((6, 1, 5))
        misfit = heddle.ArgumentError
        for args, kind, words in (((x[:5], 1.0), misfit, r"%x is f32\[6, 1, 5\].*\[5, 1, 5\]"),
                                  ((x.astype("int32"), 1.0), misfit, "%x is f32.*int32"),
                                  (("x", 1.0), misfit, "%x is given str"),
                                  ((1.0, 1.0), misfit, "%x is given float"),
                                  ((x, x), misfit, "%s"),
                                  ((x,), TypeError, "misses an array for %s"),
                                  ((x, 1.0, x), TypeError, "takes 2 arrays")):
            self.assertRaisesRegex(kind, words, scaled, *args)
            self.assertRaisesRegex(kind, words, jax.jit(lambda: scaled(*args)))
        self.assertRaisesRegex(TypeError, "no %y", lambda: scaled(x, 1.0, y=x))
        self.assertRaisesRegex(TypeError, "twice", lambda: scaled(x, x=x))
        self.assertEqual(scaled.executable.stats()["runs"], 0)
        self.assertRaisesRegex(ValueError, "vmap", jax.vmap(lambda x: scaled(x, 1.0)), x[None])
        self.assertRaisesRegex(ValueError, "JVP", jax.grad(lambda x: scaled(x, 1.0).sum()), x)
        fixed = heddle.compile(heddle.Program(SCALED), self.group,
                               fixed={"x": self.group.empty((6, 1, 5), "f32")})
        self.assertRaisesRegex(heddle.ArgumentError, "fixed", heddle.jax.call, fixed)
        self.assertRaisesRegex(misfit, "event", self.called, """heddle 2 host program e
            in %go : event[] in %x : f32[6] out %y : f32[6] { wait %go %y = copy %x }""")

    def test_exception_of_a_call_comes_out(self):
        def fn(call):
            raise KeyError("mine")

        x, text = jnp.zeros((6, 5)), CALLED.replace("DT", "f32")
        called = self.called(text, calls={"fn": fn})
        with self.assertLogs("jax"), \
                self.assertRaisesRegex(heddle.SystemFailure, "KeyError: 'mine'") as caught:
            called(x)
        self.assertIsInstance(caught.exception.__cause__, KeyError)
        self.group = heddle.Group.local()  # the failure of a run is its group's
        self.addCleanup(self.group.close)
        called = self.called(text, calls={"fn": fn})
        with self.assertLogs("jax"), \
                self.assertRaisesRegex(jax.errors.JaxRuntimeError, "KeyError: 'mine'"):
            jax.jit(called)(x).block_until_ready()
        self.assertIsInstance(called.error, heddle.SystemFailure)

    def test_closed(self):
        scaled, x = self.called(SCALED), jnp.zeros((6, 1, 5))
        self.group.close()
        with self.assertLogs("jax"):
            self.assertRaisesRegex(heddle.ArgumentError, "closed", scaled, x, 1.0)

    def test_ranks_train_a_layer(self):
        x, w = floats(64, 16), floats(2, 16, 8)

        def loss(x, w):
            return [jnp.sum(jnp.tanh(x @ w[rank])) for rank in (0, 1)]

        answers, values = heddle.launch(2, train, x, w), []
        x, w = jnp.asarray(x), jnp.asarray(w)
        for _ in range(5):
            values.append(loss(x, w))
            dx, dw = jax.grad(lambda x, w: sum(loss(x, w)), (0, 1))(x, w)
            x, w = x - 0.01 * dx, w - 0.01 * dw
        for rank, (told, mine, weights) in enumerate(answers):
            # Sums of 64 and 16 products, in another order in each of the steps.
            np.testing.assert_allclose(told, np.asarray(values)[:, rank], atol=1e-3)
            np.testing.assert_allclose(mine, x[32 * rank:][:32], atol=1e-4)
            np.testing.assert_allclose(weights, w[rank], atol=1e-4)

    def test_runs_are_in_the_order_of_the_text(self):
        heddle.launch(2, count, [int(value) for value in integers("i4", 10) % 1000])

    def test_other_ranks_are_told(self):
        for how, kind in (("die", heddle.PeerError), ("raise", Late)):
            self.assertRaises(kind, heddle.launch, 2, fail, how, deadline=250)


if __name__ == "__main__":
    unittest.main()

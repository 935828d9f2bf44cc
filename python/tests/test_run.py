"""Runs on one rank in this process: arrays, numbers, sizes, calls, futures."""
import gc
import signal
import sys
import threading
import time
import unittest
import weakref

import heddle
import numpy as np
from draw import floats, integers, poison

SCALED = """heddle 2 tensor program scaled in %x : f32[6, 5] in %s : f32[]
out %y : f32[6, 5] { %y = scale %x by %s }"""
CALLED = """heddle 2 tensor program called in %x : DT[6, 5] out %y : DT[6, 5]
{ %y = call "fn" %x }"""


class Wrapped:
    """An array of another library."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **more):
        return self.array.__dlpack__(**more)


class Runs(unittest.TestCase):
    def setUp(self):
        self.group = heddle.Group.local()
        self.addCleanup(self.group.close)

    def compiled(self, text, **more):
        return heddle.compile(heddle.Program(text), self.group, **more)

    def test_positional_named_out_and_numbers(self):
        scaled, x = self.compiled(SCALED), floats(6, 5)
        want = x * np.float32(0.25)
        np.testing.assert_array_equal(scaled(x, 0.25), want)
        np.testing.assert_array_equal(scaled(s=np.float32(0.25), x=x), want)
        np.testing.assert_array_equal(scaled(x, np.array(0.25, "f4")), want)
        for how in ({"out": None}, {"y": None}, {"out": (None,)}, {"out": {"y": None}}):
            y = poison(x)
            (key, form), = how.items()
            given = (y,) if isinstance(form, tuple) else {"y": y} if isinstance(form, dict) else y
            self.assertIs(scaled(x, 0.25, **{key: given}), y)
            np.testing.assert_array_equal(y, want)

    def test_other_libraries_and_strides(self):
        scaled, x = self.compiled(SCALED), floats(12, 10)
        y = np.full((10, 12), np.nan, "f4")
        scaled(Wrapped(x[::2, ::2]), 2, out=Wrapped(y[::2, ::2].T))
        want = np.full_like(y, np.nan)
        want[::2, ::2] = (x[::2, ::2] * 2).T
        np.testing.assert_array_equal(y, want)

    def test_inout_and_several_outputs(self):
        both = self.compiled("""heddle 2 tensor program both in %x : i64[7] inout %s : i64[7]
            out %a : i64[7] out %b : u8[7] { %a = neg %x %b = lt %x, %a %s = add %s, %x }""")
        x, s = integers("i8", 7), integers("i8", 7)
        old = s.copy()
        a, b = both(x, s)
        np.testing.assert_array_equal(a, -x)
        np.testing.assert_array_equal(b, (x < -x).astype("u1"))
        np.testing.assert_array_equal(s, old + x)

    def test_sizes(self):
        text = """heddle 2 tensor program sized param m in 1..40 in %x : i32[m, 3]
            out %y : i32[m, 3] { %y = neg %x }"""
        sized, x = self.compiled(text), integers("i4", 40, 3)
        for m in (1, 17, 40):
            y = poison(x)
            sized(x, out=y, sizes={"m": m})
            np.testing.assert_array_equal(y[:m], -x[:m])
            self.assertTrue((y[m:] == 77).all())
        for sizes, words in (({"m": 41}, "41"), ({}, "'m'"), ({"n": 3}, "'n'")):
            with self.assertRaisesRegex(heddle.ArgumentError, words):
                sized(x, sizes=sizes)

    def test_what_does_not_fit_begins_nothing(self):
        scaled, x = self.compiled(SCALED), floats(6, 5)
        frozen = poison(x)
        frozen.flags.writeable = False
        y = poison(x)
        empty = type("Empty", (), {"__dlpack__": lambda self, **more: None})()
        for call, words in (
                (lambda: scaled(x.astype("f8"), 1, out=y), "%x is f32"),
                (lambda: scaled(x[:5], 1, out=y), r"\[6, 5\].*\[5, 5\]"),
                (lambda: scaled(x[::-1], 1, out=y), "stride"),
                (lambda: scaled(np.lib.stride_tricks.as_strided(x, strides=(0, 4)), 1, out=y), "stride"),
                (lambda: scaled(x, 1, out=frozen), "%y"),
                (lambda: scaled(x, x, out=y), r"%s"),
                (lambda: scaled("x", 1, out=y), "%x is given str"),
                (lambda: scaled([[1.0]], 1), "%x is given list"),
                (lambda: scaled(2.0, 1, out=y), "%x"),
                (lambda: scaled(empty, 1, out=y), "capsule"),
                (lambda: scaled(x, 1, out=x), "overlap"),
                (lambda: scaled(Wrapped(x), 1), "%y is f32")):
            with self.assertRaisesRegex(heddle.ArgumentError, words):
                call()
        for call in (lambda: scaled(x), lambda: scaled(x, 1, 2), lambda: scaled(x, 1, z=x),
                     lambda: scaled(x, 1, x=x), lambda: scaled(x, 1, out=(y, y))):
            self.assertRaises(TypeError, call)
        self.assertTrue(np.isnan(y).all())
        self.assertEqual(scaled.stats()["runs"], 0)
        np.testing.assert_array_equal(scaled(x, 1), x)

    def test_numbers_that_do_not_fit(self):
        program = heddle.Program("""heddle 2 host program p in %s : u8[] out %y : u8[]
            { %y = neg %s }""")
        neg = heddle.compile(program, self.group)
        self.assertEqual(neg(3, out=np.zeros((), "u1")), 253)
        for number in (256, -1, 0.5):
            with self.assertRaisesRegex(heddle.ArgumentError, "%s is u8"):
                neg(number, out=np.zeros((), "u1"))

    def test_futures_keep_arrays(self):
        gate = threading.Event()
        called = self.compiled(CALLED.replace("DT", "f32"), calls={"fn": lambda call: (
            gate.wait(10), np.copyto(*map(np.asarray, call.results + call.operands)))})
        x = floats(6, 5)
        want, kept = x.copy(), weakref.ref(x)
        futures = [called.start(x) for _ in range(3)]
        del x
        gc.collect()
        self.assertIsNotNone(kept())
        self.assertFalse(futures[0].done() or futures[0].wait(0.01))
        with self.assertRaises(TimeoutError):
            futures[2].result(timeout=0.01)
        gate.set()
        for future in reversed(futures):
            np.testing.assert_array_equal(future.result(timeout=10), want)
        called.finish()
        gc.collect()
        self.assertIsNone(kept())

    def test_more_runs_than_can_be_under_way(self):
        scaled, x = self.compiled(SCALED), floats(6, 5)
        futures = [scaled.start(x, i) for i in range(50)]
        for i, future in enumerate(futures):
            np.testing.assert_array_equal(future.result(10), x * np.float32(i))

    def test_call_is_told_what_it_is_for(self):
        seen = []

        def fn(call):
            (y,), (x,) = call.results, call.operands
            seen.append((call.name, call.rank, x.dtype, x.shape, x.strides, y.shape))
            np.from_dlpack(x)
            np.asarray(y)[...] = np.asarray(x)[::-1]

        for dtype in ("f64", "i32", "u8", "i8"):
            numpy_dtype = np.dtype({"f64": "f8", "i32": "i4", "u8": "u1", "i8": "i1"}[dtype])
            x = floats(6, 5).astype("f8") if dtype == "f64" else integers(numpy_dtype, 6, 5)
            called = self.compiled(CALLED.replace("DT", dtype), calls={"fn": fn})
            np.testing.assert_array_equal(called(x), x[::-1])
            self.assertEqual(seen[-1], ("fn", 0, dtype, (6, 5), (5, 1), (6, 5)))

    def test_exception_of_a_call_is_the_cause(self):
        def fn(call):
            raise KeyError("mine")

        called = self.compiled(CALLED.replace("DT", "f32"), calls={"fn": fn})
        with self.assertRaisesRegex(heddle.SystemFailure, "KeyError: 'mine'") as caught:
            called(floats(6, 5))
        self.assertIsInstance(caught.exception.__cause__, KeyError)
        with self.assertRaises(heddle.Error):
            called.start(floats(6, 5)).result(10)

    def test_exception_of_a_call_comes_out_of_a_future(self):
        def fn(call):
            raise KeyError("mine")

        called = self.compiled(CALLED.replace("DT", "f32"), calls={"fn": fn})
        future = called.start(floats(6, 5))
        self.assertTrue(future.wait(10))
        with self.assertRaises(heddle.SystemFailure) as caught:
            future.result()
        self.assertIsInstance(caught.exception.__cause__, KeyError)

    def test_dtypes_of_ml_dtypes(self):
        import ml_dtypes

        def fn(call):
            y, x = np.asarray(call.results[0]), np.asarray(call.operands[0])
            self.assertEqual(x.dtype.name, dtype.name)
            y[...] = x[::-1]

        for name, dtype in (("bf16", ml_dtypes.bfloat16), ("f8e4m3", ml_dtypes.float8_e4m3fn),
                            ("f8e5m2", ml_dtypes.float8_e5m2)):
            dtype = np.dtype(dtype)
            called = self.compiled(CALLED.replace("DT", name), calls={"fn": fn})
            x = floats(12, 5).astype(dtype)[::2]
            y = called(x)
            self.assertEqual(y.dtype, dtype)
            np.testing.assert_array_equal(y, x[::-1])
            y.flags.writeable = False
            for call, words in ((lambda: called(x, out=y), "%y is written"),
                                (lambda: called(floats(6, 5)), f"%x is {name}"),
                                (lambda: called(x.view(f"i{dtype.itemsize}")), f"%x is {name}"),
                                (lambda: called(x[:, :3]), "extents")):
                self.assertRaisesRegex(heddle.ArgumentError, words, call)

    def test_events(self):
        gate = threading.Event()
        first = self.compiled("""heddle 2 host program first in %x : f32[6, 5] out %done : event[]
            out %y : f32[6, 5] { %y = call "fn" %x
            %done = record }""", calls={"fn": lambda call: (
                gate.wait(10), np.copyto(*map(np.asarray, call.results + call.operands)))})
        x, y, z, done = floats(6, 5), np.empty((6, 5), "f4"), np.empty((6, 5), "f4"), heddle.Event()
        done.wait(1)  # of what was never recorded nobody waits
        first.start(x, y=y, done=done)
        with heddle.Group.local() as group:  # whose runs are in no order with that one
            second = heddle.compile(heddle.Program("""heddle 2 host program second
                in %go : event[] in %y : f32[6, 5] out %z : f32[6, 5] { wait %go
                %z = copy %y }"""), group)
            future = second.start(done, y, out=z)
            self.assertRaises(heddle.TimeoutError, done.wait, 0.05)
            self.assertFalse(future.done())
            gate.set()
            done.wait(10)
            np.testing.assert_array_equal(future.result(10), x)
            done.record()
            done.wait(0)
            for wrong in (5, "go", x):
                self.assertRaisesRegex(heddle.ArgumentError, "%go", second, wrong, y, out=z)
        self.assertRaisesRegex(heddle.ArgumentError, "pass an event", first, x, y=y)
        first.finish()

    def test_what_is_no_program_or_group(self):
        program = heddle.Program(SCALED)
        for args, words in (((SCALED, self.group), "is given str and Group"),
                            ((program, None), "is given Program and NoneType")):
            self.assertRaisesRegex(TypeError, words, heddle.compile, *args)
        self.assertRaisesRegex(TypeError, "a text, not int", heddle.Program, 3)

    def test_missing_function(self):
        with self.assertRaisesRegex(heddle.ArgumentError, "fn"):
            self.compiled(CALLED.replace("DT", "f32"))
        with self.assertRaisesRegex(heddle.ArgumentError, "5"):
            self.compiled(CALLED.replace("DT", "f32"), calls={"fn": 5})

    def test_interrupt_ends_a_call(self):
        gate = threading.Event()
        called = self.compiled(CALLED.replace("DT", "f32"), calls={"fn": lambda call: gate.wait(10)})
        when = []

        def interrupt():
            time.sleep(0.2)
            when.append(time.monotonic())
            signal.raise_signal(signal.SIGINT)

        threading.Thread(target=interrupt).start()
        with self.assertRaises(KeyboardInterrupt):
            called(floats(6, 5))
        self.assertLess(time.monotonic() - when[0], 1)
        gate.set()

    def test_closed(self):
        scaled, x = self.compiled(SCALED), floats(6, 5)
        scaled.close()
        self.assertRaisesRegex(heddle.ArgumentError, "closed", lambda: scaled(x, 1))
        other = self.compiled(SCALED)
        self.group.close()
        self.assertRaisesRegex(heddle.ArgumentError, "closed", lambda: other(x, 1))
        self.assertRaisesRegex(heddle.ArgumentError, "closed", self.group.barrier)

    def test_no_references_are_lost(self):
        scaled, x, y = self.compiled(SCALED), floats(6, 5), floats(6, 5)
        before = sys.getrefcount(x), sys.getrefcount(y)
        for _ in range(100):
            scaled(x, 1, out=y)
            scaled.start(x, 1, out=y).result(10)
            self.assertRaises(heddle.Error, scaled, x, x, out=y)
        gc.collect()
        self.assertEqual((sys.getrefcount(x), sys.getrefcount(y)), before)


if __name__ == "__main__":
    unittest.main()

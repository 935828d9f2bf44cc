"""Runs on CUDA: on the stand-ins for the vendors' libraries in the folder
HEDDLE_FAKES, or on what HEDDLE_CUDA_LIB and its like name."""
import contextlib
import ctypes
import gc
import os
import pathlib
import sys
import time
import types
import unittest
import unittest.mock
import weakref

import heddle
import numpy as np
from draw import floats, integers, poison

FAKES = os.environ.get("HEDDLE_FAKES", "")
if FAKES and "HEDDLE_CUDA_LIB" not in os.environ:
    for name in ("cuda", "cublaslt", "nvrtc", "nccl"):
        os.environ[f"HEDDLE_{name.upper()}_LIB"] = str(pathlib.Path(FAKES, f"libfake_{name}.so"))
    os.environ["HEDDLE_CACHE_DIR"] = "off"

from cuda_memory import Array, Driver

SCALED = """heddle 2 tensor program scaled in %x : f32[6, 5] in %s : f32[]
out %y : f32[6, 5] { %y = scale %x by %s }"""
TWICE = """heddle 2 tensor program twice in %x : f32[6, 5] out %y : f32[6, 5] { %y = add %x, %x }"""
CALLED = """heddle 2 tensor program called in %x : f32[6, 5] out %y : f32[6, 5]
{ %y = call "fn" %x }"""
GATED = """heddle 2 host program gated in %go : event[] in %x : f32[6, 5] out %y : f32[6, 5]
{ wait %go
%y = copy %x }"""
GATHER = """heddle 2 tensor program gather mesh tp=2 in %x : i32[8@tp, 3] out %y : i32[8, 3]
{ %y = set %x }"""


def rank_main(group, values):
    """Runs and replays of a gather, by turns."""
    driver = Driver(group.rank)
    stream = driver.stream()
    program = heddle.Program(GATHER)
    gather = heddle.compile(program, group, {}, device=f"cuda:{group.rank}", capturable=True)
    part = program.shard("x", group.rank)
    x, y = Array(driver, values[0][part]), Array(driver, poison(values[0]))
    gather(x, out=y, stream=stream)
    np.testing.assert_array_equal(y.get(stream), values[0])
    driver.capture(stream)
    gather(x, out=y, stream=stream)
    graph = driver.end_capture(stream)
    for i, whole in enumerate(values[1:]):
        x.set(whole[part], stream)
        y.set(poison(whole), stream)
        if i % 3 == 2:
            gather(x, out=y, stream=stream)
        else:
            driver.launch(graph, stream)
        np.testing.assert_array_equal(y.get(stream), whole)
    driver.drop(graph)
    gather.finish()
    return gather.stats()["runs"]


class Seen(ctypes.Structure):
    """A DLTensor."""
    _fields_ = [("data", ctypes.c_void_p), ("type", ctypes.c_int32), ("id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
                ("byte_offset", ctypes.c_uint64)]


Look = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(Seen))
FindStream = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32,
                               ctypes.POINTER(ctypes.c_void_p))


class Exchange(ctypes.Structure):
    """DLPack's table of functions, of tensors like those of the test."""
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("before", ctypes.c_void_p),
                ("unused", ctypes.c_void_p * 3), ("look", Look), ("find_stream", FindStream)]


KEPT = []


def exchange(stream):
    """A capsule of one, of which all stays until the tests end."""
    @Look
    def look(tensor, out):
        if tensor.hidden:
            return -1
        shape, strides = (ctypes.c_int64 * 2)(*tensor.shape), (ctypes.c_int64 * 2)(*tensor.stride())
        KEPT.extend((shape, strides))
        seen = Seen(tensor.data_ptr() + tensor.offset, 2, tensor.ordinal, 2, 2, tensor.bits, 1,
                    ctypes.addressof(shape), ctypes.addressof(strides), 0)
        ctypes.memmove(out, ctypes.byref(seen), ctypes.sizeof(seen))
        return 0

    @FindStream
    def find_stream(kind, ordinal, out):
        out[0] = stream if (kind, ordinal) == (2, 0) else None
        return 0

    table = Exchange(1, 3, None, (ctypes.c_void_p * 3)(), look, find_stream)
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    KEPT.extend((table, look, find_stream))
    return make(ctypes.addressof(table), b"dlpack_exchange_api", None)


class Put(Array):
    """An array on a device at a place that is there already."""

    def __init__(self, driver, values, address):
        self.driver, self.shape, self.dtype, self.asked = driver, values.shape, values.dtype, []
        self.address = address
        self.set(values)


def rank_of_fixed(group, values):
    """A gather into memory that peers write where it is: of cuMemAlloc, and the group's."""
    driver, program = Driver(group.rank), heddle.Program(GATHER)
    device, part = f"cuda:{group.rank}", program.shard("x", group.rank)
    own = group.empty((8, 3), "i32", device)
    try:
        heddle.compile(program, group, {}, device=device, fixed={"y": poison(values[0])})
    except heddle.ArgumentError as error:
        told = str(error)
    for y in (Array(driver, values[0]), own):
        there = Put(driver, values[0], y.address)
        gather = heddle.compile(program, group, {}, device=device, fixed={"y": y})
        for whole in values:
            there.set(poison(whole))
            assert gather(Array(driver, whole[part])) is y
            np.testing.assert_array_equal(there.get(), whole)
    return told


@unittest.skipUnless("HEDDLE_CUDA_LIB" in os.environ, "no stand-ins for CUDA in HEDDLE_FAKES")
class Cuda(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.driver = Driver()

    def setUp(self):
        self.stream = self.driver.stream()
        self.group = heddle.Group.local()
        self.addCleanup(self.group.close)
        self.addCleanup(self.driver.let_go)
        self.x = floats(6, 5)
        self.array = Array(self.driver, self.x)
        self.out = Array(self.driver, poison(self.x))

    def compiled(self, text, device="cuda:0", **more):
        return heddle.compile(heddle.Program(text), self.group, device=device, **more)

    def refused(self, words, call, kind=heddle.ArgumentError):
        with self.assertRaisesRegex(kind, words):
            call()

    # Streams.

    def test_call_is_in_order_with_the_stream(self):
        scaled = self.compiled(SCALED)
        after = Array(self.driver, poison(self.x))
        for kind in (None, "cuda_stream", "ptr", "__cuda_stream__"):
            self.out.set(poison(self.x), self.stream)
            self.driver.hold_up(self.stream)
            stream = types.SimpleNamespace(**{str(kind): self.stream}) if kind else self.stream
            if kind == "__cuda_stream__":
                stream = type("Stream", (), {kind: lambda _: (0, self.stream)})()
            scaled(self.array, 3, out=self.out, stream=stream)
            self.driver.copy(after.address, self.out.address, self.x.nbytes, self.stream)
            time.sleep(0.02)
            other = self.driver.stream()
            self.assertTrue(np.isnan(self.out.get(other)).all())
            self.driver.let_go()
            np.testing.assert_array_equal(after.get(self.stream), self.x * np.float32(3))
            self.assertEqual(self.array.asked[-1], self.stream)

    def test_default_stream_is_the_librarys_current_one(self):
        scaled = self.compiled(SCALED)
        scaled(self.array, 2, out=self.out)
        self.assertEqual((self.array.asked, self.out.asked), ([1], [1]))
        np.testing.assert_array_equal(self.out.get(), self.x * 2)
        stream = types.SimpleNamespace(cuda_stream=self.stream, ptr=self.stream)
        for name, kind, ask in (("torch", "Tensor", "current_stream"),
                                ("cupy", "ndarray", "get_current_stream")):
            library = types.ModuleType(name)
            setattr(library, kind, Array)
            library.nn = types.SimpleNamespace(Parameter=type(None))
            library.cuda = types.SimpleNamespace(**{ask: {0: stream}.__getitem__})
            with unittest.mock.patch.dict(sys.modules, {name: library}), \
                    unittest.mock.patch.object(Array, "requires_grad", True, create=True):
                scaled(self.array, 2, out=self.out)
            self.assertEqual(self.array.asked[-1], self.stream)
        scaled.finish()

    def test_tensors_like_those_that_fitted_are_not_asked(self):
        """Where PyTorch's current stream is the run's."""

        class Tensor(Array):
            requires_grad, device = False, "cuda:0"
            negative, ordinal, offset, bits = False, 0, 0, 32

            def is_neg(self):
                return self.negative

            def stride(self):
                return tuple(np.empty(self.shape).strides[d] // 8 for d in range(len(self.shape)))

            def is_contiguous(self):
                return True

            def data_ptr(self):
                if self.hidden:
                    raise RuntimeError("a tensor without memory")
                return self.address

        Tensor.hidden = False
        torch = types.ModuleType("torch")
        torch.Tensor, torch.nn = Tensor, types.SimpleNamespace(Parameter=type(None))
        torch._C = types.SimpleNamespace(_cuda_getCurrentRawStream={0: self.stream}.__getitem__)
        scaled = self.compiled(SCALED)
        x, y = Tensor(self.driver, self.x), Tensor(self.driver, poison(self.x))

        def asked(*args, **more):
            before = len(x.asked), len(y.asked)
            scaled(*args, **{"out": y, **more})
            np.testing.assert_array_equal(y.get(more.get("stream", self.stream)), x.get() * 3)
            return len(x.asked) - before[0], len(y.asked) - before[1]

        with unittest.mock.patch.dict(sys.modules, {"torch": torch}):
            self.assertEqual(asked(x, 3), (1, 1))
            x.set(floats(6, 5))
            self.assertEqual(asked(x, 3), (0, 0))
            self.assertEqual(asked(x, 3, stream=self.stream), (0, 0))
            self.assertEqual(asked(x, 3, stream=self.driver.stream()), (1, 1))
            x.requires_grad = True
            self.assertEqual(asked(x, 3), (1, 0))
            x.requires_grad, x.hidden = False, True
            self.assertEqual(asked(x, 3), (1, 0))
            for other in (floats(6, 5).astype("f8"), floats(5, 6), floats(30)):
                self.refused("%x", lambda: scaled(Tensor(self.driver, other), 3, out=y))
            self.refused("overlap", lambda: scaled(y, 3, out=y))
            x.hidden = False
            Tensor.__dlpack_c_exchange_api__ = exchange(self.stream)
            twice = self.compiled(TWICE)

            def planned():
                x.set(floats(6, 5))
                y.set(poison(self.x))
                before = len(x.asked), len(y.asked)
                with unittest.mock.patch.object(twice, "_choose_stream", side_effect=AssertionError):
                    twice(x, out=y)
                np.testing.assert_array_equal(y.get(self.stream), x.get() * 2)
                self.assertEqual((len(x.asked), len(y.asked)), before)
                self.assertTrue(any(array is y for array in twice._recent[-1][0]))  # until it has ended

            twice(x, out=y)
            for _ in range(3):
                planned()
            for name, value in (("requires_grad", True), ("negative", True), ("hidden", True),
                                ("ordinal", 1), ("offset", 8), ("bits", 64)):
                with unittest.mock.patch.object(x, name, value), self.assertRaises(AssertionError):
                    planned()
            planned()
            under_way = len(twice._recent)
            self.refused("overlap", lambda: twice(y, out=y))
            self.assertEqual(len(twice._recent), under_way)

    def test_what_is_no_stream(self):
        scaled = self.compiled(SCALED)
        for stream in (-1, True, "0", object()):
            self.refused("no CUDA stream", lambda: scaled(self.array, 1, out=self.out, stream=stream))
        self.assertEqual(scaled.stats()["runs"], 0)

    # Futures.

    def test_future_keeps_arrays_until_the_run_has_ended(self):
        scaled = self.compiled(SCALED)
        self.driver.hold_up(self.stream)
        future = scaled.start(self.array, 4, out=self.out, stream=self.stream)
        kept = weakref.ref(self.array)
        self.array = None
        gc.collect()
        self.assertFalse(future.wait(0.05) or future.done())
        self.assertIsNotNone(kept())
        self.driver.let_go()
        self.assertIs(future.result(30), self.out)
        np.testing.assert_array_equal(self.out.get(), self.x * np.float32(4))
        scaled.finish()
        gc.collect()
        self.assertIsNone(kept())

    # Functions of Python's.

    def test_call_enqueues_onto_its_stream(self):
        seen = []

        def fn(call):
            (y,), (x,) = call.results, call.operands
            seen.append((call.stream, x.__dlpack_device__(), x.shape))
            self.assertRaises(TypeError, lambda: np.asarray(x, "f4"))
            self.driver.copy(y.address, x.address, self.x.nbytes, call.stream)

        for ordinal, device in ((0, "cuda:0"), (1, "cuda:1"), (1, "cuda")):
            driver = Driver(ordinal)
            called = self.compiled(CALLED, device, calls={"fn": fn})
            stream = driver.stream()
            x, y = Array(driver, self.x), Array(driver, poison(self.x))
            driver.hold_up(stream)
            called(x, out=y, stream=stream)
            driver.let_go()
            np.testing.assert_array_equal(y.get(stream), self.x)
            self.assertEqual(seen[-1][1:], ((2, ordinal), (6, 5)))
            entered = []
            torch = types.ModuleType("torch")
            torch.cuda = types.SimpleNamespace(
                is_initialized=lambda: True, default_stream=lambda device: (device, "default"),
                ExternalStream=lambda stream, device: (device, stream),
                stream=lambda stream: entered.append(stream) or contextlib.nullcontext())
            with unittest.mock.patch.dict(sys.modules, {"torch": torch}):
                called(x, out=y, stream=stream)
                called(x, out=y)
            np.testing.assert_array_equal(y.get(), self.x)
            self.assertEqual(entered, [(ordinal, one[0] or "default") for one in seen[-2:]])
            self.assertEqual(seen[-1][0], 0)
            called.finish()
            if device == "cuda":
                again = self.compiled(CALLED, device, calls={"fn": fn})
                self.refused("cuda:1.*number 0", lambda: again(self.array, out=self.out))
                again(x, out=y, stream=stream)
                self.assertEqual(seen[-1][1], (2, 1))
                again.finish()
            driver.leave()

    def test_exception_of_a_call_is_the_cause(self):
        def fn(call):
            raise KeyError("mine")

        called = self.compiled(CALLED, calls={"fn": fn})
        with self.assertRaisesRegex(heddle.SystemFailure, "KeyError: 'mine'") as caught:
            called(self.array, out=self.out, stream=self.stream)
            called.finish()
        self.assertIsInstance(caught.exception.__cause__, KeyError)

    # What does not fit.

    def test_arrays_of_other_devices_are_refused(self):
        scaled = self.compiled(SCALED)
        other = Driver(1)
        away = Array(other, self.x)
        other.leave()
        skewed = Array(self.driver, self.x, skew=4)
        for call, words in (
                (lambda: scaled(self.x, 1, out=self.out), "on cuda:0, the array for %x on the cpu"),
                (lambda: scaled(self.array, 1, out=self.x), "on cuda:0, the array for %y on the cpu"),
                (lambda: scaled(away, 1, out=self.out), "cuda:0.*number 1"),
                (lambda: scaled(skewed, 1, out=self.out), "16"),
                (lambda: scaled(self.array, 1), "%y is f32")):
            self.refused(words, call)
        self.assertEqual(scaled.stats()["runs"], 0)
        on_cpu = heddle.compile(heddle.Program(SCALED), self.group)
        self.refused("session is on the cpu.*type 2", lambda: on_cpu(self.array, 1, out=self.x))
        self.refused("stream", lambda: on_cpu(self.x, 1, stream=self.stream))
        scaled(self.array, 1, out=self.out)
        np.testing.assert_array_equal(self.out.get(), self.x)

    def test_devices_that_there_are_not(self):
        for device, kind in (("cuda:99", heddle.ArgumentError), ("gpu", heddle.UnsupportedError)):
            self.refused(device, lambda: self.compiled(SCALED, device), kind)

    # Events.

    def test_run_waits_for_an_event(self):
        gated = self.compiled(GATED)
        event = self.driver.take("cuEventCreate", 2)
        other = self.driver.stream()
        self.driver.hold_up(other)
        self.driver("cuEventRecord", ctypes.c_void_p(event), ctypes.c_void_p(other))
        gated(types.SimpleNamespace(cuda_event=event), self.array, out=self.out, stream=self.stream)
        self.assertFalse(gated.start(event, self.array, out=self.out, stream=self.stream).wait(0.05))
        self.driver.let_go()
        gated.finish()
        np.testing.assert_array_equal(self.out.get(), self.x)
        for wrong in (heddle.Event(), types.SimpleNamespace(cuda_event=0), -1):
            self.refused("%go.*no CUDA event", lambda: gated(wrong, self.array, out=self.out))

    # Graphs of the caller's.

    def test_captured_call_is_replayed(self):
        scaled = self.compiled(SCALED, capturable=True)
        s = Array(self.driver, np.array(2, "f4"))
        self.driver.capture(self.stream)
        scaled(self.array, s, out=self.out, stream=self.stream)
        graph = self.driver.end_capture(self.stream)
        self.assertTrue(np.isnan(self.out.get(self.stream)).all())
        for i in range(10):
            x, by = floats(6, 5), floats()
            self.array.set(x, self.stream)
            s.set(by, self.stream)
            if i == 5:
                scaled(self.array, s, out=self.out, stream=self.stream)
            else:
                self.driver.launch(graph, self.stream)
            np.testing.assert_array_equal(self.out.get(self.stream), x * by)
        self.driver.drop(graph)
        self.assertEqual(scaled.stats()["runs"], 1)

    def test_capture_of_what_is_not_capturable_is_refused(self):
        scaled = self.compiled(SCALED)
        self.driver.capture(self.stream)
        self.refused("captur", lambda: scaled(self.array, 1, out=self.out, stream=self.stream))
        self.driver.drop(self.driver.end_capture(self.stream))
        scaled(self.array, 1, out=self.out, stream=self.stream)
        np.testing.assert_array_equal(self.out.get(self.stream), self.x)
        self.refused("capturable", lambda: self.compiled(SCALED, capturable=True, graph=True))

    def test_call_that_raises_in_a_capture_fails_the_capture(self):
        wrong = [True]

        def fn(call):
            if wrong:
                raise KeyError(wrong.pop())
            self.driver.copy(call.results[0].address, call.operands[0].address, self.x.nbytes,
                             call.stream)

        called = self.compiled(CALLED, calls={"fn": fn}, capturable=True)
        self.driver.capture(self.stream)
        with self.assertRaises(heddle.SystemFailure) as caught:
            called(self.array, out=self.out, stream=self.stream)
        self.assertIsInstance(caught.exception.__cause__, KeyError)
        self.assertRaises(RuntimeError, self.driver.end_capture, self.stream)
        called(self.array, out=self.out, stream=self.stream)
        np.testing.assert_array_equal(self.out.get(self.stream), self.x)

    def test_ranks_replay_among_runs(self):
        values = [integers("i4", 8, 3) for _ in range(8)]
        self.assertEqual(heddle.launch(2, rank_main, values), [3, 3])

    def test_ranks_touch_fixed_arguments_where_they_are(self):
        for told in heddle.launch(2, rank_of_fixed, [integers("i4", 8, 3) for _ in range(4)]):
            self.assertRegex(told, "on cuda:[01], the array for %y on the cpu")


if __name__ == "__main__":
    unittest.main()

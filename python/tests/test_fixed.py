"""Arguments that are at one place in every run, and memory of a group for them."""
import ctypes
import gc
import os
import unittest
import weakref

import heddle
import numpy as np
from cuda_memory import DLTensor, new_capsule
from draw import floats, integers, poison

# Every rank's part goes to the others, and their sum back: peers touch all three.
TOUCHED = """heddle 2 tensor program touched param m in 1..5 mesh tp=2
in %x : i64[2@tp, m, 3] inout %s : i64[2@tp, m, 3] out %y : i64[2, m, 3]
{ %y = set %x
%s = add %s, %x }"""
SCALED = """heddle 2 tensor program scaled in %x : f32[6, 5] in %s : f32[]
out %y : f32[6, 5] { %y = scale %x by %s }"""


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def touch(group, which, rounds):
    """Runs on new numbers in the same arrays, of other sizes too, beside an executable
    that has none fixed; gives how many bytes it copied less."""
    program = heddle.Program(TOUCHED)
    arrays = {a.name: group.empty(a.local_shape, a.dtype) for a in program.arguments}
    x, s, y = (np.asarray(arrays[name]) for name in "xsy")
    free = heddle.compile(program, group)
    fixed = heddle.compile(program, group, fixed={name: arrays[name] for name in which})
    named = {name: array for name, array in zip("xsy", (x, s, y)) if name not in which}
    for m, whole, start in rounds:
        x[...], s[...] = whole[group.rank], start[group.rank]
        y[...] = poison(y)
        want = s.copy(), poison(y)
        free(x, want[0], out=want[1], sizes={"m": m})
        answer = fixed(sizes={"m": m}, **named)
        assert answer is (arrays["y"] if "y" in which else y)
        np.testing.assert_array_equal(y, want[1])
        np.testing.assert_array_equal(y[:, :m], whole[:, :m])
        np.testing.assert_array_equal(s, want[0])
    return fixed.stats()["runs"]


def refuse(group, which):
    """What rank 1 is told that fixes an array which peers cannot map."""
    program = heddle.Program(TOUCHED)
    with heddle.Group.local() as alone:
        other = alone.empty((2, 5, 3), "i64")
    y = {"numpy": lambda: integers("i8", 2, 5, 3), "other": lambda: other,
         "skewed": lambda: np.asarray(group.empty((31,), "i64"))[1:].reshape(2, 5, 3),
         "short": lambda: np.asarray(group.empty((512,), "i64"))[510:]}[which]()
    if group.rank == 0:
        y = group.empty((2, 5, 3), "i64")
    try:
        heddle.compile(program, group, fixed={"y": y})
    except heddle.Error as error:
        told = type(error), str(error)
    group.barrier()  # it is of use still
    return told


def disagree(group, which):
    x = group.empty((1, 5, 3), "i64")
    y = group.empty((2, 5, 3), "i64")
    heddle.compile(heddle.Program(TOUCHED), group, timeout=5,
                   fixed={"x": x} if group.rank != which else {"y": y})


class Freed:
    """As a tensor of PyTorch's is whose storage has been given back."""

    def __dlpack__(self):
        self.shape = (ctypes.c_int64 * 2)(6, 5)
        self.told = DLTensor(data=None, device_type=1, ndim=2, code=2, bits=32, lanes=1,
                             shape=ctypes.cast(self.shape, ctypes.POINTER(ctypes.c_int64)))
        return new_capsule(ctypes.addressof(self.told), b"dltensor", None)


class Fixed(unittest.TestCase):
    def setUp(self):
        self.group = heddle.Group.local()
        self.addCleanup(self.group.close)
        self.program = heddle.Program(SCALED)

    def compiled(self, **fixed):
        return heddle.compile(self.program, self.group, fixed=fixed)

    def test_ranks_touch_them_where_they_are(self):
        for which in ("xsy", "x", "ys"):
            rounds = [(m, integers("i8", 2, 5, 3), integers("i8", 2, 5, 3)) for m in (5, 1, 3, 4)]
            self.assertEqual(heddle.launch(2, touch, which, rounds, start="fork"), [4, 4])

    def test_ranks_that_fix_others_are_all_told(self):
        with self.assertRaisesRegex(heddle.ArgumentError, "fixed %y"):
            heddle.launch(2, disagree, 1, start="fork")

    def test_what_peers_cannot_map_is_refused_on_all_ranks(self):
        for which, words in (("numpy", "%y is fixed at .* no memory of hd_group_alloc"),
                             ("other", "%y is fixed at .* no memory of hd_group_alloc"),
                             ("skewed", "%y is fixed at .* no multiple of 16"),
                             ("short", "%y is fixed at .* 240 bytes, of which 16 are left")):
            (first, words0), (second, words1) = heddle.launch(2, refuse, which, start="fork")
            self.assertEqual((first, second), (heddle.PeerError, heddle.ArgumentError))
            self.assertRegex(words0, words)
            self.assertRegex(words1, words)

    def test_runs_are_not_given_them(self):
        x, y = self.group.empty((6, 5), "f32"), self.group.empty((6, 5), "f32")
        np.asarray(x)[...] = values = floats(6, 5)
        scaled = self.compiled(x=x, y=y)
        self.assertIs(scaled(2), y)
        np.testing.assert_array_equal(np.asarray(y), values * 2)
        self.assertIs(scaled.start(s=3).result(10), y)
        np.testing.assert_array_equal(np.from_dlpack(y), values * 3)
        for call in (lambda: scaled(x, 2), lambda: scaled(2, x=x), lambda: scaled(2, out=y),
                     lambda: scaled(2, y=y), lambda: scaled()):
            self.assertRaises(TypeError, call)
        self.assertEqual(scaled.stats()["runs"], 2)
        # A number of the host's is none of an argument that is at one place.
        s = self.group.empty((), "f32")
        np.asarray(s)[...] = 4
        np.testing.assert_array_equal(self.compiled(s=s)(values), values * 4)

    def test_what_cannot_be_fixed_is_refused(self):
        def empty(*shape, dtype="f32"):
            return self.group.empty(shape, dtype)

        for fixed, words in (
                ({"z": empty(6, 5)}, "no argument %z to be fixed: it has %x, %s, %y"),
                ({"x": 2.0}, "%x is fixed as float"),
                ({"x": Freed()}, "%x is fixed .* no memory"),
                ({"x": type("Odd", (), {"__dlpack__": lambda self, **more: 3})()}, "%x is fixed .* no memory"),
                ({"x": empty(6, 5, dtype="i32")}, "%x is f32"),
                ({"x": empty(5, 6)}, r"\[6, 5\].*\[5, 6\]"),
                ({"x": np.asarray(empty(6, 10))[:, ::2]}, "strides"),
                ({"x": np.asarray(empty(5, 6)).T}, "strides")):
            with self.subTest(words), self.assertRaisesRegex(heddle.ArgumentError, words):
                self.compiled(**fixed)
        y = np.asarray(empty(6, 5))
        y.flags.writeable = False
        self.assertRaisesRegex(heddle.ArgumentError, "%y", self.compiled, y=y)
        self.compiled(x=empty(6, 5))  # the group is of use still

    def test_arrays_are_of_every_dtype(self):
        for dtype, size in (("f64", 8), ("f32", 4), ("f16", 2), ("i64", 8), ("i32", 4), ("u8", 1)):
            array = self.group.empty((3, 7), dtype)
            for view in (np.asarray(array), np.from_dlpack(array)):
                self.assertEqual((view.shape, view.itemsize), ((3, 7), size))
                self.assertEqual(view.ctypes.data, array.address)
        self.assertEqual(np.asarray(self.group.empty((2,), "bf16")).dtype.name, "bfloat16")
        self.assertEqual(np.asarray(self.group.empty((0, 3), "f32")).size, 0)
        for shape, dtype, device in (((3,), "f33", "cpu"), ((3,), "event", "cpu"),
                                     ((-1,), "f32", "cpu"), ((1.5,), "f32", "cpu"),
                                     ((2,) * 9, "f32", "cpu"), ((2**61,), "f64", "cpu"),
                                     ((3,), "f32", "gpu"), ((3,), "f32", "cuda")):
            self.assertRaises(heddle.ArgumentError, self.group.empty, shape, dtype, device)
        self.assertRaises(heddle.SystemFailure, self.group.empty, (2**58,), "f64")

    def test_memory_is_there_as_long_as_something_is_of_it(self):
        before = descriptors()
        for make in (np.asarray, np.from_dlpack):
            array = self.group.empty((1 << 20,), "f32")
            kept, view = weakref.ref(array), make(array)[5:]
            self.assertEqual(descriptors(), before + 1)
            del array
            gc.collect()
            self.assertIsNotNone(kept())
            view.sum()
            del view
            gc.collect()
            self.assertIsNone(kept())
            self.compiled().close()
            self.assertEqual(descriptors(), before)

    def test_capsules_that_nobody_takes_keep_nothing(self):
        array = self.group.empty((6, 5), "f32")
        kept = weakref.ref(array)
        for _ in range(3):
            array.__dlpack__()
        del array
        gc.collect()
        self.assertIsNone(kept())

    def test_executable_keeps_them(self):
        x = self.group.empty((6, 5), "f32")
        kept, values = weakref.ref(x), floats(6, 5)
        np.asarray(x)[...] = values
        scaled = self.compiled(x=np.asarray(x))
        del x
        gc.collect()
        np.testing.assert_array_equal(scaled(2), values * 2)
        scaled.close()
        del scaled
        gc.collect()
        self.assertIsNone(kept())

    def test_memory_outlives_its_group(self):
        before = descriptors()
        group = heddle.Group.local()
        arrays = [group.empty((6, 5), "f32") for _ in range(3)]
        views = [np.asarray(array) for array in arrays]
        group.close()
        self.assertRaisesRegex(heddle.ArgumentError, "closed", group.empty, (1,), "f32")
        del arrays, group
        gc.collect()
        for view in views:
            view[...] = values = floats(6, 5)
            np.testing.assert_array_equal(view, values)
        del view, views
        gc.collect()
        self.assertEqual(descriptors(), before)


if __name__ == "__main__":
    unittest.main()

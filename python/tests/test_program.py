"""What a program says of itself, and of what is wrong with it."""
import json
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
import warnings

import heddle
import numpy as np
from draw import floats, integers

ROOT = pathlib.Path(os.environ["HEDDLE_ROOT"])
MACHINE = next(iter(sorted((ROOT / "examples/machines").glob("*.json"))))
LINEAR = """heddle 2
tensor program linear
param k = 32
mesh tp=4
in %x : f32[4@tp, 8, k]
in %w : f32[k, 16]
out %y : f32[4@stream, 8, 16]
temp %g : f32[4@stream, 8, k]
{
    %g = set %x
    %y = matmul %g, %w
}
"""


class Programs(unittest.TestCase):
    def test_text_prints_and_parses_back(self):
        program = heddle.Program(LINEAR)
        self.assertEqual(str(heddle.Program(str(program))), str(program))

    def test_example_opens_with_defines(self):
        program = heddle.Program.open(ROOT / "examples/ag_linear.hd", defines={"tp": 2})
        self.assertEqual((program.ranks, program.axes[0].extent), (2, 2))
        self.assertEqual(program.stage, "tensor")

    def test_arguments_axes_and_sizes(self):
        program = heddle.Program("""heddle 2 tensor program p param m in 1..40 mesh dp=2, tp=3
            in %x : i32[m@dp, 6@tp] inout %s : bf16[] out %y : i32[m@dp, 6@tp] { %y = neg %x
            %s = neg %s }""")
        x, s, y = program.arguments
        self.assertEqual(x, ("x", "in", "i32", (40, 6), (20, 2), ("dp", "tp"), 160))
        self.assertEqual((s.role, s.dtype, s.shape, s.local_bytes), ("inout", "bf16", (), 2))
        self.assertEqual(y.role, "out")
        self.assertEqual(program.axes, (("dp", 2, 3), ("tp", 3, 1)))
        self.assertEqual(program.sizes, (("m", 1, 40, 40),))
        small = program.resize(m=5)
        self.assertEqual(small.shard("x", 5), (slice(3, 5), slice(4, 6)))
        self.assertEqual(program.shard("x", 5), (slice(20, 40), slice(4, 6)))

    def test_lowered_is_another_program_and_proven(self):
        program = heddle.Program(LINEAR)
        for options in ({}, {"transfer": "bulk"}, {"transfer": "auto"}, {"until": "stream"},
                        {"transfer": "auto", "until": "stream"},
                        {"transfer": "direct", "streams": 3, "protocol": "get",
                         "copy_own": True}):
            lowered = program.lower(**options)
            self.assertEqual(lowered.stage, options.get("until", "host"))
            if lowered.stage == "host":
                lowered.check(against=program)
        self.assertEqual(program.stage, "tensor")

    def test_same_text_as_the_command(self):
        said = subprocess.run([sys.executable, "-m", "heddle", "dump", "-", "--transfer", "direct",
                               "--streams", "3"], input=LINEAR, capture_output=True, text=True)
        self.assertEqual(said.stdout, str(heddle.Program(LINEAR).lower(transfer="direct", streams=3)))

    def test_option_without_effect_is_a_warning_at_the_caller(self):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            heddle.Program(LINEAR).lower(transfer="bulk", chunks=3)
        self.assertEqual([w.category for w in caught], [heddle.HeddleWarning])
        self.assertIn("HD0503", str(caught[0].message))
        self.assertEqual(caught[0].filename, __file__)

    def test_what_moves_more_than_it_needs_is_told_once(self):
        program = heddle.Program("heddle 2\ntensor program t\nmesh dp=2, tp=4\n"
                                 "in %x : f32[16384@dp, 1024@tp]\nout %y : f32[16384@tp, 1024@dp]\n"
                                 "{\n    %y = set %x\n}\n")
        for options in ({}, {"transfer": "auto"}, {"transfer": "bulk"}):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                program.lower(**options).simulate()
            self.assertEqual(sum(str(w.message).count("HD0505") for w in caught), 1)

    @unittest.mock.patch("warnings.warn")  # of what could overlap
    def test_prediction_and_timeline(self, _):
        host = heddle.Program(LINEAR).lower()
        machine = json.loads(MACHINE.read_text())
        default = host.simulate()
        self.assertGreater(default.time, 0)
        self.assertEqual(host.simulate(MACHINE), host.simulate(machine))
        self.assertNotEqual(host.simulate({**machine, "issue": 1.0}), host.simulate(machine))
        self.assertTrue(host.timeline(machine)._repr_svg_().startswith("<svg"))

    def test_reference_is_numpys(self):
        x, w = floats(4, 8, 32), floats(32, 16)
        values, bounds = heddle.Program(LINEAR).reference({"x": x, "w": w}).local("y", 3)
        self.assertTrue((abs(values - x.astype("f8") @ w) <= bounds).all())
        with self.assertRaisesRegex(heddle.ArgumentError, "%w"):
            heddle.Program(LINEAR).reference({"x": x})
        with self.assertRaisesRegex(heddle.ArgumentError, r"\[4, 8, 32\].*\[3\]"):
            heddle.Program(LINEAR).reference({"x": x[0, 0, :3], "w": w})

    def test_reference_of_integers_is_exact(self):
        x = integers("i4", 50)
        program = heddle.Program("heddle 2 tensor program p in %x : i32[50] out %y : i32[50] "
                                 "{ %y = add %x, %x }")
        values, bounds = program.reference({"x": x}).local("y", 0)
        np.testing.assert_array_equal(values, x + x)


class Errors(unittest.TestCase):
    def test_wrong_program(self):
        with self.assertRaises(heddle.ProgramError) as caught:
            heddle.Program(LINEAR.replace("%g, %w", "%gg, %w"), name="a.hd")
        error = caught.exception
        self.assertIsInstance(error, ValueError)
        self.assertEqual((error.code, error.status), ("HD0201", heddle.Status.INVALID))
        self.assertEqual(error.messages[0][:5], ("error", "HD0201", "a.hd", 11, 17))
        self.assertIn("^~~", str(error))
        again = pickle.loads(pickle.dumps(error))
        self.assertEqual((str(again), again.messages, type(again)),
                         (str(error), error.messages, type(error)))

    def test_race_is_found(self):
        broken = heddle.Program.open(ROOT / "examples/broken/ring_two_slots.hd")
        with self.assertRaisesRegex(heddle.ProgramError, "race"):
            broken.check()

    def test_what_is_misused(self):
        program = heddle.Program(LINEAR)
        for call, words in ((lambda: program.lower(transfer="rign"), "rign.*bulk"),
                            (lambda: program.lower(streams=65), "65"),
                            (lambda: program.lower(transfer="ring", machine={}), "auto"),
                            (lambda: program.lower(transfer="ring", parts=True), "auto"),
                            (lambda: program.shard("z", 0), "'z'.*x, w, y"),
                            (lambda: program.shard("x", 4), "rank 4 of 4"),
                            (lambda: program.resize(n=1), "'n'")):
            with self.assertRaisesRegex(heddle.ArgumentError, words):
                call()
        with self.assertRaisesRegex(heddle.ProgramError, "issue"):
            program.lower().simulate({"issue": "x"})
        with self.assertRaises(FileNotFoundError):
            heddle.Program.open("nowhere.hd")
        with self.assertRaises(heddle.Error):
            program.simulate()

    def test_importing_needs_no_numpy(self):
        text = "import sys, heddle; heddle.Program('heddle 2 tensor program p in %x : f32[2] " \
               "out %y : f32[2] { %y = neg %x }').lower(); sys.exit('numpy' in sys.modules)"
        self.assertEqual(subprocess.run([sys.executable, "-c", text]).returncode, 0)


if __name__ == "__main__":
    unittest.main()

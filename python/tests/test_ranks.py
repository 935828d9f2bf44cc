"""Ranks in processes: answers, groups, failures, launchers, Ctrl-C."""
import json
import os
import pathlib
import secrets
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

import heddle
import numpy as np
from draw import RANDOM, floats, integers, poison
from heddle._library import ffi, info, lib

ROOT = pathlib.Path(os.environ["HEDDLE_ROOT"])

LINEAR = """heddle 2
tensor program linear
mesh tp=2
in %x : f32[size tp @tp, 8, 32]
in %w : f32[32, 16]
out %y : f32[size tp @stream, 8, 16]
temp %g : f32[size tp @stream, 8, 32]
{
    %g = set %x
    %y = matmul %g, %w
}
"""
GATHER = """heddle 2
tensor program gather
mesh tp=2
in %x : i64[13@tp]
out %y : i64[13]
{
    %y = set %x
}
"""


def answer(group, x, w, i, options):
    """The linear layer and a gather of integers in uneven blocks, three times."""
    defines = {"tp": group.size}
    program = heddle.Program(LINEAR, defines=defines)
    linear = heddle.compile(program, group, options)
    gather = heddle.compile(heddle.Program(GATHER, defines=defines), group)
    room, = gather.program.arguments[0].local_shape
    mine = np.full(room, 77, "i8")
    part, = gather.program.shard("x", group.rank)
    mine[:part.stop - part.start] = i[part]
    for _ in range(3):
        y = linear(x[program.shard("x", group.rank)], w,
                   out=np.full((group.size, 8, 16), np.nan, "f4"))
        np.testing.assert_array_equal(gather(mine, out=poison(i)), i)
    return y


def choose(group, folder):
    """Which transfers a rank chooses where one machine alone is calibrated: rank 0's."""
    os.environ["HEDDLE_CACHE_DIR"] = folder if group.rank == 0 else "off"
    linear = heddle.compile(heddle.Program(LINEAR), group)
    return "send" in str(linear.program)


SIZED = """heddle 2
tensor program sized
param m in 1..{most}
mesh tp=2
in %x : i64[m @tp, 3]
in %w : i64[2, m, 3]
out %y : i64[m @tp, 3]
out %g : i64[m, 3]
out %z : i64[2, m, 3]
{{
    %y = neg %x
    %g = set %x
    %z = neg %w
}}
"""


def fill_rooms(program, group, whole):
    """What a rank passes of whole arrays: its part in room for the greatest."""
    for argument in program.arguments:
        mine = np.full(argument.local_shape, 77, "i8")
        if argument.name in whole:
            part = program.shard(argument.name, group.rank)
            mine[tuple(slice(p.stop - p.start) for p in part)] = whole[argument.name][part]
        yield argument.name, mine


def run_sizes(group, most, rounds):
    """What each of them leaves in the rooms of this rank, in one session for all."""
    program = heddle.Program(SIZED.format(most=most))
    sized, answers = heddle.compile(program, group), []
    for m, whole in rounds:
        arrays = dict(fill_rooms(program.resize(m=m), group, whole))
        left = {name: arrays[name] for name in "ygz"}
        sized(arrays["x"], arrays["w"], sizes={"m": m}, out=left)
        answers.append(left)
    return answers


def put_together(program, name, parts):
    argument = program.arguments[program._index(name)]
    whole = np.full(argument.shape, 78, "i8")
    for rank, mine in enumerate(parts):
        part = program.shard(name, rank)
        whole[part] = mine[tuple(slice(p.stop - p.start) for p in part)]
    return whole


def meet(group):
    """Groups of those with one parity, the last rank first."""
    with group.split(group.rank % 2, key=-group.rank) as part:
        part.barrier()
        told = part.rank, part.size
    none = group.split(-1)
    group.barrier()
    return told, none


def fail(group, how):
    if group.rank == 1:
        if how == "raise":
            raise LookupError("of rank 1")
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "abort":
            group.abort()
        if how == "lambda":
            return lambda: 0
        if how == "pending":
            heddle.compile(heddle.Program(GATHER), group).start(np.zeros(7, "i8"))
            raise LookupError("of rank 1")
        if how == "hang":
            time.sleep(60)
    if how == "pending":
        heddle.compile(heddle.Program(GATHER), group)
        time.sleep(60)
    if how == "kill in a run":
        gather = heddle.compile(heddle.Program(GATHER, defines={"tp": group.size}), group)
        if group.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            gather(np.zeros(gather.program.arguments[0].local_shape, "i8"))
        except ConnectionError as error:
            assert "rank 1 died" in str(error), str(error)
            raise
        raise AssertionError("a run without rank 1")
    program = heddle.Program(GATHER, defines={"tp": group.size})
    if how == "other" and group.rank == 1:
        program = heddle.Program(GATHER.replace("13", "12"), defines={"tp": group.size})
    heddle.compile(program, group, timeout=0.5)


def tuned(group, x, w):
    program = heddle.Program(LINEAR, defines={"tp": group.size})
    run = heddle.compile(program, group, tune=True)
    return str(run.program), run(x[group.rank:group.rank + 1], w)


class Ranks(unittest.TestCase):
    def test_answers_of_one_to_four_ranks(self):
        for n, start, options in ((1, "spawn", {}), (2, "fork", {"transfer": "bulk"}),
                                  (4, "spawn", "auto"), (3, "fork", {"streams": 3})):
            x, w, i = floats(n, 8, 32), floats(32, 16), integers("i8", 13)
            answers = heddle.launch(n, answer, x, w, i, options, start=start)
            reference = heddle.Program(LINEAR, defines={"tp": n}).reference({"x": x, "w": w})
            for rank, y in enumerate(answers):
                values, bounds = reference.local("y", rank)
                self.assertTrue((abs(y - values) <= bounds).all(), (n, rank))

    def test_what_is_tuned_is_right_and_kept(self):
        x, w = floats(2, 8, 32), floats(32, 16)
        program = heddle.Program(LINEAR, defines={"tp": 2})
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.dict(
                os.environ, HEDDLE_CACHE_DIR=folder):
            for _ in range(2):
                answers = heddle.launch(2, tuned, x, w, start="fork")
                self.assertEqual(len(os.listdir(folder)), 1)
        for rank, (text, y) in enumerate(answers):
            self.assertEqual(text, answers[0][0])
            values, bounds = program.reference({"x": x, "w": w}).local("y", rank)
            self.assertTrue((abs(y - values) <= bounds).all(), rank)

    def test_sized_outputs_are_whole_whatever_there_is_room_for(self):
        most = int(RANDOM.integers(3, 14))
        room = -(-most // 2)
        sizes = sorted({1, most - 1, most, room - 1, room, room + 1,
                        int(RANDOM.integers(1, most + 1))})
        rounds = [(m, {"x": integers("i8", m, 3), "w": integers("i8", 2, m, 3)}) for m in sizes]
        ranks = heddle.launch(2, run_sizes, most, rounds)
        program = heddle.Program(SIZED.format(most=most))
        for i, (m, whole) in enumerate(rounds):
            want = {"y": -whole["x"], "g": whole["x"], "z": -whole["w"]}
            for name, values in want.items():
                got = put_together(program.resize(m=m), name, [rank[i][name] for rank in ranks])
                np.testing.assert_array_equal(got, values, f"{name}, m {m} of {most}")

    def test_machine_at_hand_is_that_of_rank_0(self):
        kind = info("hd_env_kind")
        self.assertEqual(lib.hd_environment_kind(b"cpu", ffi.NULL, kind), lib.HD_OK)
        machine = json.loads((ROOT / "examples/machines/cpu2.json").read_text())
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(heddle.launch(2, choose, folder, start="fork"), [True, True])
            kept = pathlib.Path(folder, "machines", ffi.string(kind.key).decode() + ".json")
            kept.parent.mkdir()
            kept.write_text(json.dumps({**machine, "hop": 0.9}))
            self.assertEqual(heddle.launch(2, choose, folder, start="fork"), [False, False])

    def test_groups_meet_and_split(self):
        self.assertEqual(heddle.launch(4, meet, start="fork"),
                         [((1, 2), None), ((1, 2), None), ((0, 2), None), ((0, 2), None)])

    def test_failure_of_a_rank_is_the_launchers(self):
        for how, kind, words in (("raise", LookupError, "of rank 1"),
                                 ("kill", heddle.PeerError, "rank 1 died: signal 9"),
                                 ("kill in a run", heddle.PeerError, "rank 1 died: signal 9"),
                                 ("abort", heddle.Error, "abort"),
                                 ("other", heddle.Error, "rank"),
                                 ("lambda", heddle.Error, "pickle|group|rank")):
            begin = time.monotonic()
            with self.assertRaisesRegex(kind, words):
                heddle.launch(3, fail, how, start="fork")
            self.assertLess(time.monotonic() - begin, 5, how)

    def test_rank_that_fails_waits_for_no_run(self):
        begin = time.monotonic()
        with self.assertRaisesRegex(LookupError, "of rank 1"):
            heddle.launch(2, fail, "pending", start="fork")
        self.assertLess(time.monotonic() - begin, 5)

    def test_killed_ranks_are_told_and_nothing_is_left(self):
        """HEDDLE_KILLS=500 does it 500 times."""
        said = subprocess.run([sys.executable, os.path.join(os.path.dirname(__file__), "killed.py"),
                               os.environ.get("HEDDLE_KILLS", "5")],
                              capture_output=True, text=True)
        self.assertEqual(said.returncode, 0, said.stdout + said.stderr)

    def test_who_failed_by_itself_is_told(self):
        peer, own = heddle.PeerError("another"), LookupError()
        for answers, failed, culprit in (
                ([(False, peer, "t", True), (False, own, "t", False)], [0, 1], 1),
                ([(False, own, "t", True), (False, own, "t", False)], [0, 1], 1),
                ([(False, peer, "t", True), (False, peer, "", True)], [0, 1], 1),
                ([(False, peer, "", True), (False, own, "t", False)], [0, 1], 1),
                ([(False, peer, "t", True), (False, peer, "t", True)], [1, 0], 1)):
            ranks = heddle._group.Ranks()
            ranks.answers, ranks.failed = answers, failed
            self.assertEqual(ranks.culprit(), culprit)

    def test_what_cannot_be_sent_to_new_processes(self):
        for args in ((lambda group: 0,), (meet, lambda: 0)):
            self.assertRaisesRegex(TypeError, "by pickle, so fn stands in a file", heddle.launch, 2,
                                   *args)

    def test_deadline(self):
        with self.assertRaises(TimeoutError):
            heddle.launch(2, fail, "hang", start="fork", deadline=0.5)
        with self.assertRaises(heddle.TimeoutError) as caught:
            heddle.launch(2, fail, "hang", start="fork")
        self.assertEqual(caught.exception.status, heddle.Status.TIMEOUT)

    def test_launchers_variables(self):
        text = ("import heddle\nwith heddle.Group.from_env() as g:\n"
                "    g.barrier()\n    print(g.rank, g.size, flush=True)\n")
        job = secrets.token_hex(8)
        ranks = [subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True,
                                  env={**os.environ, "RANK": str(r), "WORLD_SIZE": "2",
                                       "LOCAL_RANK": str(r), "LOCAL_WORLD_SIZE": "2",
                                       "TORCHELASTIC_RUN_ID": job})
                 for r in range(2)]
        self.assertEqual([rank.communicate(timeout=30)[0] for rank in ranks], ["0 2\n", "1 2\n"])
        with self.assertRaisesRegex(heddle.ArgumentError, "no launcher"):
            heddle.Group.from_env()

    def test_interrupt_while_waiting_for_another_rank(self):
        """Each of these blocks for as long as rank 1 does not come."""
        for what in ("group.barrier()", "heddle.compile(program, group)", "f(x)",
                     "f.start(x).result()"):
            self.interrupt(what)

    def interrupt(self, what):
        text = f"""
import heddle, os, sys, time
import numpy as np
def main(group):
    program = heddle.Program({GATHER!r})
    x = np.zeros(7, "i8")
    if {what[0]!r} == "f":
        f = heddle.compile(program, group)
    if group.rank == 1:
        time.sleep(60)
    print(os.getpid(), flush=True)
    try:
        {what}
    except KeyboardInterrupt:
        print(time.monotonic(), flush=True)
heddle.launch(2, main, start="fork")
"""
        rank = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)
        waits = int(rank.stdout.readline())
        time.sleep(0.3)
        begin = time.monotonic()
        os.kill(waits, signal.SIGINT)
        said = rank.stdout.readline()
        rank.kill()  # which its ranks do not outlive: they have its output open
        rank.communicate(timeout=30)
        # 0.1 s, and what other processes take of the processors.
        self.assertLess(float(said) - begin, 1, what)


if __name__ == "__main__":
    unittest.main()

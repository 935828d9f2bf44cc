"""Groups of ranks, and processes for them."""
import atexit
import functools
import multiprocessing
import multiprocessing.connection
import pickle
import secrets
import threading
import time
import traceback
import weakref
from typing import Any, Callable, Dict, List, NoReturn, Optional, Sequence, Set, Tuple

from ._array import Array, Memory
from ._error import Diag, Error, PeerError, TimeoutError, refuse
from ._library import ffi, info, lib, uninterrupted


class Use:
    """Of a group, by one thread at a time: another is refused, not made to wait."""

    def __init__(self) -> None:
        lock = threading.RLock()
        self.begin = functools.partial(lock.acquire, False)  # False: another has it
        self.end = lock.release

    def __enter__(self) -> None:
        if not self.begin():
            self.refuse()

    def __exit__(self, *_: Any) -> None:
        self.end()

    def refuse(self) -> NoReturn:
        refuse("another thread is using this group, which one does at a time")


class Group:
    """The ranks that run programs together. `Group.from_env()`, `Group.local()`
    and `launch` make one; `with` closes it, and aborts it first if the block
    raises, so that no other rank waits for this one.

    A group is used by one thread at a time, but for `abort`. What has failed on
    one rank has failed on all, and can only be closed.
    """

    def __init__(self, pointer: Any, timeout: float = 30.0) -> None:
        self._pointer = pointer
        self._timeout = timeout
        self._memory = Memory(pointer)
        self._use = Use()
        self._machines: Dict[str, Any] = {}  # by kind of device
        self._cores: Set[Any] = set()  # of executables that are not closed
        self._told = False  # of a peer's failure, which what comes of that may hide
        GROUPS.add(self)

    @classmethod
    def from_env(cls, timeout: float = 30.0) -> "Group":
        """The group of all ranks that a launcher has started, as its variables say
        (torchrun, Open MPI, PMI, Slurm: docs/launch.md). Collective; `timeout`, in
        seconds, bounds it, later collective calls, and what runs wait for a rank."""
        place, found = info("hd_place"), ffi.new("bool *")
        with Diag() as diag:
            diag.check(lib.hd_place_find(diag.p, found, place))
        if not found[0]:
            refuse("no launcher has started this process: its environment has none of the "
                   "variables that docs/launch.md lists")
        return cls._join(place, timeout)

    @classmethod
    def local(cls) -> "Group":
        """A group of this process alone."""
        oob, out = info("hd_oob"), ffi.new("hd_group **")
        oob.nranks = 1
        with Diag() as diag:
            diag.check(lib.hd_group_create(oob, 30.0, diag.p, out))
        return cls(out[0])

    @classmethod
    def from_torch(cls, group: Any = None, timeout: Optional[float] = None) -> "Group":
        """The ranks of a torch.distributed ProcessGroup (None is all ranks), of a
        DeviceMesh of one dimension, or of a process group's name. Collective over
        these ranks, which meet by the group's store; it works on any backend, and of
        several hosts. `timeout` as of `from_env`, and the process group's own if it is
        None. It is closed with the process group, if it is not closed before."""
        from .torch._group import join
        return join(group, timeout)

    @classmethod
    def _join(cls, place: Any, timeout: float) -> "Group":
        out = ffi.new("hd_group **")
        left: List[bool] = []

        def join() -> None:
            with Diag() as diag:
                diag.check(lib.hd_group_join(place, timeout, diag.p, out))
            if left:  # nobody waits for it any more
                lib.hd_group_destroy(out[0])

        uninterrupted(join, lambda: left.append(True))
        return cls(out[0], timeout)

    @property
    def rank(self) -> int:
        return lib.hd_group_rank(self._open())

    @property
    def size(self) -> int:
        return lib.hd_group_size(self._open())

    def split(self, color: int, key: int = 0) -> Optional["Group"]:
        """Collective: one group for each colour, of the ranks that pass it, in the
        order of their keys; None for a negative one."""
        pointer, out = self._open(), ffi.new("hd_group **")

        def split() -> None:
            with Diag() as diag:
                diag.check(lib.hd_group_split(pointer, color, key, diag.p, out))

        uninterrupted(split, self.abort)
        return Group(out[0], self._timeout) if out[0] else None

    def _machine(self, device: str) -> Any:
        """What rank 0 knows of its machine, for all ranks, since they choose alike.
        Collective the first time that it is asked for a kind of device."""
        kind = device.split(":")[0]
        if kind in self._machines:
            return self._machines[kind]
        pointer, own = self._open(), info("hd_machine")
        found = ffi.new("hd_machine[]", self.size)

        def share() -> None:
            with Diag() as diag:
                if self.rank == 0:
                    diag.check(lib.hd_machine_here(kind.encode(), diag.p, own,
                                                   info("hd_machine_origin")))
                diag.check(lib.hd_group_allgather(pointer, own, ffi.sizeof("hd_machine"), found,
                                                  diag.p))

        uninterrupted(share, self.abort)
        self._machines[kind] = ffi.new("hd_machine *", found[0])
        return self._machines[kind]

    def barrier(self) -> None:
        """Collective: returns when all ranks have called it."""
        pointer = self._open()

        def meet() -> None:
            with Diag() as diag:
                diag.check(lib.hd_group_allgather(pointer, ffi.NULL, 0, ffi.NULL, diag.p))

        uninterrupted(meet, self.abort)

    def empty(self, shape: Sequence[int], dtype: str, device: str = "cpu") -> Array:
        """An array that peers can map, for what `compile` is given as `fixed`; it holds
        anything at first. `dtype` is "f32" or the like, `device` "cpu" or "cuda:3". Each
        takes whole pages and a descriptor. Local: other ranks need not call it."""
        self._open()
        return Array(self._memory, shape, dtype, device)

    def set_timeout(self, seconds: float) -> None:
        """How long, in seconds, later collective calls of the group may wait, and runs of
        what is compiled from now on."""
        lib.hd_group_set_timeout(self._open(), seconds)
        self._timeout = seconds

    def abort(self) -> None:
        """Ends whatever any rank waits for in this group, from any thread: within
        0.1 s with PeerError. Afterwards the group can only be closed."""
        if self._pointer:
            lib.hd_group_abort(self._pointer)

    def close(self) -> None:
        """Closes the executables of the group, then the group. Not collective."""
        for core in list(self._cores):
            core.close()
        pointer, self._pointer = self._pointer, ffi.NULL
        if pointer:
            self._memory.close()

    def _give_up(self, kind: type) -> None:
        """Aborts the group where others may wait for this rank, or it for them. One
        that has failed says why, and aborting it would hide that."""
        if not issubclass(kind, PeerError) or any(core.pending for core in self._cores):
            self.abort()

    def _open(self) -> Any:
        if not self._pointer:
            refuse("the group is closed")
        return self._pointer

    def __enter__(self) -> "Group":
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is not None:
            self._give_up(kind)
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_pointer", None):
            self.close()

    def __repr__(self) -> str:
        return f"<heddle.Group rank {self.rank} of {self.size}>" if self._pointer else \
            "<heddle.Group closed>"


GROUPS: "weakref.WeakSet[Group]" = weakref.WeakSet()


@atexit.register
def close_groups() -> None:
    """Before the interpreter goes: no thread of the library's may call Python
    then, and runs that nobody waited for are not waited for now."""
    for group in list(GROUPS):
        if any(core.pending for core in group._cores):
            group.abort()
        group.close()


# ------------------------------------------------------------------- processes


class Told(Exception):
    """What a rank printed of an exception of its own."""

    def __str__(self) -> str:
        return "\n" + str(self.args[0])


def portable(value: Any) -> bytes:
    """A message to the launcher. What cannot be pickled is told in words."""
    try:
        return pickle.dumps(value)
    except Exception as error:
        ok, what, trace, told = value
        words = (f"the result of a rank cannot be pickled: {error}" if ok else
                 f"{type(what).__name__}: {what}")
        return pickle.dumps((False, Error(words), trace, told))


def run_rank(send: Any, rank: int, nranks: int, job: int, timeout: float, fn: Callable[..., Any],
             args: Tuple[Any, ...]) -> None:
    """What a process of `launch` does."""
    lib.heddle_die_with_parent()
    group = None
    try:
        group = Group._join(describe_place(rank, nranks, job), timeout)
        answer = (True, fn(group, *args), "", False)
    except BaseException as error:
        if group is not None:
            group._give_up(type(error))
        told = isinstance(error, PeerError) or (group is not None and group._told)
        answer = (False, error, traceback.format_exc(), told)
    if group is not None:
        group.close()
    send.send_bytes(portable(answer))
    send.close()


def describe_place(rank: int, nranks: int, job: int) -> Any:
    place = info("hd_place")
    place.launcher = LAUNCHER
    place.rank = place.local_rank = rank
    place.nranks = place.local_size = nranks
    place.job = job
    return place


LAUNCHER = ffi.new("char[]", b"heddle.launch")


def start_rank(process: Any) -> None:
    try:
        process.start()
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise TypeError("new processes are given fn and args by pickle, so fn stands in a file "
                        f"that can be imported; start=\"fork\" copies this one: {error}") from error


class Ranks:
    """The processes of one launch, and what has come from them."""

    def __init__(self) -> None:
        self.processes: List[Any] = []
        self.pipes: List[Any] = []
        self.answers: List[Any] = []
        self.failed: List[int] = []  # in the order in which they were noticed

    def start(self, context: Any, **what: Any) -> None:
        for rank in range(what["nranks"]):
            receive, send = context.Pipe(duplex=False)
            process = context.Process(
                target=run_rank, name=f"rank {rank}",
                args=(send, rank, what["nranks"], what["job"], what["timeout"], what["fn"],
                      what["args"]))
            start_rank(process)
            send.close()
            self.processes.append(process)
            self.pipes.append(receive)
            self.answers.append(None)

    def hear(self, rank: int) -> None:
        try:
            self.answers[rank] = pickle.loads(self.pipes[rank].recv_bytes())
        except EOFError:
            self.processes[rank].join()
            code = self.processes[rank].exitcode
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            self.answers[rank] = (False, PeerError(f"rank {rank} died: {how}"), "", True)
        except Exception as error:  # what was sent cannot be made again here
            self.answers[rank] = (False, error, "", False)
        if not self.answers[rank][0]:
            self.failed.append(rank)

    def gather(self, deadline: Optional[float]) -> None:
        """Until all have answered, or one has failed and the rest had a second: ten
        while only such have that tell of another."""
        end = None if deadline is None else time.monotonic() + deadline
        while True:
            missing = [r for r, answer in enumerate(self.answers) if answer is None]
            left = None if end is None else end - time.monotonic()
            if not missing:
                return
            if left is not None and left <= 0:
                if self.failed:
                    return
                raise TimeoutError(f"rank {missing[0]} still runs after {deadline:g} s")
            heard = multiprocessing.connection.wait([self.pipes[r] for r in missing], left)
            for rank in missing:
                if self.pipes[rank] in heard:
                    self.hear(rank)
            if self.failed:
                past = time.monotonic() + (1 if self.by_themselves() else 10)
                end = past if end is None else min(end, past)

    def stop(self) -> None:
        for process, pipe in zip(self.processes, self.pipes):
            if process.exitcode is None and self.answers[self.processes.index(process)] is None:
                process.kill()
            process.join()
            pipe.close()

    def by_themselves(self) -> List[int]:
        """Those that failed so, or else died: others only tell of them."""
        by_itself = [r for r in self.failed if not self.answers[r][3]]
        died = [r for r in self.failed if not self.answers[r][2]]
        return by_itself or died

    def culprit(self) -> int:
        return (self.by_themselves() or self.failed)[0]


def launch(nranks: int, fn: Callable[..., Any], *args: Any, timeout: float = 30.0,
           deadline: Optional[float] = None, start: str = "spawn") -> List[Any]:
    """Calls `fn(group, *args)` in `nranks` processes of this host and returns what
    they return, by rank.

    Where one raises, the others are given one second (ten where only such have
    raised that tell of another's failure), and its exception is raised here, with
    its traceback as the cause. `timeout` bounds how long ranks wait for
    each other, `deadline` the whole: beyond it is TimeoutError. Both in seconds.
    No process is left, however this ends.

    `start` is multiprocessing's: "spawn" begins new processes, for which `fn` and
    `args` are pickled, so that `fn` stands in a file that can be imported; "fork"
    copies this process, which works in a notebook, but not once CUDA is in use.
    """
    if nranks < 1:
        refuse(f"{nranks} ranks")
    ranks = Ranks()
    try:
        ranks.start(multiprocessing.get_context(start), nranks=nranks, job=secrets.randbits(64),
                    timeout=timeout, fn=fn, args=args)
        ranks.gather(deadline)
    except BaseException:
        ranks.answers = [None] * len(ranks.processes)
        raise
    finally:
        ranks.stop()
    if ranks.failed:
        _, error, trace, _ = ranks.answers[ranks.culprit()]
        raise error from (Told(trace) if trace else None)
    return [answer[1] for answer in ranks.answers]

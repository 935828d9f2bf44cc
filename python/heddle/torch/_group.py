"""Groups of PyTorch's: from a process group to the ranks that run programs."""
import contextlib
import datetime
import itertools
import time
import weakref
from typing import Any, Callable, Dict, Iterator, List, NoReturn, Optional, Tuple, Union

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from .._error import ArgumentError, Diag, TimeoutError, refuse
from .._group import Group
from .._library import ffi, info, lib, uninterrupted

# A group of heddle's, a ProcessGroup, a DeviceMesh of one dimension, the name of
# a process group, or None for all ranks.
AnyGroup = Union[None, Group, Any, str]
resolve = c10d._resolve_process_group
SLICE = 0.005  # s between looks into the store
BRIEF = datetime.timedelta(seconds=1)  # what the store may take where nothing depends on it
OWN = "heddle:"  # what names of groups that no process group stands for begin with


def process_group(group: AnyGroup) -> Any:
    """The ProcessGroup that is meant."""
    if isinstance(group, str):
        try:
            return resolve(group)
        except (LookupError, RuntimeError, ValueError) as error:
            judge_there()
            raise ArgumentError(f"'{group}' names no process group") from error
    world = dist.group.WORLD if group is None else None
    if world is not None:
        return world
    judge_there()
    if group is not None and hasattr(group, "get_group") and hasattr(group, "mesh_dim_names"):
        return group.get_group()
    if not isinstance(group, dist.ProcessGroup):
        refuse(f"{group!r} is no process group that this rank is in")
    return group


def judge_there() -> None:
    if not dist.is_initialized():
        refuse("torch.distributed has no process group: call init_process_group")


class Gather:
    """Bytes of each rank to all, by the store that the process group has met by. It
    needs no connection of the group's own, so nothing is left under way in it."""

    def __init__(self, group: Any, timeout: float) -> None:
        self.rank, self.size = group.rank(), group.size()
        self.timeout = timeout
        self.store = group.get_group_store()
        self.prefix = ""
        self.round = 0
        self.raised: Optional[BaseException] = None

    def key(self, rank: int, turn: int) -> str:
        return f"{self.prefix}/{turn}/{rank}"

    def meet(self) -> None:
        """Agrees with all ranks on keys that are of this attempt of each alone. Any may
        have given up one that the others still see, and have begun another: who waits
        goes on to that."""
        end = time.monotonic() + self.timeout
        mark, seen = "heddle/at/{}".format, {}  # type: Callable[[int], str], Dict[int, bytes]
        attempt = self.store.add(f"heddle/attempt/{self.rank}", 1)
        self.store.set(mark(self.rank), str(attempt))
        try:
            while not self.confirm(seen, mark):
                if time.monotonic() > end:
                    ranks = range(self.size)
                    late = [peer for peer in ranks if not seen.get(peer)] or \
                        [peer for peer in ranks if not self.store.check([self.key(peer, 0)])]
                    if late:
                        self.give_up(late[0])
                time.sleep(SLICE)
        finally:
            self.store.set(mark(self.rank), "")
        self.round = 1

    def confirm(self, seen: Dict[int, bytes], mark: Callable[[int], str]) -> bool:
        """Whether all ranks have told that they see the same attempts. What one no
        longer shows is over, or agreed upon: as long as it has no other one it stays."""
        all_told = [self.key(peer, 0) for peer in range(self.size)]
        if self.prefix and self.store.check(all_told):
            return True
        for peer in range(self.size):
            if self.store.check([mark(peer)]):
                seen[peer] = self.store.get(mark(peer)) or seen.get(peer, b"")
        if all(seen.get(peer) for peer in range(self.size)):
            prefix = "heddle/" + ".".join(seen[peer].decode() for peer in range(self.size))
            if prefix != self.prefix:
                if self.prefix:
                    self.store.delete_key(self.key(self.rank, 0))
                self.prefix = prefix
                self.store.set(self.key(self.rank, 0), "here")
        return False

    def give_up(self, peer: int) -> NoReturn:
        raise TimeoutError(f"rank {self.rank} waits for rank {peer} in Group.from_torch, which "
                           f"has not called it within {self.timeout:g} s")

    def wait(self, peer: int, end: float) -> bytes:
        key = self.key(peer, self.round)
        left = max(end - time.monotonic(), 0.001)
        try:
            self.store.wait([key], datetime.timedelta(seconds=left))
        except Exception:
            if self.store.check([key]):
                raise
            self.give_up(peer)
        return self.store.get(key)

    def __call__(self, mine: bytes) -> bytes:
        end = time.monotonic() + self.timeout
        self.store.set(self.key(self.rank, self.round), mine)
        parts = [self.wait(peer, end) for peer in range(self.size)]
        # All have read the round before when they write this one.
        self.store.delete_key(self.key(self.rank, self.round - 1))
        self.round += 1
        return b"".join(parts)


class Board:
    """What ranks tell each other of programs beside their calls: one that makes a program
    in a call in which another runs one that it has waits for that rank in vain. Where the
    store is gone, with the rank that kept it, nothing is told, within BRIEF."""

    def __init__(self, gather: Gather) -> None:
        self.rank, self.size = gather.rank, gather.size
        self.store, self.prefix = gather.store, gather.prefix

    def key(self, what: str, call: int, rank: int) -> str:
        return f"{self.prefix}/{what}/{call}/{rank}"

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        before = self.store.timeout
        self.store.set_timeout(BRIEF)
        try:
            with contextlib.suppress(RuntimeError):
                yield
        finally:
            self.store.set_timeout(before)

    def read(self, key: str) -> Optional[str]:
        with self.asking():
            if self.store.check([key]):
                return self.store.get(key).decode()
        return None

    def post(self, call: int, text: str) -> None:
        """This rank makes that program, in the call of that number."""
        with self.asking():
            self.store.set(self.key("makes", call, self.rank), text)

    def clear(self, call: int) -> None:
        with self.asking():
            self.store.delete_key(self.key("makes", call, self.rank))

    def tell(self, call: int, text: str) -> Optional[str]:
        """In words, which all ranks then find: whether one makes a program in the call in
        which this one runs `text`."""
        for peer in range(self.size):
            made = None if peer == self.rank else self.read(self.key("makes", call, peer))
            if made is not None:
                words = tell_difference(peer, made, self.rank, text)
                with self.asking():
                    self.store.set(self.key("says", call, 0), words)
                return words
        return None

    def find(self, call: int) -> Optional[str]:
        return self.read(self.key("says", call, 0))


def tell_difference(odd: int, made: str, rank: int, run: str) -> str:
    pairs = itertools.zip_longest(made.splitlines(), run.splitlines(), fillvalue="")
    for i, (one, other) in enumerate(pairs):
        if one != other:
            return (f"rank {odd} makes another program than rank {rank} runs: line {i + 1} of it is "
                    f"'{one.strip()}', and '{other.strip()}' on rank {rank}")
    return f"rank {odd} makes the program that rank {rank} has, and runs"


@ffi.def_extern(error=lib.HD_ERROR_SYSTEM)
def heddle_allgather(context: Any, mine: Any, count: int, everything: Any) -> int:
    gather = ffi.from_handle(context)
    try:
        found = gather(bytes(ffi.buffer(mine, count)))
        ffi.memmove(everything, found, len(found))
    except BaseException as error:
        gather.raised = error
        return getattr(error, "status", lib.HD_ERROR_SYSTEM)
    return lib.HD_OK


def timeout_of(pg: Any) -> float:
    """How long, in seconds, collectives of the process group's own wait for a rank."""
    backends = [pg._get_backend(device) for device in pg._device_types]
    known = [options._timeout.total_seconds() for options in
             (getattr(backend, "options", None) for backend in backends) if options is not None]
    return min(known) if known else c10d.default_pg_timeout.total_seconds()


def join(group: AnyGroup, timeout: Optional[float]) -> Group:
    """`Group.from_torch`."""
    pg = process_group(group)
    timeout = timeout_of(pg) if timeout is None else timeout
    gather = Gather(pg, timeout)
    handle = ffi.new_handle(gather)
    oob, out = info("hd_oob"), ffi.new("hd_group **")
    oob.context, oob.rank, oob.nranks = handle, gather.rank, gather.size
    oob.allgather = lib.heddle_allgather
    left: List[bool] = []

    def create() -> None:
        gather.meet()
        with Diag() as diag:
            status = lib.hd_group_create(oob, timeout, diag.p, out)
            if gather.raised is not None:
                raise gather.raised
            diag.check(status)
        if left:  # nobody waits for it any more
            lib.hd_group_destroy(out[0])

    uninterrupted(create, lambda: left.append(True))
    made = Group(out[0], timeout)
    made._torch_board = Board(gather)  # type: ignore[attr-defined]
    # The process group's end is this one's. At exit groups end by themselves.
    weakref.finalize(pg, end, weakref.ref(made)).atexit = False
    return made


def end(reference: Callable[[], Optional[Group]]) -> None:
    group = reference()
    if group is None:
        return
    if group._pointer:
        if any(core.pending for core in group._cores):
            group.abort()
        group.close()
    for name, (_, found) in list(known.items()):
        if found is group:
            del known[name]


# --------------------------------------------------- groups by name, for operators

numbers = itertools.count()
own: "weakref.WeakValueDictionary[str, Group]" = weakref.WeakValueDictionary()
# By the name of a process group, which a later one may have again.
known: Dict[str, Tuple[Callable[[], Any], Any]] = {}
NOBODY = (lambda: None), None


def name_of(group: AnyGroup) -> str:
    """A name that operators take: tensors and plain values are all that they have."""
    if isinstance(group, str):
        return group
    if not isinstance(group, Group):
        return process_group(group).group_name
    name = getattr(group, "_torch_name", None)
    if name is None:
        name = group._torch_name = f"{OWN}{next(numbers)}"  # type: ignore[attr-defined]
        own[name] = group
    return name


def size_of(name: str) -> int:
    """How many ranks it has, without making it."""
    if name.startswith(OWN):
        return find(name).size
    return process_group(name).size()


def find_made(group: AnyGroup) -> Optional[Group]:
    """The group of a process group, where it is made already."""
    pg = dist.group.WORLD if group is None else group
    reference, made = known.get(getattr(pg, "group_name", ""), NOBODY)
    return made if made is not None and reference() is pg and made._pointer else None


def find(name: str) -> Group:
    """The group of that name. The first time it is made: collective then."""
    if name.startswith(OWN):
        group = own.get(name)
        if group is None:
            refuse(f"the group '{name}' is gone")
        return group
    pg = process_group(name)
    reference, group = known.get(name, NOBODY)
    if reference() is pg and group._pointer:
        return group
    group = join(pg, None)
    known[name] = weakref.ref(pg), group
    return group

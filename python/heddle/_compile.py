"""Programs bound to a group: callables on arrays of any library."""
import collections
import itertools
import numbers
import sys
import threading
from collections.abc import Mapping
from typing import (Any, Callable, Deque, Dict, List, NoReturn, Optional, Sequence, Set, Tuple,
                    Union)

from ._call import CPU, CUDA, ML_DTYPES, Function, Table, capsule_of
from ._direct import Plan
from ._error import ArgumentError, Diag, PeerError, TimeoutError, refuse
from ._event import event_of
from ._group import Group
from ._library import DTYPES, ffi, info, lib, text_of, uninterrupted
from ._program import NUMPY, Argument, Machine, Program, read_machine, set_transport

SLICE = 0.05  # s that a wait blocks in C, and so signals
LATE = 20  # slices, after which a wait is a long one
RUNS = 16  # that may be under way
EXCHANGE = "__dlpack_c_exchange_api__"  # of tensors that plans look at
PLANS = 4  # that an executable keeps
KNOWN = 64  # kinds of tensors that an argument remembers
# What array libraries call the dtypes that NumPy has no name for.
TORCH = {**NUMPY, **{dtype: name for dtype, (name, _) in ML_DTYPES.items()}}
NUMBERS = {"f64": "double", "f32": "float", "i64": "int64_t", "i32": "int32_t", "u8": "uint8_t",
           "i8": "int8_t"}
Out = Union[None, Any, Sequence[Any], Mapping[str, Any]]


class Core:
    """A session and what must be there as long as it is. Knows no group, so that
    whoever drops the last reference to this one destroys nothing."""

    def __init__(self, pointer: Any, keep: Tuple[Any, ...], cores: Set["Core"]) -> None:
        self.pointer = pointer
        self.cell = ffi.new("hd_session **", pointer)  # where plans look for it
        self.keep = keep
        self.cores = cores
        self.pending: Dict["Run", None] = {}  # the oldest first
        self.dropped = False  # by everybody but the group
        self.settle: List[Callable[[], None]] = []  # waits for runs that others make
        cores.add(self)

    def close_if_dropped(self) -> None:
        """Nobody is made to wait for runs that nobody waits for: with some under
        way it stays until the group makes another, or is closed."""
        if self.dropped and not self.pending:
            self.close()

    def close(self) -> None:
        for settle in self.settle:
            settle()
        pointer, self.pointer = self.pointer, ffi.NULL
        self.cell[0] = ffi.NULL
        if pointer:
            lib.hd_session_destroy(pointer)
            self.cores.discard(self)


class Run:
    """A run that was started, until the library has said that it has ended."""

    def __init__(self, core: Core, arrays: Any) -> None:
        self.core = core
        self.arrays = arrays  # which the run reads and writes
        self.ended = threading.Event()
        self.status = lib.HD_OK
        self.handle = ffi.new_handle(self)


@ffi.def_extern()
def heddle_notify(context: Any, status: int) -> None:
    """On a thread of the library's."""
    run = ffi.from_handle(context)
    run.status, run.arrays = status, None
    run.core.pending.pop(run, None)
    run.ended.set()


class Future:
    """The answer of a run that was started. It keeps the run's arrays until the
    run has ended, whether the future is kept or not."""

    def __init__(self, executable: "Executable", run: Run, answer: Any) -> None:
        self._executable = executable
        self._run = run
        self._answer = answer

    def done(self) -> bool:
        """Whether the run has ended or failed."""
        return self._run.ended.is_set()

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Waits for that, `timeout` seconds at most, and says whether it is so. A
        signal's handler that raises, as Ctrl-C's does, ends the wait and not the run."""
        return self._run.ended.wait(timeout)

    def result(self, timeout: Optional[float] = None) -> Any:
        """What the call would have returned. TimeoutError if the run has not ended
        by then; the run's own Error if it failed."""
        if not self.wait(timeout):
            raise TimeoutError(f"the run has not ended within {timeout:g} s")
        self._executable._judge(self._run)
        return self._answer


def library_of(array: Any) -> Any:
    """PyTorch, CuPy or NumPy, where the array is of one, subclasses too; else None.
    What nobody has imported has made no array."""
    for name, kind in (("torch", "Tensor"), ("cupy", "ndarray"), ("numpy", "ndarray")):
        library = sys.modules.get(name)
        if library is not None and isinstance(array, getattr(library, kind, ())):
            return library
    return None


def torch_stream(torch: Any, ordinal: int) -> int:
    """PyTorch's current stream, without making an object of it where it can be had
    so: that takes longer than a run takes to issue."""
    raw = getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None)
    return int(raw(ordinal) if raw is not None else torch.cuda.current_stream(ordinal).cuda_stream)


def look_at(array: Any, torch: Any) -> Any:
    """What decides whether a tensor of PyTorch's fits, and its address; None for what
    is better asked by DLPack: subclasses, other layouts, what autograd would miss."""
    if type(array) is not torch.Tensor and type(array) is not torch.nn.Parameter:
        return None
    try:
        if array.requires_grad:
            return None
        return (array.shape, array.stride(), array.dtype, array.device), array.data_ptr()
    except (RuntimeError, NotImplementedError):
        return None


def cupy_stream(arrays: Sequence[Any], ordinal: int) -> int:
    """CuPy's current stream where an array is its, else the default stream."""
    cupy = sys.modules.get("cupy")
    kind = getattr(cupy, "ndarray", None)
    if kind is None or not any(isinstance(array, kind) for array in arrays):
        return 0
    return int(cupy.cuda.get_current_stream(ordinal).ptr)  # type: ignore[union-attr]


def number_of(pointer: Any) -> int:
    return int(ffi.cast("uintptr_t", pointer))


ISSUE = number_of(ffi.addressof(lib, "hd_session_run"))


def stream_of(stream: Any) -> int:
    """A CUstream as a number: an int, PyTorch's stream, CuPy's, or what has
    `__cuda_stream__`."""
    if not isinstance(stream, int):
        for name in ("cuda_stream", "ptr"):
            if hasattr(stream, name):
                return int(getattr(stream, name))
        if hasattr(stream, "__cuda_stream__"):
            return int(stream.__cuda_stream__()[1])
    elif stream >= 0 and not isinstance(stream, bool):
        return stream
    refuse(f"{stream!r} is no CUDA stream")


def like(arrays: Sequence[Any], argument: Argument) -> Any:
    """A new array for an output, of the library that the others are of."""
    for array in arrays:
        library = library_of(array)
        name = "" if library is None else library.__name__
        if name == "torch" and argument.dtype in TORCH:
            return library.empty(argument.local_shape, dtype=getattr(library, TORCH[argument.dtype]),
                                 device=array.device)
        if name == "cupy" and argument.dtype in NUMPY:
            with array.device:
                return library.empty(argument.local_shape, NUMPY[argument.dtype])
        if name == "numpy" and argument.dtype in TORCH:
            try:
                return library.empty(argument.local_shape, TORCH[argument.dtype])
            except TypeError:  # ml_dtypes has not been imported
                break
    what = "an event" if argument.dtype == "event" else "an array"
    refuse(f"%{argument.name} is {argument.dtype}{list(argument.local_shape)}: pass {what} for it, "
           "by its name or as out=")


def export_numpy(array: Any) -> Any:
    """A capsule for an array of dtypes that NumPy has from ml_dtypes, which its own
    __dlpack__ refuses; None for any other."""
    library = library_of(array)
    if library is None or library.__name__ != "numpy" or array.ndim > lib.HD_MAX_DIMS:
        return None
    names = [dtype for dtype, (name, _) in ML_DTYPES.items() if name == array.dtype.name]
    if not names or any(stride % array.itemsize for stride in array.strides):
        return None
    view = ffi.new("hd_call_view *")
    view.address, view.ndims = ffi.cast("void *", array.ctypes.data), array.ndim
    view.dtype = DTYPES.index(names[0])
    for d in range(array.ndim):
        view.extent[d], view.stride[d] = array.shape[d], array.strides[d] // array.itemsize
    return capsule_of(view, (CPU, 0))


def refuse_absent(array: Any, name: str) -> None:
    """Of tensors of PyTorch's that only stand for others, as DTensors and fake ones do,
    __dlpack__ gives an address at which there is nothing."""
    torch = sys.modules.get("torch")
    kind = getattr(torch, "Tensor", None)
    if kind is None or type(array) is kind or not isinstance(array, kind):
        return
    try:
        there = array.numel() == 0 or array.untyped_storage().data_ptr() != 0
    except (RuntimeError, NotImplementedError):
        there = False
    if not there:
        refuse(f"the {type(array).__name__} for %{name} has no memory of its own"
               f"{': pass its to_local()' if hasattr(array, 'to_local') else ''}")


# Types of arrays whose __dlpack__ takes no max_version: those before DLPack 1.
UNVERSIONED: Set[type] = set()


def export(array: Any, argument: Argument, device: Tuple[int, int], stream: int) -> Any:
    """A capsule for an argument, of an array with `__dlpack__`."""
    refuse_absent(array, argument.name)
    kind = type(array)
    more = {} if device[0] == CPU else {"stream": stream or 1}
    try:
        if kind not in UNVERSIONED:
            try:
                return array.__dlpack__(max_version=(1, 0), **more)
            except TypeError:
                UNVERSIONED.add(kind)
        return array.__dlpack__(**more)
    except Exception as error:
        capsule = export_numpy(array)
        if capsule is None:
            raise ArgumentError(tell_export(array, argument.name, device, error)) from error
        # This the capsule does not say.
        if argument.role != "in" and not array.flags.writeable:
            refuse(f"%{argument.name} is written, and the array may only be read")
        return capsule


def tell_export(array: Any, name: str, device: Tuple[int, int], error: Exception) -> str:
    kind, ordinal = device
    try:
        where = array.__dlpack_device__()[0]
    except Exception:
        where = kind
    if where != kind and CPU in (where, kind):
        here = "the cpu" if kind == CPU else f"cuda:{ordinal}" if ordinal >= 0 else "cuda"
        there = "the cpu" if where == CPU else f"DLPack's device type {int(where)}"
        return f"the executable is on {here}, the array for %{name} on {there}"
    return f"the array for %{name} cannot be had by DLPack: {error}"


class Fixed:
    """The arrays of arguments that are at one place in every run."""

    def __init__(self, program: Program, arrays: Mapping[str, Any], device: Tuple[int, int]
                 ) -> None:
        arguments = program.arguments
        names = [argument.name for argument in arguments]
        self.arrays: Dict[int, Any] = {}
        self.capsules: Dict[int, Any] = {}
        self.addresses = ffi.new("void *[]", len(arguments))
        for name, array in arrays.items():
            if name not in names:
                refuse(f"{program.name} has no argument %{name} to be fixed: it has "
                       f"{', '.join('%' + known for known in names)}")
            self._add(names.index(name), arguments[names.index(name)], array, device)

    def _add(self, i: int, argument: Argument, array: Any, device: Tuple[int, int]) -> None:
        if not hasattr(array, "__dlpack__"):
            refuse(f"%{argument.name} is fixed as {type(array).__name__}, which has no __dlpack__")
        capsule = export(array, argument, device, 0)
        self.arrays[i], self.capsules[i] = array, capsule
        self.addresses[i] = lib.heddle_address(id(capsule))
        if not self.addresses[i] and argument.local_bytes > 0:
            refuse(f"%{argument.name} is fixed as an array of which DLPack tells no memory")

    def tell(self, session: Any) -> None:
        """Puts them into the options of one."""
        if self.arrays:
            session.fixed, session.nfixed = self.addresses, len(self.addresses)

    def judge(self, session: Any) -> None:
        """Refuses what is no argument as it is."""
        with Diag() as diag:
            for i, capsule in self.capsules.items():
                if self.addresses[i]:
                    diag.check(lib.heddle_fits(session, i, id(capsule), diag.p))


class Executable:
    """A program on this rank of a group, as `compile` makes it: a callable.

    It takes an array for each `in` and `inout`, in the order of the program or by
    name, and returns the outputs: one array, a tuple of several, or None. All
    ranks of the group call the same executables in the same order.
    """

    def __init__(self, program: Program, group: Group, core: Core, table: Table,
                 fixed: Mapping[int, Any]) -> None:
        self.program = program
        self.group = group
        self._core = core
        self._table = table
        self._late: Any = None  # asked by waits on the cpu that are long, or end with a peer
        self._diag = Diag(program._sites)
        self._arguments = program.arguments
        self._names = {a.name: i for i, a in enumerate(self._arguments)}
        self._fixed = [fixed.get(i) for i in range(len(self._arguments))]
        self._inputs = [i for i, a in enumerate(self._arguments)
                        if a.role != "out" and i not in fixed]
        self._outputs = [i for i, a in enumerate(self._arguments) if a.role == "out"]
        self._written = [i for i in self._outputs if i not in fixed]  # what runs are given
        self._sizes = [size.name for size in program.sizes]
        self._device = table.device
        self._is_found = self._device[1] >= 0
        self._prepare(len(self._arguments))
        # By argument, of tensors of PyTorch's that runs have taken: strides.
        self._known: List[Dict[Any, Any]] = [{} for _ in self._arguments]
        self._plans: List[Plan] = []  # of calls on such tensors alone
        # The arrays of runs that may be under way: of the last ones on CUDA, more
        # than there can be, and of a call that was interrupted.
        self._recent: Deque[Any] = collections.deque(maxlen=64)

    def _prepare(self, n: int) -> None:
        """What every run fills in anew, and the library reads during the call."""
        self._capsules = ffi.new("uintptr_t[]", n)
        self._addresses = ffi.new("void *[]", n)
        self._strides = ffi.new("int64_t[]", n * lib.HD_MAX_DIMS)
        self._numbers = ffi.cast("uintptr_t *", self._addresses)
        self._rows = ffi.new("int64_t *[]", n)
        self._on_host = ffi.new("bool[]", n)
        self._extents = ffi.new("int64_t[]", len(self._sizes))
        self._done = ffi.new("bool *")
        self._options = info("hd_run_options")
        self._options.strides = self._rows
        self._options.on_host = self._on_host
        self._options.sizes = self._extents
        self._options.nsizes = len(self._sizes)

    def __call__(self, *args: Any, out: Out = None, stream: Any = None,
                 sizes: Optional[Mapping[str, int]] = None, **named: Any) -> Any:
        """Runs the program. Arrays are anything with `__dlpack__`, each of the
        argument's dtype and local shape, on the executable's device; they are
        neither copied nor kept, but for those with gaps between their elements, which
        the run packs. A number stands for an argument of one element that is only read.

        `out` has arrays for the outputs: one, a sequence, or by name; without it
        they are made, by NumPy, PyTorch or CuPy, whichever the inputs are of.
        `sizes` has the value of each `param m in 1..4096`; arrays lie as if it
        were the greatest.

        On the cpu it returns when the run has ended. On CUDA it returns when the
        run is issued on `stream`, in order with what is there; `finish` waits.
        Without `stream` that is the current one of PyTorch or CuPy, where an array is
        theirs, else the default stream. One that is being captured into a graph takes
        the run, of a `capturable` executable.
        Ctrl-C ends the run on all ranks, and the group with it.

        ArgumentError, with nothing begun, for an array that does not fit; PeerError
        and TimeoutError for other ranks; where a function that the program calls
        has raised, that exception is the cause.
        """
        arrays, answer = self._bind(args, out, named)
        with self.group._use:
            self._issue(arrays, stream, sizes)
            if self._device[0] == CPU:
                self._await()
        return answer

    def start(self, *args: Any, out: Out = None, stream: Any = None,
              sizes: Optional[Mapping[str, int]] = None, **named: Any) -> Future:
        """As a call, and returns at once, with a future that keeps the arrays. Of
        more than 16 runs under way it waits for the first."""
        while len(self._core.pending) >= RUNS:
            next(iter(list(self._core.pending))).ended.wait(SLICE)
        arrays, answer = self._bind(args, out, named)
        run = Run(self._core, None)
        with self.group._use:
            run.arrays = self._issue(arrays, stream, sizes)
            self._core.pending[run] = None
            self._recent.pop()
            status = lib.hd_session_notify(self._core.pointer, lib.heddle_notify, run.handle,
                                           self._diag.p)
            if status != lib.HD_OK:
                self._recent.append(run)
                self._fail(status)
        return Future(self, run, answer)

    def finish(self) -> None:
        """Waits until every run issued so far has ended. Their failure is raised."""
        with self.group._use:
            self._open()
            self._await()

    def stats(self) -> Dict[str, Any]:
        """Counts of the session: `hd_stats` of heddle.h."""
        found = info("hd_stats")
        lib.hd_session_stats(self._open(), found)
        names = [name for name, _ in ffi.typeof("hd_stats").fields if name != "size"]
        values = {name: getattr(found, name) for name in names}
        return {name: value if isinstance(value, (int, float)) else text_of(value)
                for name, value in values.items()}

    def close(self) -> None:
        """Ends it; runs under way are waited for."""
        self._core.close()

    def __enter__(self) -> "Executable":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        core = getattr(self, "_core", None)
        if core is not None:
            self._diag.close()
            core.dropped = True
            core.close_if_dropped()

    def __repr__(self) -> str:
        names = ", ".join(f"{a.role} {a.name}: {a.dtype}{list(a.local_shape)}"
                          for a in self._arguments)
        return f"<heddle.Executable {self.program.name}({names})>"

    # From what is passed to what is run.

    def _bind(self, args: Tuple[Any, ...], out: Out, named: Mapping[str, Any]
              ) -> Tuple[List[Any], Any]:
        arrays = self._fixed[:]
        name = self.program.name
        if len(args) > len(self._inputs):
            raise TypeError(f"{name} takes {len(self._inputs)} arrays, and is given {len(args)}")
        for i, value in zip(self._inputs, args):
            arrays[i] = value
        if named:
            self._bind_named(arrays, named)
        if out is not None:
            self._bind_out(arrays, out)
        for i in self._inputs:
            if arrays[i] is None:
                raise TypeError(f"{name} misses an array for %{self._arguments[i].name}")
        for i in self._outputs:
            if arrays[i] is None:
                arrays[i] = self._new(arrays, self._arguments[i])
        if len(self._outputs) == 1:
            return arrays, arrays[self._outputs[0]]
        return arrays, tuple(arrays[i] for i in self._outputs) or None

    def _new(self, arrays: List[Any], argument: Argument) -> Any:
        """An output that is made. Of an input that is no array it is told, and not of the output
        that cannot be made like it."""
        try:
            return like([a for a in arrays if a is not None], argument)
        except ArgumentError:
            for i in self._inputs:
                given = hasattr(arrays[i], "__dlpack__") or isinstance(arrays[i], numbers.Real)
                if not given and self._arguments[i].dtype != "event":
                    self._store(arrays[i], i)
            raise

    def _bind_named(self, arrays: List[Any], named: Mapping[str, Any]) -> None:
        for name, value in named.items():
            i = self._names.get(name)
            if i is None:
                raise TypeError(f"{self.program.name} has no argument %{name}: it has "
                                f"{', '.join('%' + known for known in self._names)}")
            if self._fixed[i] is not None:
                raise TypeError(f"{self.program.name} has %{name} fixed, and takes no other")
            if arrays[i] is not None:
                self._tell_twice(i)
            arrays[i] = value

    def _tell_twice(self, i: int) -> NoReturn:
        raise TypeError(f"{self.program.name} is given %{self._arguments[i].name} twice")

    def _bind_out(self, arrays: List[Any], out: Any) -> None:
        several = out if isinstance(out, (tuple, list)) else (out,)
        if several is not out and not hasattr(out, "__dlpack__") and isinstance(out, Mapping):
            self._bind_named(arrays, out)
            return
        if len(several) != len(self._written):
            raise TypeError(f"{self.program.name} has {len(self._written)} outputs; out has "
                            f"{len(several)}")
        for i, array in zip(self._written, several):
            if arrays[i] is not None:
                self._tell_twice(i)
            arrays[i] = array

    def _issue(self, arrays: List[Any], stream: Any, sizes: Optional[Mapping[str, int]]) -> Any:
        """Issues a run, and returns what has to be there until it has ended."""
        if stream is None and sizes is None and self._plans and self._issue_as_planned(arrays):
            return arrays
        pointer = self._open()
        if not self._is_found:
            self._find_device(arrays)
        handle, torch = self._choose_stream(arrays, stream)
        if sizes is not None or self._sizes:
            self._set_sizes(sizes or {})
        self._options.stream = ffi.cast("void *", handle)
        kept: List[Any] = [arrays]
        new: List[Tuple[int, Any]] = []
        plain = not self._sizes and hasattr(getattr(torch, "Tensor", None), EXCHANGE)
        for i, array in enumerate(arrays):
            seen = look_at(array, torch) if torch is not None else None
            plain = plain and seen is not None and array.is_contiguous()
            if seen is not None:
                row = self._known[i].get(seen[0])
                if row is not None:
                    self._capsules[i], self._on_host[i] = 0, False
                    self._numbers[i], self._rows[i] = seen[1], row
                    continue
                new.append((i, seen[0]))
            if hasattr(array, "__dlpack__"):
                capsule = export(array, self._arguments[i], self._device, handle)
                self._capsules[i], self._on_host[i] = id(capsule), False
            elif self._arguments[i].dtype == "event":
                capsule = event_of(array, self._arguments[i].name, self._device[0] == CPU)
                self._capsules[i], self._on_host[i] = 0, False
                self._addresses[i], self._rows[i] = capsule, ffi.NULL
            else:
                capsule = self._store(array, i)
                self._capsules[i], self._on_host[i] = 0, True
                self._addresses[i], self._rows[i] = capsule, ffi.NULL
            kept.append(capsule)
        self._recent.append(kept)
        status = lib.heddle_run(pointer, len(arrays), self._capsules, self._addresses,
                                self._strides, self._rows, self._options, self._diag.p)
        if status != lib.HD_OK:
            self._recent.pop()
            self._fail(status)
        self._is_found = self._device[1] >= 0
        for i, key in new:
            self._remember(i, key)
        if plain and new:
            self._plans = [self._plan(arrays, (), range(len(arrays)), gradient=True),
                           *self._plans[:PLANS - 1]]
        return kept

    def _plan(self, tensors: List[Any], results: Sequence[Any], order: Sequence[int],
              watching: Sequence[Callable[[], Any]] = (),
              gradient: Union[None, bool, Callable[[], bool]] = None, keeps: bool = True) -> Plan:
        """Of runs on PyTorch's tensors that look like these. Arguments are tensors and
        then results, by `order`; `results` has of each what it is made by. A plain one is
        none where something is `watching`, or a tensor needs a gradient and `gradient`
        says that this matters. It `keeps` the arrays of runs that may be under way."""
        torch = sys.modules["torch"]
        return Plan((self._core, self._diag), self._recent if keeps else None,
                    (torch.Tensor, torch.nn.Parameter), tensors, tuple(results), tuple(order),
                    tuple(watching), gradient, ISSUE, number_of(self._core.cell),
                    number_of(self._diag.p))

    def _issue_as_planned(self, arrays: List[Any]) -> bool:
        return any(self._judge_issue(plan.issue_plain(arrays)) is not None for plan in self._plans)

    def _judge_issue(self, found: Union[None, int, List[Any]]) -> Optional[List[Any]]:
        """What a plan has issued; None where the tensors are others."""
        if isinstance(found, int):
            self._fail(found)
        return found

    def _end_issue(self, found: Union[None, int, List[Any]]) -> Optional[List[Any]]:
        """The same, as a call."""
        results = self._judge_issue(found)
        if results is not None and self._device[0] == CPU:
            self._await()
        return results

    def _find_device(self, arrays: List[Any]) -> None:
        """Of a session on "cuda": right where the run is then taken."""
        for array in arrays:
            kind, ordinal = getattr(array, "__dlpack_device__", lambda: (CPU, 0))()
            if kind == CUDA:
                self._device = self._table.device = CUDA, ordinal
                return

    def _choose_stream(self, arrays: List[Any], stream: Any) -> Tuple[int, Any]:
        """The stream of a run, and PyTorch where its tensors are passed without being
        asked: on the stream on which it goes on nobody waits for another."""
        torch = sys.modules.get("torch")
        kind = getattr(torch, "Tensor", None)
        if kind is None or not any(isinstance(array, kind) for array in arrays):
            torch = None
        if self._device[0] == CPU:
            return 0 if stream is None else stream_of(stream), torch
        ordinal = max(self._device[1], 0)
        if stream is None:
            return torch_stream(torch, ordinal) if torch else cupy_stream(arrays, ordinal), torch
        handle = stream_of(stream)
        return handle, torch if torch and handle == torch_stream(torch, ordinal) else None

    def _remember(self, i: int, key: Any) -> None:
        """Of a tensor that DLPack has shown to fit, so that those like it need not be
        asked, which takes ten times as long as a run takes to issue."""
        if len(self._known[i]) >= KNOWN:
            self._known[i].clear()
        n, first = lib.HD_MAX_DIMS, i * lib.HD_MAX_DIMS
        self._known[i][key] = ffi.new("int64_t[]", list(self._strides[first:first + n]))

    def _store(self, value: Any, i: int) -> Any:
        """A number as the one element of an argument."""
        argument = self._arguments[i]
        if not isinstance(value, numbers.Real):
            refuse(f"%{argument.name} is given {type(value).__name__}: neither an array with "
                   "__dlpack__ nor a number")
        number = int(value) if isinstance(value, numbers.Integral) else float(value)
        if argument.dtype[0] in "iu" and isinstance(number, float):
            refuse(f"%{argument.name} is {argument.dtype}, and {value!r} is no integer")
        try:
            if argument.dtype in NUMBERS:
                return ffi.new(NUMBERS[argument.dtype] + " *", number)
        except OverflowError:
            refuse(f"%{argument.name} is {argument.dtype}, which cannot hold {value!r}")
        cell = ffi.new("uint64_t *")
        lib.hd_dtype_store(DTYPES.index(argument.dtype), ffi.new("double *", float(value)), 1, cell)
        return cell

    def _set_sizes(self, sizes: Mapping[str, int]) -> None:
        for name in sizes:
            if name not in self._sizes:
                refuse(f"{self.program.name} is given no size '{name}': "
                       f"{', '.join(self._sizes) or 'none'}")
        for i, name in enumerate(self._sizes):
            if name not in sizes:
                refuse(f"{self.program.name} needs sizes={{'{name}': ..}}")
            self._extents[i] = sizes[name]

    # Ends.

    def _open(self) -> Any:
        if not self._core.pointer:
            refuse(f"{self.program.name} is closed")
        return self._core.pointer

    def _await(self) -> None:
        pointer, diag, done = self._core.pointer, self._diag.p, self._done
        try:
            for slices in itertools.count(1):
                status = lib.hd_session_wait(pointer, SLICE, diag, done)
                if status != lib.HD_OK:
                    self._fail(status)
                if done[0]:
                    break
                if self._late is not None and slices % LATE == 0:
                    self._late.look()
        except PeerError as error:
            if self._late is not None:
                self._late.judge(error)
            raise
        except BaseException as error:
            if not isinstance(error, Exception):
                self.group.abort()
            raise
        self._recent.clear()
        if lib.hd_diag_count(diag) > 0:
            self._diag.warn()

    def _judge(self, run: Run) -> None:
        """Raises what a run has failed with, in the words of the session."""
        if self._core.pointer:
            status = lib.hd_session_query(self._core.pointer, self._diag.p, self._done)
            if status != lib.HD_OK and (run.status != lib.HD_OK or self._done[0]):
                self._fail(status)
            lib.hd_diag_clear(self._diag.p)
        if run.status != lib.HD_OK:
            self._fail(run.status)

    def _fail(self, status: int) -> NoReturn:
        if status == lib.HD_ERROR_ARGUMENT and lib.hd_diag_errors(self._diag.p) == 0:
            refuse("an array's __dlpack__ returned no capsule of DLPack's")
        cause, self._table.raised = self._table.raised, None
        error = self._diag.error(status)
        self.group._told |= isinstance(error, PeerError)
        raise error from cause


def device_of(device: str) -> Tuple[int, int]:
    """A device as DLPack tells it. Which number "cuda" is the arrays of the first
    run say, since the library takes no others."""
    if device == "cpu":
        return CPU, 0
    return CUDA, int(device[5:]) if device[5:].isdigit() else -1


def fastest(program: Program, group: Group, session: Any, options: Mapping[str, Any]) -> Program:
    """Lowered as runs fastest, of what `options` choose from (hd_tune). Collective."""
    how, choose, given = lib.hd_tune_defaults(), lib.hd_choose_defaults(), lib.hd_lower_defaults()
    pointer, found = group._open(), info("hd_tuned")
    choose.parts, choose.lower = options["parts"], ffi.addressof(given)
    how.choose, how.session = ffi.addressof(choose), ffi.addressof(session)

    def tune() -> None:
        with Diag(program._sites) as diag:
            choose.machine = read_machine(options["machine"], diag)
            diag.check(lib.hd_tune(pointer, program._module, ffi.addressof(how), diag.p, found))

    if ffi.string(session.device) == b"cuda":
        tune()  # of the context that is current, on this thread
    else:
        uninterrupted(tune, group.abort)
    with Diag(program._sites) as diag:
        return program._lowered(found.lower, diag)


def compile(program: Program, group: Group, options: Union[str, Mapping[str, Any]] = "auto", *,
            device: str = "cpu", calls: Optional[Mapping[str, Function]] = None,
            machine: Machine = None, check: bool = True, timeout: Optional[float] = None,
            transport: Optional[str] = None, graph: bool = False, tune: bool = False,
            capturable: bool = False, fixed: Optional[Mapping[str, Any]] = None,
            deterministic: bool = False) -> Executable:
    """Binds a program to this rank of a group. Collective: all ranks pass the
    same program and options, and it fails on all ranks or on none.

    A program that is not complete is lowered, by the options of `Program.lower`,
    or, with "auto", as is predicted to be the fastest on `machine`: without one on
    that of rank 0, as `heddle calibrate` has measured it, else the shipped one. `check` has it
    proven first, against the tensor program that it is made from. `device` is
    "cpu", "cuda" or "cuda:3"; with `tune` and "auto" the best predictions are run, and the
    fastest is taken and kept on disk, on CUDA each with the fastest plans; `calls` has the functions that the program calls, by
    name (heddle.Call); `timeout`, in seconds, bounds what a rank waits for another, and is
    the group's if it is None;
    `transport`, `graph`, `capturable` and `deterministic` are for CUDA (docs/cuda.md).

    `fixed` has arrays, by name, of arguments that are at one place in every run, the
    same names on all ranks: peers read and write them where they are, and no copy is
    made of what peers touch. Runs are not given them, and outputs among them are
    returned as others are. They are dense, made by `Group.empty`, or on CUDA be whole
    or part of what cudaMalloc gave; the executable keeps them.
    """
    if not isinstance(program, Program) or not isinstance(group, Group):
        raise TypeError("compile takes a Program and a Group, and is given "
                        f"{type(program).__name__} and {type(group).__name__}")
    if isinstance(options, str):
        if options != "auto":
            refuse(f"options are {options!r}, and must be \"auto\" or a dict")
        at_hand = (machine is None and program.stage != "host"
                   and lib.hd_is_device(device.encode()))
        options = {"transfer": "auto", "machine": group._machine(device) if at_hand else machine,
                   "parts": device == "cpu" or graph or capturable
                   or transport not in (None, "auto", "copy")}
        tune_ways = tune and program.stage != "host"
    else:
        tune_ways = False
    table = Table(calls or {}, device_of(device))
    name = ffi.new("char[]", device.encode())
    keep: List[Any] = []
    session = lib.hd_session_defaults()
    session.device = name
    session.timeout = group._timeout if timeout is None else timeout
    session.graph, session.tune, session.capturable = graph, tune, capturable
    session.deterministic = deterministic
    session.calls, session.ncalls = table.rows, len(table.functions)
    set_transport(session, transport, keep)
    complete = program
    if tune_ways:
        complete = fastest(program, group, session, options)
    elif program.stage != "host":
        complete = program.lower(**options)
    if check:
        complete.check(program if program.stage == "tensor" else None, transport=transport)
    places = Fixed(complete, fixed or {}, table.device)
    places.tell(session)
    pointer, out = group._open(), ffi.new("hd_session **")
    for core in list(group._cores):
        core.close_if_dropped()
    group._memory.free_dropped()

    def create() -> None:
        with Diag(complete._sites) as diag:
            diag.check(lib.hd_session_create(pointer, complete._module, ffi.addressof(session),
                                             diag.p, out))

    if device == "cuda":  # of the context that is current, on this thread
        create()
    else:
        uninterrupted(create, group.abort)
    core = Core(out[0], (complete, table, places), group._cores)
    try:
        places.judge(core.pointer)
    except BaseException:
        core.close()
        raise
    return Executable(complete, group, core, table, places.arrays)

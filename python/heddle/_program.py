"""Programs: from text, lowered, checked, predicted, and their answers."""
import json
import os
import subprocess
import tempfile
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from ._error import Diag, ProgramError, Site, refuse
from ._library import COMMAND, DTYPES, ROLES, STAGES, ffi, info, lib, text_of

Machine = Union[None, str, "os.PathLike[str]", Mapping[str, Any]]

CHOICES = {
    "transfer": ("bulk", "pipelined", "broadcast", "direct", "ring", "fused", "auto"),
    "protocol": ("put", "get"),
    "wire": ("result", "f32"),
    "transport": ("auto", "copy", "sm", "nccl"),
    "until": STAGES,
}
NUMPY = {"f64": "float64", "f32": "float32", "f16": "float16", "i64": "int64", "i32": "int32",
         "u8": "uint8", "i8": "int8"}


class Argument(NamedTuple):
    """An array that each rank passes its shard of."""
    name: str
    role: str  # "in", "out" or "inout"
    dtype: str  # "f32"
    shape: Tuple[int, ...]  # of the whole array
    local_shape: Tuple[int, ...]  # what a rank has room for
    axes: Tuple[Optional[str], ...]  # of the mesh that shards a dimension, or None
    local_bytes: int


class Axis(NamedTuple):
    """An axis of the mesh: the coordinate of a rank is `rank // stride % extent`."""
    name: str
    extent: int
    stride: int


class Size(NamedTuple):
    """What each run is given (`param m in 1..4096`)."""
    name: str
    low: int
    high: int
    now: int  # that shapes and shards are told for


class Prediction(NamedTuple):
    """What a run takes on a machine: docs/simulate.md. Times in seconds."""
    time: float  # until the slowest rank is done
    compute: float  # of the critical path, as the next two
    transfer: float
    wait: float
    overlap: float  # share of the time of transfers that is computed in
    bytes_copied: float  # within nodes, by send and recv, all ranks
    bytes_gathered: float  # by collectives, all ranks
    bytes_networked: float  # between nodes, all ranks
    memory: float  # bytes of the rank that has most


class Timeline(str):
    """A picture as SVG, which notebooks show."""

    def _repr_svg_(self) -> str:
        return str(self)


def pick(option: str, value: str) -> int:
    """The enumerator of an option's value."""
    names = CHOICES[option]
    if value not in names:
        refuse(f"{option} is {value!r}, and must be one of {', '.join(names)}")
    return names.index(value)


def set_transport(options: Any, transport: Optional[str], keep: List[Any]) -> None:
    """`transport` of lowering, the proof or a session: a name, or "node=nccl,tp=sm"."""
    if transport is None:
        return
    if "=" in transport:
        keep.append(ffi.new("char[]", transport.encode()))
        options.axes = keep[-1]
    else:
        options.transport = pick("transport", transport)


def read_machine(machine: Machine, diag: Diag) -> Any:
    """NULL, or a machine from a file or from what its JSON has."""
    if machine is None:
        return ffi.NULL
    if isinstance(machine, ffi.CData):  # Group._machine's
        return machine
    if isinstance(machine, Mapping):
        name, text = "machine", json.dumps(dict(machine)).encode()
    else:
        name = os.fspath(machine)
        with open(name, "rb") as file:
            text = file.read()
    out = info("hd_machine")
    diag.check(lib.hd_machine_parse(name.encode(), text, len(text), diag.p, out))
    return out


class Program:
    """A program at some stage of its lowering. Programs do not change: what
    lowers one gives another.

    `text` is the text form (docs/text-form.md), `name` stands in messages, and
    `defines` sets parameters and sizes of mesh axes, as `-D` of the command does.
    ProgramError, with all that is wrong, if it is wrong.
    """

    def __init__(self, text: str, *, name: str = "program",
                 defines: Optional[Mapping[str, int]] = None) -> None:
        if not isinstance(text, str):
            raise TypeError(f"a program is a text, not {type(text).__name__}")
        self._parse(text.encode(), name, defines or {})

    @classmethod
    def open(cls, path: Union[str, "os.PathLike[str]"], *,
             defines: Optional[Mapping[str, int]] = None) -> "Program":
        """The program in a file."""
        program = cls.__new__(cls)
        with open(path, "rb") as file:
            program._parse(file.read(), os.fspath(path), defines or {})
        return program

    def _parse(self, text: bytes, name: str, defines: Mapping[str, int]) -> None:
        names = [ffi.new("char[]", key.encode()) for key in defines]
        array = ffi.new("hd_define[]", len(names))
        for i, value in enumerate(defines.values()):
            array[i].name, array[i].value = names[i], value
        out = ffi.new("hd_module **")
        with Diag() as diag:
            diag.check(lib.hd_parse(os.fsencode(name), text, len(text), array, len(names), diag.p,
                                    out))
        self._take(out[0])

    @classmethod
    def _of(cls, module: Any, sites: Sequence[Site]) -> "Program":
        """What a Builder has built, with where."""
        program = cls.__new__(cls)
        program._take(module, sites)
        return program

    def _take(self, module: Any, sites: Sequence[Site] = ()) -> None:
        self._sites = sites
        self._module = ffi.gc(module, lib.hd_module_destroy)
        self._info = info("hd_program_info")
        lib.hd_module_info(self._module, self._info)

    def _clone(self) -> "Program":
        out = ffi.new("hd_module **")
        with Diag() as diag:
            diag.check(lib.hd_module_clone(self._module, diag.p, out))
        return Program._of(out[0], self._sites)

    def __str__(self) -> str:
        """The canonical text, which parses back to this program."""
        out = ffi.new("char **")
        with Diag() as diag:
            diag.check(lib.hd_print(self._module, out))
        try:
            return text_of(out[0])
        finally:
            lib.hd_free(out[0])

    def __repr__(self) -> str:
        return f"<heddle.Program {self.name}: {self.stage}, {self.ranks} ranks>"

    # What it says of itself.

    @property
    def name(self) -> str:
        return text_of(self._info.name)

    @property
    def stage(self) -> str:
        """How far it is lowered: "tensor", "reshard", "stream", "transfer",
        "event", or "host", which runs."""
        return STAGES[self._info.stage]

    @property
    def ranks(self) -> int:
        return self._info.ranks

    @property
    def streams(self) -> int:
        """Work streams of a host program."""
        return self._info.streams

    @property
    def axes(self) -> Tuple[Axis, ...]:
        found, axis = [], info("hd_axis_info")
        for i in range(self._info.naxes):
            lib.hd_module_axis(self._module, i, axis)
            found.append(Axis(text_of(axis.name), axis.extent, axis.stride))
        return tuple(found)

    @property
    def sizes(self) -> Tuple[Size, ...]:
        found, size = [], info("hd_size_info")
        for i in range(self._info.nsizes):
            lib.hd_module_size(self._module, i, size)
            found.append(Size(text_of(size.name), size.low, size.high, size.now))
        return tuple(found)

    @property
    def arguments(self) -> Tuple[Argument, ...]:
        """In the order of declaration."""
        axes = [axis.name for axis in self.axes]
        found, a = [], info("hd_argument")
        for i in range(self._info.narguments):
            lib.hd_module_argument(self._module, i, a)
            dims = range(a.ndims)
            found.append(Argument(
                text_of(a.name), ROLES[a.role], DTYPES[a.dtype], tuple(a.extent[d] for d in dims),
                tuple(a.local[d] for d in dims),
                tuple(axes[a.axis[d]] if a.axis[d] >= 0 else None for d in dims), a.local_bytes))
        return tuple(found)

    def _index(self, name: str) -> int:
        names = [argument.name for argument in self.arguments]
        if name not in names:
            refuse(f"'{self.name}' has no argument '{name}': it has {', '.join(names)}")
        return names.index(name)

    def resize(self, **sizes: int) -> "Program":
        """A copy whose shapes, shards and reference are those of these sizes."""
        now = {size.name: size.now for size in self.sizes}
        for name in sizes:
            if name not in now:
                refuse(f"'{self.name}' is given no size '{name}': {', '.join(now) or 'none'}")
        now.update(sizes)
        other = self._clone()
        with Diag() as diag:
            diag.check(lib.hd_module_resize(other._module, list(now.values()), len(now), diag.p))
        return other

    def shard(self, name: str, rank: int) -> Tuple[slice, ...]:
        """Where in the whole array of an argument the part of a rank lies, a slice
        a dimension: `x[program.shard("x", rank)]` is what that rank passes, where
        ranks have as much as they have room for."""
        first, count = ffi.new("int64_t[]", lib.HD_MAX_DIMS), ffi.new("int64_t[]", lib.HD_MAX_DIMS)
        i = self._index(name)
        if not lib.hd_module_shard(self._module, i, rank, first, count):
            refuse(f"rank {rank} of {self.ranks}")
        ndims = len(self.arguments[i].shape)
        return tuple(slice(first[d], first[d] + count[d]) for d in range(ndims))

    # What becomes of it.

    def lower(self, *, transfer: Optional[str] = None, protocol: Optional[str] = None,
              streams: Optional[int] = None, chunks: Optional[int] = None,
              copy_own: Optional[bool] = None, defer_sends: Optional[bool] = None,
              comm_stream: Optional[bool] = None, wire: Optional[str] = None,
              launch: Optional[bool] = None,
              transport: Optional[str] = None, machine: Machine = None,
              parts: bool = False, until: str = "host") -> "Program":
        """A new program that is lowered until a stage. The options are those of
        the command (docs/cli.md): without `transfer`, or with "auto", it takes what is
        predicted to be the fastest, on `machine` if one is given, a file or what its
        JSON has, with all else that is given. With `parts` it takes no launches, where
        they go as their parts: on the CPU and in CUDA graphs. One that is given and
        changes nothing is a HeddleWarning.
        """
        keep: List[Any] = []
        options = lib.hd_lower_defaults()
        given: Dict[str, Any] = {
            "transfer": transfer, "protocol": protocol, "streams": streams, "chunks": chunks,
            "copy_own": copy_own, "defer_sends": defer_sends, "comm_stream": comm_stream,
            "wire": wire, "launch": launch}
        auto = transfer in (None, "auto")
        for name, value in given.items():
            if value is None:
                continue
            setattr(options, name, pick(name, value) if name in CHOICES else value)
            options.asked |= getattr(lib, "HD_OPTION_" + name.upper())
        set_transport(options, transport, keep)
        options.until = pick("until", until)
        if machine is not None and not auto:
            refuse("a machine is what auto predicts on, and not where a transfer is named")
        if parts and not auto:
            refuse("parts is what auto is told of launches, and not where a transfer is named")
        with Diag(self._sites) as diag:
            choose = lib.hd_choose_defaults()
            choose.machine, choose.parts = read_machine(machine, diag), parts
            diag.check(lib.hd_choose_lower(self._module, ffi.addressof(choose), diag.p,
                                           ffi.addressof(options)))
            return self._lowered(options, diag)

    def _lowered(self, options: Any, diag: Diag) -> "Program":
        other = self._clone()
        diag.check(lib.hd_lower(other._module, ffi.addressof(options), ffi.NULL, ffi.NULL, diag.p))
        lib.hd_module_info(other._module, other._info)
        return other

    def check(self, against: Optional["Program"] = None, *, transport: Optional[str] = None,
              waiting_streams: int = 7, seed: int = 0) -> None:
        """Proves what can be said of it without running it (docs/checking.md): of
        a complete host program, on all ranks, that it has no deadlocks or races
        and more, and that it makes what the tensor program `against` does, with
        counts and sizes of runs that are drawn by `seed`, of 0 other ones each
        time. Raises ProgramError, with the findings, if it is wrong.
        """
        keep: List[Any] = []
        options = lib.hd_check_defaults()
        options.waiting_streams = waiting_streams
        options.seed = seed
        set_transport(options, transport, keep)
        if against is not None:
            options.against = against._module
        with Diag(self._sites) as diag:
            diag.check(lib.hd_check(self._module, ffi.addressof(options), diag.p))

    def simulate(self, machine: Machine = None) -> Prediction:
        """Predicts a run of a complete host program, which is checked first, on a
        machine: a file, what its JSON has, or by default a node of eight H200."""
        self.check()
        out, found = ffi.new("hd_simulation **"), info("hd_prediction")
        with Diag(self._sites) as diag:
            described = read_machine(machine, diag)
            diag.check(lib.hd_simulate(self._module, described, diag.p, out))
        lib.hd_simulation_predict(out[0], found)
        lib.hd_simulation_destroy(out[0])
        return Prediction(*(getattr(found, name) for name in Prediction._fields))

    def timeline(self, machine: Machine = None) -> Timeline:
        """A picture of such a run, of its first eight ranks."""
        with tempfile.TemporaryDirectory() as folder:
            words = [COMMAND, "simulate", "-", "--svg", os.path.join(folder, "timeline.svg")]
            if machine is not None:
                words += ["--machine", machine_file(machine, folder)]
            said = subprocess.run(words, input=str(self), capture_output=True, text=True)
            if said.returncode != 0:
                raise ProgramError(said.stderr.rstrip("\n"))
            with open(words[4], encoding="utf-8") as file:
                return Timeline(file.read())

    def reference(self, inputs: Mapping[str, Any]) -> "Reference":
        """The answer to compare with, from the whole array of each argument that is
        read, as numbers of anything that numpy.asarray takes. Needs NumPy."""
        return Reference(self, inputs)


def machine_file(machine: Any, folder: str) -> str:
    if not isinstance(machine, Mapping):
        return os.fspath(machine)
    path = os.path.join(folder, "machine.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(dict(machine), file)
    return path


class Reference:
    """The answer of a program in double precision, by plain loops in this process,
    with bounds on the error that a correct run may show (docs/numerics.md)."""

    def __init__(self, program: Program, inputs: Mapping[str, Any]) -> None:
        self._program = program
        keep: Dict[int, Any] = {}
        for name, value in inputs.items():
            i = program._index(name)
            keep[i] = store(program.arguments[i], value)
        for i, argument in enumerate(program.arguments):
            if argument.role != "out" and argument.dtype != "event" and i not in keep:
                refuse(f"the reference needs %{argument.name}")
        whole = ffi.new("void *[]", program._info.narguments)
        for i, bytes_ in keep.items():
            whole[i] = ffi.from_buffer(bytes_)
        out = ffi.new("hd_reference **")
        with Diag() as diag:
            diag.check(lib.hd_reference_create(program._module, whole, diag.p, out))
        self._reference = ffi.gc(out[0], lib.hd_reference_destroy)

    def local(self, name: str, rank: int) -> Tuple[Any, Any]:
        """What `rank` should hold of an `out` or `inout`, and how far it may be
        off: two arrays of float64 of the argument's local shape."""
        import numpy

        i = self._program._index(name)
        argument = self._program.arguments[i]
        if argument.role == "in":
            refuse(f"%{name} is only read")
        if not 0 <= rank < self._program.ranks:
            refuse(f"rank {rank} of {self._program.ranks}")
        values, bounds = (numpy.empty(argument.local_shape) for _ in range(2))
        if values.size > 0:
            lib.hd_reference_local(self._reference, i, rank, ffi.from_buffer("double[]", values),
                                   ffi.from_buffer("double[]", bounds))
        return values, bounds


def store(argument: Argument, value: Any) -> Any:
    """The elements of a whole array in the argument's dtype, dense."""
    import numpy

    array = numpy.asarray(value)
    if array.shape != argument.shape:
        refuse(f"%{argument.name} is {list(argument.shape)}; the array is {list(array.shape)}")
    if argument.dtype in NUMPY:
        return numpy.ascontiguousarray(array, dtype=NUMPY[argument.dtype])
    doubles = numpy.ascontiguousarray(array, dtype="float64")
    dtype = DTYPES.index(argument.dtype)
    out = numpy.empty(array.size * lib.hd_dtype_size(dtype), dtype="uint8")
    lib.hd_dtype_store(dtype, ffi.from_buffer("double[]", doubles), array.size,
                       ffi.from_buffer(out))
    return out

"""Functions of Python's as operations of a program: `%y = call "gelu" %x`."""
import contextlib
import ctypes
import sys
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from ._error import refuse
from ._library import DTYPES, ffi, lib, text_of

# As NumPy's __array_interface__ names them; the others it does not have.
TYPESTR = {"f64": "<f8", "f32": "<f4", "f16": "<f2", "i64": "<i8", "i32": "<i4", "u8": "|u1",
           "i8": "|i1"}
# What ml_dtypes calls those, and the integers that its elements are as large as.
ML_DTYPES = {"bf16": ("bfloat16", "<u2"), "f8e4m3": ("float8_e4m3fn", "|u1"),
             "f8e5m2": ("float8_e5m2", "|u1")}
CPU, CUDA = 1, 2

new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype = ctypes.py_object
new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
CAPSULE_NAME = b"dltensor"  # which the capsules point to
FREE_CAPSULE = int(ffi.cast("uintptr_t", ffi.addressof(lib, "heddle_free_capsule")))


def capsule_of(view: Any, device: Tuple[int, int], owner: Any = None) -> Any:
    """A hd_call_view as __dlpack__ returns it. What takes it keeps `owner`."""
    managed = lib.heddle_export(view, *device, 0 if owner is None else id(owner))
    if not managed:
        raise MemoryError
    return new_capsule(int(ffi.cast("uintptr_t", managed)), CAPSULE_NAME, FREE_CAPSULE)


class View:
    """A result or an operand of a call, or the part of it that this call is for.
    `numpy.asarray(view)` and `torch.from_dlpack(view)` are arrays of its memory,
    which is there until the function returns; of bf16 and f8 NumPy's need
    ml_dtypes. Strides are in elements."""

    def __init__(self, view: Any, device: Tuple[int, int]) -> None:
        self._view = view
        self._device = device
        self.dtype: str = DTYPES[view.dtype]
        self.shape: Tuple[int, ...] = tuple(view.extent[d] for d in range(view.ndims))
        self.strides: Tuple[int, ...] = tuple(view.stride[d] for d in range(view.ndims))
        self.address = int(ffi.cast("uintptr_t", view.address))

    @property
    def __array_interface__(self) -> Dict[str, Any]:
        if self.dtype not in TYPESTR or self._device[0] != CPU:
            raise AttributeError(f"NumPy has no {self.dtype} on this device: use from_dlpack")
        return self._interface(TYPESTR[self.dtype])

    def _interface(self, typestr: str) -> Dict[str, Any]:
        size = lib.hd_dtype_size(self._view.dtype)
        return {"version": 3, "shape": self.shape, "typestr": typestr,
                "data": (self.address, False), "strides": tuple(s * size for s in self.strides)}

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> Any:
        """What NumPy asks for where it has no name for the elements."""
        if self._device[0] != CPU:
            raise TypeError("the memory is on a GPU: use from_dlpack")
        import ml_dtypes
        import numpy

        name, typestr = ML_DTYPES[self.dtype]
        bits = type("Bits", (), {"__array_interface__": self._interface(typestr), "view": self})()
        array = numpy.asarray(bits).view(getattr(ml_dtypes, name))
        return array if dtype is None else array.astype(dtype)

    def __dlpack_device__(self) -> Tuple[int, int]:
        return self._device

    def __dlpack__(self, **_: Any) -> Any:
        return capsule_of(ffi.addressof(self._view), self._device)


class Call:
    """What one call of a function is for: `results` are to be written, all of
    each, `operands` to be read. All of it is there until the function returns."""

    def __init__(self, site: Any, device: Tuple[int, int]) -> None:
        self.name = text_of(site.name)
        self.rank: int = site.rank
        self.line: int = site.line  # of the statement; 0 if it has none
        self.over: int = site.over  # how many last dimensions belong together
        self.keep: bool = site.keep  # results are read, too
        # On CUDA, what work is enqueued onto, 0 being the default stream; PyTorch's
        # current stream is that one already. On the cpu 0.
        self.stream = int(ffi.cast("uintptr_t", site.stream))
        self.results: List[View] = [View(site.result[i], device) for i in range(site.nresults)]
        self.operands: List[View] = [View(site.operand[i], device) for i in range(site.noperands)]


Function = Callable[[Call], Any]


def on_stream(stream: int, device: Tuple[int, int]) -> Any:
    """A context in which what PyTorch launches goes onto a stream of CUDA. By hand it
    is easily another one: ExternalStream(0) is not the default stream."""
    torch: Any = sys.modules.get("torch")
    if device[0] != CUDA or torch is None or not torch.cuda.is_initialized():
        return contextlib.nullcontext()
    if stream == 0:
        return torch.cuda.stream(torch.cuda.default_stream(device[1]))
    return torch.cuda.stream(torch.cuda.ExternalStream(stream, device=device[1]))


class Table:
    """The functions of a session, and the first exception that one has raised.
    Must outlive the session."""

    def __init__(self, functions: Mapping[str, Function], device: Tuple[int, int]) -> None:
        self.functions = dict(functions)
        self.device = device  # which a number below 0 leaves open
        self.raised: Optional[BaseException] = None
        self._names = [ffi.new("char[]", name.encode()) for name in self.functions]
        self._handles = [ffi.new_handle((self, fn)) for fn in self.functions.values()]
        self.rows = ffi.new("hd_call[]", len(self.functions))
        for row, name, handle in zip(self.rows, self._names, self._handles):
            row.size, row.name = ffi.sizeof("hd_call"), name
            row.fn, row.context = lib.heddle_call, handle
        for name, fn in self.functions.items():
            if not callable(fn):
                refuse(f"what is called for \"{name}\" is {fn!r}")

    def fail(self, site: Any, error: BaseException) -> int:
        if self.raised is None:
            self.raised = error
        words = f"{type(error).__name__}: {error}".encode()[:site.nwhy - 1] + b"\0"
        if site.nwhy > 0:
            ffi.memmove(site.why, words, len(words))
        return lib.HD_ERROR_SYSTEM


@ffi.def_extern(error=lib.HD_ERROR_SYSTEM)
def heddle_call(context: Any, site: Any) -> int:
    """On a thread of the library's on the cpu, and on the one that issues on CUDA."""
    table, fn = ffi.from_handle(context)
    try:
        call = Call(site, table.device)
        with on_stream(call.stream, table.device):
            fn(call)
    except BaseException as error:
        return table.fail(site, error)
    return lib.HD_OK

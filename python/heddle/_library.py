"""The C library, and what all modules here need of it."""
import os
import threading
from typing import Any, Callable, List, Optional

from . import _heddle

ffi = _heddle.ffi
lib = _heddle.lib

COMMAND = os.path.join(os.path.dirname(__file__), "bin", "heddle")
DTYPES = ("f64", "f32", "f16", "bf16", "f8e4m3", "f8e5m2", "i64", "i32", "u8", "i8",
          "event")
ROLES = ("in", "out", "inout", "temp")
STAGES = ("tensor", "reshard", "stream", "transfer", "event", "host", "place")


def text_of(chars: Any) -> str:
    """What a `const char *` points to; "" for NULL."""
    return ffi.string(chars).decode("utf-8", "replace") if chars else ""


version: str = text_of(lib.hd_version())


def info(kind: str) -> Any:
    """An empty struct that says how large it is."""
    struct = ffi.new(kind + " *")
    struct.size = ffi.sizeof(kind)
    return struct


def uninterrupted(call: Callable[[], Any], on_interrupt: Optional[Callable[[], Any]] = None) -> Any:
    """What `call` returns, which may block in C for long.

    Python runs its signal handlers on the main thread alone, and between calls
    of C: so there another thread calls. If a handler raises, Ctrl-C's as a rule,
    `on_interrupt` has a second to end the call, and the exception goes on.
    """
    if threading.current_thread() is not threading.main_thread():
        return call()
    done = threading.Event()
    result: List[Any] = []

    def work() -> None:
        try:
            result.append((call(), None))
        except BaseException as raised:
            result.append((None, raised))
        done.set()

    threading.Thread(target=work, name="heddle", daemon=True).start()
    try:
        done.wait()
    except BaseException:
        if on_interrupt is not None:
            on_interrupt()
            done.wait(1)
        raise
    value, raised = result[0]
    if raised is not None:
        raise raised
    return value

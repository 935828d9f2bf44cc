"""Events that the caller shares with programs: `in %go : event[]`."""
import time
from typing import Any, Optional

from ._error import TimeoutError, refuse
from ._library import ffi, lib

SLICE = 0.05  # s that a wait blocks in C, and so signals


class Event:
    """An event for programs on the cpu, of any groups, and for this process. Whoever
    waits for it waits for the last record made before, and for nothing where there
    is none. On CUDA PyTorch's or CuPy's stands in its place, or a CUevent as an int.
    """

    def __init__(self) -> None:
        pointer = lib.hd_event_create()
        if not pointer:
            raise MemoryError
        self._pointer = ffi.gc(pointer, lib.hd_event_destroy)

    def record(self) -> None:
        """Records it, now."""
        lib.hd_event_record(self._pointer)

    def wait(self, timeout: Optional[float] = None) -> None:
        """Until that record, a run's as a rule, has been reached. TimeoutError after
        `timeout` seconds."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            left = SLICE if end is None else min(SLICE, max(end - time.monotonic(), 0))
            if lib.hd_event_wait(self._pointer, left) == lib.HD_OK:
                return
            if end is not None and time.monotonic() >= end:
                raise TimeoutError(f"the event was not recorded within {timeout:g} s")


def event_of(event: Any, name: str, on_cpu: bool) -> Any:
    """What a run is passed for an event: a hd_event, or a CUevent."""
    if on_cpu:
        if not isinstance(event, Event):
            refuse(f"%{name} is an event, and is given {type(event).__name__}: pass a heddle.Event")
        return event._pointer
    handle = event if isinstance(event, int) else \
        getattr(event, "cuda_event", getattr(event, "ptr", None))
    if not isinstance(handle, int) or isinstance(handle, bool) or handle <= 0:
        refuse(f"%{name} is an event: {event!r} is no CUDA event that has been recorded")
    return ffi.cast("void *", handle)

"""Arrays in memory of a group, which peers can map: for arguments that are at one
place in every run."""
import math
import operator
from typing import Any, List, Sequence, Set, Tuple

from ._call import CPU, CUDA, View, capsule_of
from ._error import Diag, refuse
from ._library import DTYPES, ffi, lib


class Memory:
    """What a group has given of its own. Arrays are dropped on any thread, and a group
    is used by one at a time: so what is dropped waits until the group is in use
    again, or goes with it. A group that is closed stays as long as arrays of it."""

    def __init__(self, group: Any) -> None:
        self._groups: List[Any] = [group]  # until it is destroyed
        self._given: Set[Any] = set()
        self._dropped: List[Any] = []
        self._closed = False

    def take(self, device: str, nbytes: int) -> Any:
        self.free_dropped()
        out = ffi.new("void **")
        with Diag() as diag:
            diag.check(lib.hd_group_alloc(self._groups[0], device.encode(), nbytes, diag.p, out))
        self._given.add(out[0])
        return out[0]

    def drop(self, address: Any) -> None:
        self._given.discard(address)
        self._dropped.append(address)
        if self._closed:
            self._end_if_unused()

    def free_dropped(self) -> None:
        while self._dropped:
            lib.hd_group_free(self._groups[0], self._dropped.pop())

    def close(self) -> None:
        self._closed = True
        self._end_if_unused()

    def _end_if_unused(self) -> None:
        if self._given:
            return
        try:
            group = self._groups.pop()
        except IndexError:  # another thread was faster
            return
        lib.hd_group_destroy(group)


def device_numbers(device: str) -> Tuple[int, int]:
    kind, _, number = device.partition(":")
    if device == "cpu":
        return CPU, 0
    if kind != "cuda" or not number.isdecimal():
        refuse(f"an array is on \"cpu\" or on a device such as \"cuda:3\", and not on {device!r}")
    return CUDA, int(number)


def length(value: Any) -> int:
    try:
        found = operator.index(value)
    except TypeError:
        refuse(f"{value!r} is no number of elements")
    if found < 0:
        refuse(f"a dimension of {found} elements")
    return found


class Array(View):
    """An array in memory of a group, as `Group.empty` makes it, dense: `numpy.asarray`
    and `torch.from_dlpack` make arrays of it that may be written. Its memory is there as
    long as it, an array that was made of it, or an executable that has it `fixed`; and no
    group need be open for that."""

    def __init__(self, memory: Memory, shape: Sequence[int], dtype: str, device: str) -> None:
        self._memory = memory
        if dtype not in DTYPES[:-1]:
            refuse(f"{dtype!r} is no dtype: {', '.join(DTYPES[:-1])}")
        extents = [length(extent) for extent in shape]
        if len(extents) > lib.HD_MAX_DIMS:
            refuse(f"{len(extents)} dimensions, of {lib.HD_MAX_DIMS} at most")
        view = ffi.new("hd_call_view *")
        view.dtype, view.ndims = DTYPES.index(dtype), len(extents)
        nbytes = math.prod(extents) * lib.hd_dtype_size(view.dtype)
        if nbytes >= 2**63:
            refuse(f"{dtype}{extents} has {nbytes} bytes")
        for d, extent in enumerate(extents):
            view.extent[d], view.stride[d] = extent, math.prod(extents[d + 1:])
        numbers = device_numbers(device)
        view.address = memory.take(device, nbytes)
        self._taken = view.address
        super().__init__(view, numbers)

    def __dlpack__(self, **_: Any) -> Any:
        return capsule_of(self._view, self._device, self)

    def __del__(self) -> None:
        if hasattr(self, "_taken"):
            self._memory.drop(self._taken)

    def __repr__(self) -> str:
        kind, number = self._device
        return (f"<heddle.Array {self.dtype}{list(self.shape)} on "
                f"{'cpu' if kind == CPU else f'cuda:{number}'}>")

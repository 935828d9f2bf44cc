"""What the library says: exceptions and warnings with its own words."""
import builtins
import enum
import itertools
import linecache
import os
import sys
import types
import warnings
from typing import Any, NamedTuple, NoReturn, Optional, Sequence, Tuple

from ._library import ffi, info, lib, text_of

SEVERITIES = ("error", "warning", "note")


class Status(enum.IntEnum):
    """Whose fault it is: `hd_status` of heddle.h."""
    INVALID = 1
    ARGUMENT = 2
    NO_MEMORY = 3
    SYSTEM = 4
    UNSUPPORTED = 5
    PEER = 6
    TIMEOUT = 7


class Message(NamedTuple):
    """One thing that the library says."""
    severity: str  # "error", "warning" or "note"
    code: str  # "HD0201", which docs/diagnostics.md explains; "" where there is none
    file: str  # "" where it has no place in a text; of a Builder's, a file of Python
    line: int  # from 1; 0 where there is none
    column: int  # likewise, in bytes
    text: str


class Error(Exception):
    """A call of the library that failed. `str()` is all that it says, with the
    lines of the program and carets; `status` says whose fault it is, `messages`
    has the parts, and `code` the first error's code, or "".
    """

    status: Status = Status.ARGUMENT
    messages: Tuple[Message, ...] = ()

    def __init__(self, text: str) -> None:
        super().__init__(text)

    @property
    def code(self) -> str:
        errors = (m.code for m in self.messages if m.severity == "error" and m.code)
        return next(errors, "")

    def __str__(self) -> str:
        return str(self.args[0])


class ProgramError(Error, ValueError):
    """The program, or a file it was read from, is wrong."""
    status = Status.INVALID


class ArgumentError(Error, ValueError):
    """This call was misused: an array that does not fit, an option that is none."""
    status = Status.ARGUMENT


class OutOfMemoryError(Error, MemoryError):
    """Memory ran out."""
    status = Status.NO_MEMORY


class SystemFailure(Error, OSError):
    """The operating system refused, or a function that the program calls failed."""
    status = Status.SYSTEM


class UnsupportedError(Error, NotImplementedError):
    """Well formed, but not here: no such device or library."""
    status = Status.UNSUPPORTED


class PeerError(Error, ConnectionError):
    """Another rank died, failed or aborted the group."""
    status = Status.PEER


class TimeoutError(Error, builtins.TimeoutError):
    """A wait for another rank passed its deadline."""
    status = Status.TIMEOUT


class HeddleWarning(UserWarning):
    """What the library warns of, such as an option that changes nothing."""


KINDS = {kind.status: kind for kind in (
    ProgramError, ArgumentError, OutOfMemoryError, SystemFailure, UnsupportedError, PeerError,
    TimeoutError)}


def refuse(text: str) -> NoReturn:
    """A misuse that is found before the library is asked."""
    raise ArgumentError(text)


def caller() -> Tuple[Optional[types.FrameType], int]:
    """The first frame outside of this package, and how many above the function that
    asks its caller for it that is, as warnings.warn counts."""
    here, level = os.path.dirname(__file__), 1
    frame: Optional[types.FrameType] = sys._getframe(2)
    while frame is not None and os.path.dirname(frame.f_code.co_filename) == here:
        frame, level = frame.f_back, level + 1
    return frame, level


def caller_level() -> int:
    return caller()[1]


class Site(NamedTuple):
    """A place in the caller's Python, which the lines of a Builder have."""
    code: types.CodeType
    instruction: int
    line: int

    def columns(self) -> Tuple[int, int]:
        """Of what was evaluated there, in bytes from 0, the first and the one past
        the last; (-1, -1) where Python, before 3.11, does not say."""
        positions = getattr(self.code, "co_positions", None)
        if positions is None:
            return -1, -1
        found = itertools.islice(positions(), self.instruction // 2, None)
        line, end, first, past = next(found, (0, 0, -1, -1))
        return (first, past) if line == end == self.line and first is not None else (-1, -1)


def caller_site() -> Site:
    frame, _ = caller()
    assert frame is not None
    return Site(frame.f_code, frame.f_lasti, frame.f_lineno)


def quote(m: Message, site: Site) -> str:
    """The line of Python that a message is about, as the library shows lines of
    texts."""
    line = linecache.getline(m.file, m.line).rstrip("\n")
    first, past = site.columns()
    if not line:
        return ""
    text = f"{m.line:7} | {line}\n"
    if first >= 0:
        before, marked = (part.decode() for part in
                          (line.encode()[:first], line.encode()[first:past]))
        text += f"{'':7} | {' ' * len(before)}^{'~' * (len(marked) - 1)}\n"
    return text


class Diag:
    """Where the library puts its words. Errors become exceptions, warnings
    Python's warnings.

        with Diag() as diag:
            diag.check(lib.hd_parse(.., diag.p, out))

    `sites` are the places in Python of a program that was built: a message with a
    cookie, which counts them from 1, is shown at its own.
    """
    __slots__ = ("p", "sites")

    def __init__(self, sites: Sequence[Site] = ()) -> None:
        self.p: Any = lib.hd_diag_create()
        self.sites = sites
        if self.p == ffi.NULL:
            raise MemoryError

    def __enter__(self) -> "Diag":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        lib.hd_diag_destroy(self.p)
        self.p = ffi.NULL

    def messages(self) -> Tuple[Message, ...]:
        return tuple(message for message, _ in self.sited())

    def sited(self) -> Sequence[Tuple[Message, Optional[Site]]]:
        found, m, i = [], info("hd_message"), 0
        while lib.hd_diag_message(self.p, i, m):
            site = self.sites[m.cookie - 1] if 0 < m.cookie <= len(self.sites) else None
            file, line, column = ((text_of(m.file), m.line, m.column) if site is None else
                                  (site.code.co_filename, site.line, site.columns()[0] + 1))
            found.append((Message(SEVERITIES[m.severity], text_of(m.code), file, line, column,
                                  text_of(m.text)), site))
            i += 1
        return found

    def text(self) -> str:
        """All messages as a person reads them."""
        found = self.sited()
        if all(site is None for _, site in found):
            return text_of(lib.hd_diag_text(self.p))
        text = ""
        for m, site in found:
            numbers = "".join(f":{n}" for n in (m.line, m.column) if n > 0)
            text += f"{m.file}{numbers}: " if m.file else ""
            text += f"{m.severity}[{m.code}]: " if m.code else f"{m.severity}: "
            text += f"{m.text}\n{quote(m, site) if site is not None else ''}"
        return text

    def error(self, status: int) -> Error:
        """The exception of a status, which leaves the diag empty."""
        text = self.text().rstrip("\n")
        error = KINDS[Status(status)](text or text_of(lib.hd_status_text(status)))
        error.messages = self.messages()
        lib.hd_diag_clear(self.p)
        return error

    def check(self, status: int, cause: Optional[BaseException] = None) -> None:
        """Raises where the status is an error; else its messages are warnings."""
        if status != lib.HD_OK:
            raise self.error(status) from cause
        if lib.hd_diag_count(self.p) > 0:
            self.warn()

    def warn(self) -> None:
        said = self.messages()
        lib.hd_diag_clear(self.p)
        for i, m in enumerate(said):
            if m.severity == "note":
                continue
            place = f"{m.file}:{m.line}:{m.column}: " if m.file else ""
            text = f"{place}{m.text}" + (f" [{m.code}]" if m.code else "")
            for note in said[i + 1:]:
                if note.severity != "note":
                    break
                text += f"; {note.text}"
            warnings.warn(text, HeddleWarning, stacklevel=caller_level())

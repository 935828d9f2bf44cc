# What type checkers know of the extension: it takes and gives C.
from typing import Any, Callable, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

class FFI:
    def def_extern(self, *, error: Any = ...) -> Callable[[F], F]: ...
    def __getattr__(self, name: str) -> Any: ...

ffi: FFI
lib: Any

# Runs without Python between, of direct.c.
from typing import Any, Callable, Deque, List, Optional, Tuple, Union

ALIGNED: int  # bytes, of what a run on CUDA is given

class Plan:
    def __new__(cls, keep: Any, recent: Optional[Deque[Any]],
                types: Tuple[type, ...], tensors: List[Any],
                results: Tuple[Any, ...], order: Tuple[int, ...],
                watching: Tuple[Callable[[], Any], ...],
                gradient: Union[None, bool, Callable[[], bool]], run: int, session: int,
                diag: int) -> "Plan": ...
    def issue(self, tensors: List[Any]) -> Union[None, int, List[Any]]: ...
    def issue_plain(self, tensors: List[Any]) -> Union[None, int, List[Any]]: ...

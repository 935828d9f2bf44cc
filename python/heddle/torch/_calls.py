"""Calls of programs on tensors: what one needs is made of what its tensors look like the
first time that such tensors come, and found by that ever after."""
import contextlib
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor, _C
from torch.autograd import forward_ad
from torch.cuda import is_current_stream_capturing

from .._compile import EXCHANGE, Executable, compile
from .._direct import ALIGNED, Plan
from .._error import ArgumentError, PeerError, UnsupportedError, refuse
from .._group import Group
from .._program import Program
from ._group import AnyGroup, Board, find, find_made

if not hasattr(Tensor, EXCHANGE):
    raise ImportError(f"heddle.torch needs PyTorch 2.10 or later, and this is {torch.__version__}")
# Executables that a group keeps. All ranks make the same calls, and so drop the same.
KEPT = 64
LOOKS = 16 * KEPT  # kinds of calls that a group remembers
PLANS = 8  # looked through for a call, of tensors of several shapes

# Ask whether anybody but the kernel looks at a call.
WATCHING = (_C._len_torch_dispatch_stack, _C._len_torch_function_stack,
            _C._are_functorch_transforms_active, _C._get_tracing_state,
            _C._autograd._profiler_enabled, _C._is_any_autocast_enabled,
            lambda: forward_ad._current_level >= 0)
is_captured = is_current_stream_capturing if torch.cuda.is_available() else bool

# Results, and what lies like one: sizes and strides.
Lie = Tuple[Sequence[Any], Sequence[Any]]


class Key(NamedTuple):
    """What a program is made of, `text(*sizes)`, and where it runs."""
    text: Callable[..., str]
    sizes: Tuple[Any, ...]
    device: torch.device
    at_once: Optional[Callable[..., str]] = None  # the text for one kernel, where that is faster


class Call(NamedTuple):
    """What a call on tensors that look like some others takes."""
    key: Key  # of its executables
    results: Sequence[Lie]
    order: Sequence[int]  # of the program's arguments, among the tensors and then the results
    loose: Sequence[Tuple[int, Callable[[Tensor], Tensor]]]  # which tensors are packed, by what


class Made:
    """A program's executables. What lets runs be captured makes others slower, so that
    there are two on CUDA, of which the second takes as much memory again."""

    def __init__(self, plain: Executable, capturable: Optional[Executable],
                 is_async: bool = False) -> None:
        self.plain = plain
        self.capturable = capturable
        self.is_async = is_async  # a run that is issued needs no more
        self.used = 0  # when it last was, as its table counts

    def executables(self) -> List[Executable]:
        return [one for one in (self.plain, self.capturable) if one is not None]

    def close(self) -> None:
        for one in self.executables():
            one.close()


class Table:
    """The executables of a group. A CUDA graph has addresses of those that were
    captured, so that they stay as long as the group."""

    def __init__(self) -> None:
        self.kept: Dict[Key, Made] = {}
        self.captured: Dict[Key, Executable] = {}
        self.calls: Dict[Any, Call] = {}
        # By the planner and what it takes beside tensors: of calls that are issued.
        self.plans: Dict[Any, List[Tuple[Plan, Made]]] = {}
        self.now = 0  # calls so far, with this one

    def use(self, made: Made) -> Executable:
        self.now += 1
        made.used = self.now
        return made.plain

    def find(self, key: Key, capturing: bool) -> Optional[Executable]:
        made = self.kept.get(key)
        plain = None if made is None else self.use(made)
        if not capturing:
            return plain
        if made is not None and made.capturable is not None:
            self.captured[key], made.capturable = made.capturable, None
        return self.captured.get(key)

    def add(self, key: Key, made: Made) -> None:
        """The one used the longest ago is dropped."""
        self.use(made)
        self.kept[key] = made
        if len(self.kept) > KEPT:
            oldest = min(self.kept, key=lambda one: self.kept[one].used)
            self.kept.pop(oldest).close()
            self.plans.clear()

    def keep_plan(self, kind: Any, plan: Plan, made: Made) -> None:
        """The latest first."""
        self.plans[kind] = [(plan, made), *self.plans.get(kind, [])[:PLANS - 1]]

    def remember(self, look: Any, call: Call) -> Call:
        if len(self.calls) >= LOOKS:
            self.calls.clear()
        self.calls[look] = call
        return call


def table_of(group: Group) -> Table:
    table: Optional[Table] = getattr(group, "_torch_table", None)
    if table is None:
        table = group._torch_table = Table()  # type: ignore[attr-defined]
    return table


def dense(sizes: Sequence[Any]) -> Lie:
    """Without gaps, the last dimension the innermost."""
    strides, step = [], 1
    for size in reversed(sizes):
        strides.append(step)
        step = step * size
    return sizes, strides[::-1]


def turned(w: Tensor) -> bool:
    """Whether a weight [in, out] is stored [out, in]."""
    return w.stride(0) == 1 and w.stride(1) != 1


def like_weight(w: Tensor) -> Lie:
    """Its gradient, which is stored as it is."""
    k, n = w.shape
    return ((k, n), (1, k)) if turned(w) else ((k, n), (n, 1))


def pack_turned(w: Tensor) -> Tensor:
    return w.t().contiguous().t()


def packs(tensors: Sequence[Tensor], weights: Sequence[int]
          ) -> List[Tuple[int, Callable[[Tensor], Tensor]]]:
    """What has to be packed, which runs would do slowly; `weights` may lie turned."""
    found: List[Tuple[int, Callable[[Tensor], Tensor]]] = []
    for i, tensor in enumerate(tensors):
        if i in weights and turned(tensor):
            if not tensor.t().is_contiguous():
                found.append((i, pack_turned))
        elif not tensor.is_contiguous():
            found.append((i, Tensor.contiguous))
    return found


def lower(program: Program, transfer: str, transport: Optional[str],
          machine: Any = None) -> Program:
    """Once for both executables, and proven."""
    # It is captured, too, where launches go as their parts.
    complete = program.lower(transfer=transfer, transport=transport, machine=machine,
                             parts=transfer == "auto")
    complete.check(program, transport=transport)
    return complete


def bind(group: Group, table: Table, key: Key, complete: Program, transport: Optional[str]
         ) -> Executable:
    """The one that is not captured."""
    device, on_cuda = str(key.device), key.device.type == "cuda"
    plain = compile(complete, group, device=device, check=False, transport=transport)
    capturable = None
    try:
        if on_cuda and key not in table.captured:
            capturable = compile(complete, group, device=device, check=False, transport=transport,
                                 capturable=True)
    except BaseException:
        plain.close()
        raise
    table.add(key, Made(plain, capturable, on_cuda))
    return plain


class Watch:
    """Of an executable on the cpu whose runs wait long, or end with a peer: whether a rank
    makes another program in this call, and so will not come."""

    def __init__(self, group: Group, board: Board, table: Table, text: str) -> None:
        self.group, self.board, self.table, self.text = group, board, table, text

    def look(self) -> None:
        words = self.board.tell(self.table.now, self.text)
        if words is not None:
            self.group.abort()
            refuse(words)

    def judge(self, error: PeerError) -> None:
        judge_end(self.board, self.table.now, error)


def judge_end(board: Board, call: int, error: PeerError) -> None:
    """Why a rank has aborted the group in that call, where that is known."""
    words = board.find(call) if "aborted" in str(error) else None
    if words is not None:
        raise ArgumentError(words) from error


def make(group: Group, table: Table, key: Key, capturing: bool) -> Executable:
    """The executables of a program, of which other ranks are told while it is made: they
    may run one that they have."""
    text = key.text(*key.sizes)
    board = getattr(group, "_torch_board", None)
    if board is None:  # no process group's
        return make_alone(group, table, key, text, capturing)
    call = table.now + 1
    board.post(call, text)
    try:
        executable = make_alone(group, table, key, text, capturing)
    except PeerError as error:
        judge_end(board, call, error)
        raise
    finally:
        board.clear(call)
    executable._late = Watch(group, board, table, text)
    return executable


def make_alone(group: Group, table: Table, key: Key, text: str, capturing: bool) -> Executable:
    """The executables of the program's text, on a device, or of `at_once`, which no
    prediction chooses yet."""
    program = Program(text, name="heddle.torch")
    if capturing:
        shapes = ", ".join(f"{a.name} {a.dtype}{list(a.local_shape)}" for a in program.arguments)
        refuse(f"{program.name} of {shapes} first comes in a capture of a CUDA graph, where its "
               "program cannot be made: call it with such tensors once before, on all ranks")
    if key.at_once is not None:
        whole = Program(key.at_once(*key.sizes), name="heddle.torch")
        with contextlib.suppress(UnsupportedError):  # on all ranks or on none
            return bind(group, table, key, lower(whole, "bulk", "sm"), "sm")
    return bind(group, table, key, lower(program, "auto", None, group._machine(key.device.type)),
                None)


def align(tensors: List[Tensor]) -> None:
    """Copies what a run on CUDA may not read where it is."""
    for i, tensor in enumerate(tensors):
        if tensor.data_ptr() % ALIGNED != 0:
            tensors[i] = tensor.clone()


def run_planned(group: Group, kind: Any, tensors: List[Tensor]) -> Optional[List[Tensor]]:
    """The results of a call like one before, whose tensors look like these; else None."""
    table = table_of(group)
    for plan, made in table.plans.get(kind, ()):
        issued = plan.issue(tensors)
        if issued is not None:
            table.use(made)
            return made.plain._end_issue(issued)
    return None


def run_plain(planner: Callable[..., Call], group: AnyGroup, tensors: List[Tensor],
              rest: Tuple[Any, ...]) -> Optional[List[Tensor]]:
    """What `run` makes, in a call like one before that neither PyTorch's dispatcher nor
    autograd would do more with; else None. Written out where a call of another function
    of Python's would be felt."""
    there = find_made(group)
    if there is None or is_captured():
        return None
    table, use = table_of(there), there._use
    if not use.begin():
        use.refuse()
    try:
        for plan, made in table.plans.get((planner, rest), ()):
            found = plan.issue_plain(tensors)
            if found is not None:
                table.now = made.used = table.now + 1
                return found if made.is_async and type(found) is list else \
                    made.plain._end_issue(found)
        return None
    finally:
        use.end()


def run(planner: Callable[..., Call], name: str, tensors: List[Tensor], rest: Tuple[Any, ...]
        ) -> List[Tensor]:
    """Makes the results that `planner` tells, on the group of that name. The planner, of the
    tensors, the group's name and `rest`, refuses what does not fit.

    On CUDA a run is in order with PyTorch's current stream, as is whatever its allocator
    uses the memory for next: nothing is kept of tensors."""
    group, kind = find(name), (planner, rest)
    with group._use:
        capturing = is_captured()
        found = None if capturing else run_planned(group, kind, tensors)
        return run_anew(group, kind, name, tensors, capturing) if found is None else found


def run_anew(group: Group, kind: Any, name: str, tensors: List[Tensor], capturing: bool
             ) -> List[Tensor]:
    """A run for which there is no plan, or that is captured."""
    (planner, rest), table, on_cuda = kind, table_of(group), tensors[0].is_cuda
    look = (kind, *[(t.shape, t.stride(), t.dtype, t.device) for t in tensors])
    call = table.calls.get(look)
    if call is None:
        call = table.remember(look, planner(tensors, name, *rest))
    capturing = capturing and on_cuda
    executable = table.find(call.key, capturing)
    if executable is None:
        executable = make(group, table, call.key, capturing)
    for i, pack in call.loose:
        tensors[i] = pack(tensors[i])
    if on_cuda:
        align(tensors)
    plan = executable._plan(tensors, call.results, call.order, WATCHING, torch.is_grad_enabled,
                            keeps=not on_cuda)
    if not capturing and not call.loose:
        table.keep_plan(kind, plan, table.kept[call.key])
    found = executable._end_issue(plan.issue(tensors))
    if found is None:
        refuse(f"{executable.program.name} is closed, or takes no tensor of its kind")
    return found

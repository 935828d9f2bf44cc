"""Programs within functions of JAX's, on the cpu.

    gather = heddle.jax.call(heddle.compile(program, group))

    @jax.jit
    def layer(x, w):
        return jnp.tanh(gather(x) @ w)

A call is an ordered callback to the host, as `jax.experimental.io_callback` makes
them: each call of a traced function is one run, and runs are in the order of the
program's text, so that ranks whose functions are alike make the same runs. Each rank
is a process with a device of its own. JAX's arrays do not change: an `inout` is taken
and its new value returned.
"""
import math
from typing import Any, Dict, List, Mapping, Optional, Tuple

import jax
import jax.experimental
import ml_dtypes
import numpy as np

from ._call import CPU, ML_DTYPES
from ._compile import Executable
from ._error import ArgumentError, UnsupportedError, refuse
from ._program import NUMPY, Argument

__all__ = ["Call", "call"]


def dtype_of(argument: Argument) -> Any:
    """As NumPy has it, and JAX where it has it too."""
    if argument.dtype == "event":
        refuse(f"%{argument.name} is an event, and JAX has none")
    if argument.dtype in ML_DTYPES:
        return np.dtype(getattr(ml_dtypes, ML_DTYPES[argument.dtype][0]))
    dtype = np.dtype(NUMPY[argument.dtype])
    if jax.dtypes.canonicalize_dtype(dtype) != dtype:
        refuse(f"%{argument.name} is {argument.dtype}, which JAX has with jax_enable_x64 alone")
    return dtype


def without_ones(shape: Tuple[int, ...]) -> List[int]:
    return [extent for extent in shape if extent != 1]


class Call:
    """A function of JAX arrays, in `jax.jit` and outside of it, as `call` makes it."""

    def __init__(self, executable: Executable, sizes: Optional[Mapping[str, int]]) -> None:
        self.executable = executable
        self.sizes = dict(sizes) if sizes is not None else None
        # What the last run that failed has raised. Within jax.jit JAX tells of it by an
        # exception of its own, which has the words of this one.
        self.error: Optional[BaseException] = None
        arguments = executable.program.arguments
        self._dtypes = {a.name: dtype_of(a) for a in arguments}
        self._inputs = [a for a in arguments if a.role != "out"]
        self._outputs = [a for a in arguments if a.role != "in"]
        self._results = [jax.ShapeDtypeStruct(a.local_shape, self._dtypes[a.name])
                         for a in self._outputs]
        if settle not in executable._core.settle:
            executable._core.settle.append(settle)

    def __call__(self, *args: Any, **named: Any) -> Any:
        """The outputs and new values of `inout`s, in the order of the program: one
        array, a tuple of several, or None.

        Arrays have the argument's dtype and local shape, or ArgumentError says which
        have not, when the function is traced. What a run raises is raised outside of
        `jax.jit`; within it it is JAX's JaxRuntimeError, and `error` is the exception.
        """
        given, self.error = self._bind(args, named), None
        try:
            answer = jax.experimental.io_callback(self._run, tuple(self._results), *given,
                                                  ordered=True)
            if not any(isinstance(array, jax.core.Tracer) for array in (*answer, *given)):
                jax.block_until_ready(answer)
                jax.effects_barrier()
        except jax.errors.JaxRuntimeError:
            if self.error is None:
                raise
            raise self.error from self.error.__cause__
        return (answer[0] if len(answer) == 1 else tuple(answer)) if answer else None

    def _bind(self, args: Tuple[Any, ...], named: Mapping[str, Any]) -> List[Any]:
        program = self.executable.program.name
        names = [a.name for a in self._inputs]
        if len(args) > len(names):
            raise TypeError(f"{program} takes {len(names)} arrays, and is given {len(args)}")
        given: Dict[str, Any] = dict(zip(names, args))
        for name, value in named.items():
            if name not in names or name in given:
                raise TypeError(f"{program} is given %{name} twice" if name in given else
                                f"{program} is given no %{name}: it takes {', '.join(names)}")
            given[name] = value
        for name in names:
            if name not in given:
                raise TypeError(f"{program} misses an array for %{name}")
        return [self._fit(a, given[a.name]) for a in self._inputs]

    def _fit(self, argument: Argument, value: Any) -> Any:
        dtype = self._dtypes[argument.name]
        if isinstance(value, (int, float)) and math.prod(argument.local_shape) == 1:
            return jax.numpy.full(argument.local_shape, value, dtype)
        if not hasattr(value, "dtype") or not hasattr(value, "shape"):
            refuse(f"%{argument.name} is given {type(value).__name__}, which is no array")
        shape = tuple(value.shape)
        if value.dtype != dtype or without_ones(shape) != without_ones(argument.local_shape):
            refuse(f"%{argument.name} is {argument.dtype}{list(argument.local_shape)} on each "
                   f"rank, and the array is {value.dtype}{list(shape)}")
        return value

    def _run(self, *given: Any) -> Tuple[Any, ...]:
        """On a thread that JAX chooses."""
        try:
            arrays = {a.name: np.asarray(array) for a, array in zip(self._inputs, given)}
            for a in self._outputs:
                arrays[a.name] = (np.array(arrays[a.name]).reshape(a.local_shape)
                                  if a.role == "inout" else
                                  np.empty(a.local_shape, self._dtypes[a.name]))
            self.executable(sizes=self.sizes, **arrays)
            return tuple(arrays[a.name] for a in self._outputs)
        except BaseException as error:
            self.error = error
            raise

    def __repr__(self) -> str:
        return f"<heddle.jax.Call of {self.executable!r}>"


def settle() -> None:
    """Waits for functions that have been called, so that no run of theirs is under way.
    How they have failed they tell who asks for their answers."""
    try:
        jax.effects_barrier()
    except Exception:
        pass


def call(executable: Executable, *, sizes: Optional[Mapping[str, int]] = None) -> Call:
    """A function of JAX arrays that runs an executable, on the cpu. `sizes` are those of
    its runs. UnsupportedError for one on CUDA; ArgumentError where arguments are fixed, events,
    or of a dtype that JAX does not have. jax.vmap and jax.grad refuse it: a gradient is
    given to it by jax.custom_vjp."""
    if executable._device[0] != CPU:
        raise UnsupportedError("heddle.jax calls executables on the cpu alone")
    if any(array is not None for array in executable._fixed):
        raise ArgumentError("JAX's arrays are at no one place: the executable has arguments fixed")
    return Call(executable, sizes)

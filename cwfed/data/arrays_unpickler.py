"""A pickle that may hold dictionaries and NumPy arrays of numbers, and nothing else.

A pickle is a program. Here its instructions are read by Python's own `pickletools`, which carries
none out, and those few that a dictionary of arrays is made of are carried out on a stack of plain
values. It may name the three functions that NumPy writes into every pickled array, and gets what
stands for them here: nothing of NumPy is called before shape, type and bytes were found to fit.
"""

import math
import pickletools
import re
from dataclasses import dataclass
from reprlib import repr as shortened
from typing import Any

import numpy as np

MOST_STEPS = 1000
"""Instructions; a dictionary of two arrays has about eighty."""

MOST_DIMENSIONS = 8

_ALONE: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_TEXTS = ("BINUNICODE", "SHORT_BINUNICODE", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8")
_GIVEN = ("BININT", "BININT1", "BININT2", "LONG1", *_TEXTS)
_PUTS, _GETS = ("PUT", "BINPUT", "LONG_BINPUT"), ("GET", "BINGET", "LONG_BINGET")
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_NAMES = {
    f"{module} {name}": name
    for module in ("numpy", "numpy.core.multiarray", "numpy._core.multiarray")
    for name in ("_reconstruct", "ndarray", "dtype")
}
_NUMBERS = re.compile(r"[fiu][1248]|b1")
_MARK = object()


def unpickle_arrays(content: bytes) -> dict[str, np.ndarray]:
    """Return the arrays by name that a pickle holds.

    Args:
        content: The pickle of a NumPy array of objects with the shape ``()``, as `numpy.save`
            writes it for a dictionary.

    Returns:
        Read-only arrays of numbers, in memory of their own.

    Raises:
        ValueError: It is anything else; nothing of it has been run.
    """
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    try:
        for number, (step, argument, _) in enumerate(pickletools.genops(content)):
            if number >= MOST_STEPS:
                raise ValueError("expected a pickle of a few arrays, got a much longer one")
            _do(step.name, argument, stack, memo)
        (held,) = stack
    except (LookupError, TypeError, AttributeError, EOFError, RecursionError) as error:
        raise ValueError(f"a damaged pickle: {str(error) or type(error).__name__:.80}") from error
    if not isinstance(held, _Array) or not isinstance(held.value, dict):
        raise ValueError("expected a pickled dictionary of arrays")
    return {name: _numbers_of(value) for name, value in held.value.items()}


@dataclass(frozen=True)
class _Function:
    """A stand-in for a function of NumPy."""

    name: str


class _Type:
    """An array's type: a letter and a number of bytes, then the order of the bytes."""

    def __init__(self, code: Any) -> None:
        if not (isinstance(code, str) and (code == "O8" or _NUMBERS.fullmatch(code))):
            raise ValueError(f"expected arrays of numbers, got the type {short(code)}")
        self.code, self.order = code, "="

    def build(self, state: Any) -> None:
        """Take the order of the bytes."""
        order = state[1]
        if state[3:5] != (None, None) or order not in ("<", ">", "|", "="):
            raise ValueError("expected arrays of numbers, got a type with parts")
        self.order = order


class _Array:
    """An array: numbers, or one object without dimensions."""

    def __init__(self) -> None:
        self.value: Any = None

    def build(self, state: Any) -> None:
        """Take shape, type, order of the axes and values."""
        _, shape, kind, fortran, held = state
        if not isinstance(kind, _Type):
            raise ValueError(f"expected an array with a type, got {type(kind).__name__}")
        if kind.code != "O8":
            self.value = _numbers(shape, np.dtype(kind.order + kind.code), bool(fortran), held)
        elif shape == () and isinstance(held, list) and len(held) == 1:
            (self.value,) = held
        else:
            raise ValueError(f"expected one dictionary, got objects of the shape {short(shape)}")


def _do(step: str, argument: Any, stack: list[Any], memo: dict[int, Any]) -> None:
    """Carry out one instruction."""
    if step in _ALONE:
        stack.append(_ALONE[step])
    elif step in _GIVEN:
        stack.append(argument)
    elif step in _PUTS:
        memo[argument] = stack[-1]
    elif step == "MEMOIZE":
        memo[len(memo)] = stack[-1]
    elif step in _GETS:
        stack.append(memo[argument])
    elif step in _MAKERS:
        _MAKERS[step](stack)
    elif step == "GLOBAL":
        stack.append(_function(argument))
    elif step in _TUPLES:
        stack.append(tuple(_popped(stack, _TUPLES[step])))
    elif step not in ("PROTO", "FRAME", "STOP"):
        raise ValueError(f"expected a pickle of arrays, got one with the step {step}")


def _function(name: str) -> _Function:
    if name not in _NAMES:
        said = name.replace(" ", ".")
        raise ValueError(f"expected a pickle of arrays, got one that names {said:.80}")
    return _Function(_NAMES[name])


def _call(stack: list[Any]) -> None:
    arguments, function = stack.pop(), stack.pop()
    if not isinstance(function, _Function) or not isinstance(arguments, tuple):
        raise ValueError(f"expected a pickle of arrays, got a call of {type(function).__name__}")
    stack.append(_Type(arguments[0]) if function.name == "dtype" else _Array())


def _build(stack: list[Any]) -> None:
    state, made = stack.pop(), stack[-1]
    if not isinstance(made, _Array | _Type) or not isinstance(state, tuple):
        raise ValueError(f"expected a pickle of arrays, got a change of {type(made).__name__}")
    made.build(state)


def _name_function(stack: list[Any]) -> None:
    name, module = stack.pop(), stack.pop()
    stack.append(_function(f"{module} {name}" if isinstance(module, str) else short(module)))


def _since_mark(stack: list[Any]) -> list[Any]:
    marks = [index for index, value in enumerate(stack) if value is _MARK]
    at = marks[-1]
    parts = stack[at + 1 :]
    del stack[at:]
    return parts


def _append(stack: list[Any], parts: list[Any]) -> None:
    if not isinstance(stack[-1], list):
        raise ValueError(f"expected a list, got {type(stack[-1]).__name__}")
    stack[-1].extend(parts)


def _set(stack: list[Any], parts: list[Any]) -> None:
    if not isinstance(stack[-1], dict) or len(parts) % 2:
        raise ValueError(f"expected a dictionary, got {type(stack[-1]).__name__}")
    for name, value in zip(parts[::2], parts[1::2], strict=True):
        if not isinstance(name, str):
            raise ValueError(f"expected arrays with names, got {short(name)}")
        stack[-1][name] = value


def short(value: Any) -> str:
    """Return a value for a message, whatever it is."""
    return f"{shortened(value):.80}"


def _popped(stack: list[Any], count: int) -> list[Any]:
    parts = [stack.pop() for _ in range(count)]
    return parts[::-1]


_MAKERS = {
    "MARK": lambda stack: stack.append(_MARK),
    "EMPTY_LIST": lambda stack: stack.append([]),
    "EMPTY_DICT": lambda stack: stack.append({}),
    "TUPLE": lambda stack: stack.append(tuple(_since_mark(stack))),
    "APPEND": lambda stack: _append(stack, _popped(stack, 1)),
    "APPENDS": lambda stack: _append(stack, _since_mark(stack)),
    "SETITEM": lambda stack: _set(stack, _popped(stack, 2)),
    "SETITEMS": lambda stack: _set(stack, _since_mark(stack)),
    "STACK_GLOBAL": _name_function,
    "REDUCE": _call,
    "BUILD": _build,
}


def _numbers(shape: Any, kind: np.dtype, fortran: bool, held: Any) -> np.ndarray:
    sizes = shape if isinstance(shape, tuple) else (None,)
    if len(sizes) > MOST_DIMENSIONS or not all(type(n) is int and n >= 0 for n in sizes):
        raise ValueError(f"expected the shape of an array, got {short(shape)}")
    if not isinstance(held, bytes) or len(held) != math.prod(sizes) * kind.itemsize:
        size = f"{len(held):,} bytes" if isinstance(held, bytes) else type(held).__name__
        raise ValueError(f"expected the values of an array {short(shape)} of {kind}, got {size}")
    return np.frombuffer(held, dtype=kind).reshape(sizes, order="F" if fortran else "C")


def _numbers_of(value: Any) -> np.ndarray:
    if not isinstance(value, _Array) or not isinstance(value.value, np.ndarray):
        raise ValueError(f"expected arrays of numbers by name, got {type(value).__name__}")
    return value.value

"""Checks that an aggregator returns what a checkpoint of the run can hold.

A run whose state grew a key would go on for hours, and no checkpoint of it could be resumed from.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from cwfed.aggregators.base import Aggregator, Broadcast
from cwfed.federated.faults import RunStopped
from cwfed.federated.state import difference
from cwfed.functional.stacking import Bank

_STATE = "a state with the names, shapes and dtypes of init_state"
_MODELS = "models with the names, shapes and dtypes of the uploads"


def check_first_state(aggregator: Aggregator, state: Any) -> None:
    """Check what `Aggregator.init_state` returns.

    Raises:
        ValueError: It is not a mapping of tensors by name.
    """
    if problem := _no_bank(state):
        raise ValueError(
            f"algorithm.aggregator: {type(aggregator).__name__}.init_state: expected a mapping of "
            f"tensors by name, got {problem}"
        )


def check_state(round_: int, aggregator: Aggregator, method: str, state: Any, like: Bank) -> None:
    """Check a state after `Aggregator.select` or `Aggregator.aggregate`.

    Args:
        round_: Round number.
        aggregator: Whose state it is.
        method: Name of the method that returned it.
        state: What it returned.
        like: The state before.

    Raises:
        RunStopped: It has other names, shapes, dtypes or layouts.
    """
    names = ", ".join(sorted(like)) or "none"
    _check(round_, f"{type(aggregator).__name__}.{method}", f"{_STATE} ({names})", state, like)


def check_broadcast(
    round_: int, aggregator: Aggregator, broadcast: Broadcast, uploads: Bank
) -> None:
    """Check the models and anchors of a broadcast against the uploads they are made of.

    Raises:
        RunStopped: They have other names, shapes, dtypes or layouts.
    """
    where = f"{type(aggregator).__name__}.aggregate"
    _check(round_, where, _MODELS, broadcast.models, uploads)
    if broadcast.anchors:
        expected = _MODELS.replace("models", "anchors")
        _check(round_, where, expected, broadcast.anchors, uploads, optional=True)


def _check(
    round_: int, where: str, expected: str, values: Any, like: Bank, *, optional: bool = False
) -> None:
    problem = _no_bank(values) or difference("anchors" if optional else "one", values, like)
    if problem:
        raise RunStopped(
            f"round {round_}: {where}: expected {expected}, or no checkpoint could be resumed "
            f"from; got {problem}"
        )


def _no_bank(values: Any) -> str | None:
    """Return why a value is no mapping of tensors by name; None if it is one."""
    if not isinstance(values, Mapping):
        return f"one of type {type(values).__name__}"
    for name, value in values.items():
        if not isinstance(name, str) or not isinstance(value, Tensor):
            return f"{name} of type {type(value).__name__}"
        if value.layout != torch.strided:
            return f"{name} in the layout {value.layout}"
    return None

"""Plain values, checked one by one: a kind, a range, and a message that names the field."""

from collections.abc import Collection, Mapping, Sequence
from math import inf, isfinite
from typing import Any

import numpy as np

_MOST = 2**63


def require_known(value: Mapping[str, Any], known: Collection[str], where: str) -> None:
    """Raise a ValueError for the first name that is none of the known ones."""
    for name in value:
        if name not in known:
            raise ValueError(f"{where}{name[:60]}: expected only {', '.join(sorted(known))}")


def require_mapping(value: Any, where: str) -> dict[str, Any]:
    """Return a mapping by names.

    Raises:
        ValueError: It is none; the message names the field.
    """
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise ValueError(f"{where}: expected a mapping, got {value!r:.60}")
    return value


def require_text(value: Any, where: str, most: int = 200) -> str:
    """Return a text of at most so many characters.

    Raises:
        ValueError: It is none, empty or longer; the message names the field.
    """
    if not isinstance(value, str) or not 0 < len(value) <= most:
        raise ValueError(
            f"{where}: expected a text of at most {most} characters, got {value!r:.60}"
        )
    return value


def require_at_least(name: str, value: object, least: float) -> None:
    """Raise a ValueError that names the field unless it holds a number >= `least`, below 2**63."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= least:
        raise ValueError(f"{name}: expected a number >= {least:g}, got {value!r:.60}")
    if isinstance(value, int) and value >= _MOST:
        raise ValueError(f"{name}: expected a number below 2**63, got {value}")


def require_integer(name: str, value: Any, least: int = 0) -> int:
    """Return an integer that is not below a least one.

    Raises:
        ValueError: It is none; the message names the field.
    """
    if type(value) is not int or value < least:
        raise ValueError(f"{name}: expected an integer >= {least}, got {value!r:.60}")
    return value


def require_counts(values: Any, where: str) -> Sequence[int]:
    """Return a list of integers that are not negative.

    Raises:
        ValueError: It is none; the message names the field.
    """
    good = isinstance(values, list) and set(map(type, values)) <= {int}
    if not good or min(values, default=0) < 0 or max(values, default=0) >= _MOST:
        raise ValueError(f"{where}: expected a list of integers >= 0, got {values!r:.60}")
    return list(values)


def require_number(
    value: Any, where: str, low: float = -inf, high: float = inf, *, optional: bool = True
) -> None:
    """Raise a ValueError for what is no finite number in a range, nor None if that may be."""
    if value is None and optional:
        return
    good = type(value) in (int, float) and abs(value) < 2.0**1023 and isfinite(value)
    if not good or not low <= value <= high:
        bounds = f" >= {low:g}" if high == inf else f" from {low:g} to {high:.4g}"
        shown = "" if low == -inf else bounds
        raise ValueError(f"{where}: expected a number{shown}, got {value!r:.60}")


def check_matrix(name: str, values: np.ndarray, shape: tuple[int, ...] | None = None) -> np.ndarray:
    """Return a matrix as float64.

    Raises:
        ValueError: It is no matrix, empty, or not of the shape.
    """
    matrix = np.asarray(values, dtype=np.float64)
    wanted = "x".join(map(str, shape)) if shape else "rows x columns"
    if matrix.ndim != 2 or not matrix.size or (shape and matrix.shape != shape):
        raise ValueError(f"{name}: expected a matrix of {wanted}, got shape {matrix.shape}")
    return matrix

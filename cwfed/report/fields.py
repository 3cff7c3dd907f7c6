"""Reading what a person wrote: each value checked, each mistake one line that names the field."""

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from math import isfinite
from typing import Any

_KINDS: Mapping[str, Callable[[Any], bool]] = {
    "a text": lambda value: isinstance(value, str),
    "a number": lambda value: _is_number(value),
    "a number >= 0": lambda value: _is_number(value) and value >= 0,
    "a number >= 0 or a mapping": lambda value: (
        isinstance(value, dict) or (_is_number(value) and value >= 0)
    ),
    "a percentage": lambda value: _is_number(value) and 0 <= value <= 100,
    "an integer >= 1": lambda value: type(value) is int and value >= 1,
    "true or false": lambda value: isinstance(value, bool),
    "a mapping": lambda value: isinstance(value, dict),
    "a list": lambda value: isinstance(value, list),
    "a list of integers >= 0": lambda value: (
        isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)
    ),
}


class Fields:
    """The fields of a mapping, taken one by one; what nobody takes is a mistake.

    Args:
        value: What was written.
        where: File and field, for messages.

    Raises:
        ValueError: It is no mapping.
    """

    def __init__(self, value: Any, where: str) -> None:
        self.where = where
        self.values: Mapping[str, Any] = check(value, "a mapping", where)
        self.known: list[str] = []

    def take(self, name: str, kind: str, default: Any = ...) -> Any:
        """Return a field's value; without a default it must be there.

        Raises:
            ValueError: It is missing or of another kind.
        """
        self.known.append(name)
        if name in self.values or default is ...:
            return check(self.values.get(name), kind, f"{self.where}{name}", self._meant(name))
        return default

    def _meant(self, name: str) -> str:
        """Return a hint at the field that may be a missing one, misspelt."""
        others = [other for other in self.values if other not in self.known]
        close = get_close_matches(name, others, n=1) if name not in self.values else []
        return f"; is {close[0]!r} misspelt?" if close else ""

    def finish(self) -> None:
        """Raise a ValueError about the first field that was not taken."""
        for name in self.values:
            choose(name, self.known, self.where.rstrip(".: "))


def check(value: Any, kind: str, where: str, hint: str = "") -> Any:
    """Return the value if it is of a kind (a key of the table above).

    Args:
        value: What was written.
        kind: What it should be.
        where: File and field, for messages.
        hint: Ends the message.

    Raises:
        ValueError: It is not.
    """
    where = where.rstrip(".: ")
    if not _KINDS[kind](value):
        got = "nothing" if value is None else repr(value)[:60]
        raise ValueError(f"{where}: expected {kind}, got {got}{hint}")
    for key in value if kind == "a mapping" else ():
        if not isinstance(key, str):
            raise ValueError(f"{where}: expected names that are texts, got {key!r}; quote it")
    return value


def choose(name: str, known: Sequence[str], where: str) -> str:
    """Return the name if it is one of the known ones.

    Raises:
        ValueError: It is not; the message lists them and suggests the closest.
    """
    if name in known:
        return name
    close = get_close_matches(name, known, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    raise ValueError(f"{where}: expected one of {', '.join(known)}; got {name!r}{hint}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)

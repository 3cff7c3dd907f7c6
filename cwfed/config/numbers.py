"""Numbers on the command line and in configuration files: decimal, finite, of at most 64 bits.

The parser would take 010 for 8 in a file and for 10 on the command line, and 1:30 for 90. What
looks like a number but is none is refused where a number was to stand; elsewhere it is a text.
"""

import re
from collections.abc import Iterator, Sequence
from math import isfinite
from typing import Any

import yaml
from jsonargparse import Namespace

from cwfed.config.files import UsageError
from cwfed.config.written import Written
from cwfed.records.plain_yaml import DECIMAL

MOST_INTEGER = 2**63

_NUMBER = re.compile(
    r"(?=.*\d)[-+]?(?:0[xob][\da-f_]+|(?:[\d_]+(?::\d+)*(?:\.[\d_]*)?|\.[\d_]+)(?:e[-+]?\d+)?)",
    re.IGNORECASE,
)
_SHOWN = 20  # digits of a number in a message
_NOTHING = object()


def short(text: str) -> str:
    """Return a number as messages show it."""
    return text if len(text) <= 2 * _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"


def odd_numbers(values: Sequence[Written]) -> list[Written]:
    """Return what looks like a number and is not decimal, or is too large for a float."""
    scalars = [value for value in values if isinstance(value.node, yaml.ScalarNode)]
    numbers = [value for value in scalars if _NUMBER.fullmatch(value.node.value)]
    return [n for n in numbers if not _is_decimal(n) or not isfinite(float(n.node.value))]


def refuse_odd(odd: Sequence[Written], message: str) -> None:
    """Say what is wrong with a number, where the parser has refused it in other words.

    Args:
        odd: What `odd_numbers` has found.
        message: What the parser said.

    Raises:
        UsageError: The message is about one of them.
    """
    for number in odd:
        if _is_of(number, message):
            raise _refusal(number)


def refuse_large(odd: Sequence[Written]) -> None:
    """Name the first number that is too large for a float.

    Args:
        odd: What `odd_numbers` has found.

    Raises:
        UsageError: There is one.
    """
    for number in odd:
        if _is_decimal(number):
            raise _refusal(number)


def check_numbers(config: Namespace, odd: Sequence[Written]) -> None:
    """Check the numbers of a parsed configuration.

    Args:
        config: The configuration.
        odd: What `odd_numbers` has found.

    Raises:
        UsageError: One was not written as a decimal number, or is too large.
    """
    for number in odd:
        value = _value(config, number.option)
        if isinstance(value, int | float) and not isinstance(value, bool):
            raise _refusal(number)
    for option, value in leaves(config):
        if isinstance(value, int) and abs(value) >= MOST_INTEGER:
            raise UsageError(f"{option}: expected a number below 2**63, got {_digits(value)}")


def _digits(value: int) -> str:
    # Python refuses to write out thousands of digits.
    return short(str(value)) if abs(value) < 10**1000 else "one of more than 1,000 digits"


def _is_decimal(number: Written) -> bool:
    return bool(DECIMAL.fullmatch(number.node.value))


def _refusal(number: Written) -> UsageError:
    kind = "a number that a computer can hold" if _is_decimal(number) else "a decimal number"
    return UsageError(f"{number.field}: expected {kind}, got {short(number.node.value)}")


def _is_of(number: Written, message: str) -> bool:
    """Return whether a message is about the number's option, and its file if it names one."""
    found = re.search(rf"(?:^|[\s:]){re.escape(number.option)}: ", message)
    return bool(found) and (number.file is None or number.file in message)


def _value(config: Any, option: str) -> Any:
    """Return the value of an option; `_NOTHING` where there is none of that name."""
    for key in option.split("."):
        if isinstance(config, list):
            config = config[int(key)] if key.isdecimal() and int(key) < len(config) else _NOTHING
            continue
        if not isinstance(config, Namespace | dict):
            return _NOTHING
        inner = config.get("init_args")
        if key not in config and isinstance(inner, Namespace | dict):
            config = inner
        config = config.get(key, _NOTHING)
    return config


def leaves(config: Namespace) -> Iterator[tuple[str, Any]]:
    """Yield the values of a configuration with their dotted names."""
    return _leaves(config.as_dict(), ())


def _leaves(value: Any, keys: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, (*keys, str(key)))
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from _leaves(inner, (*keys, str(index)))
    else:
        yield ".".join(key for key in keys if key != "init_args"), value

"""Time that is lent: what is left of it, and how much a process has used before it could ask."""

import os
import re
import time
from argparse import ArgumentTypeError
from math import inf
from pathlib import Path

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
# No start of Python takes longer; a larger age is a clock that counts something else.
_OLDEST = 600.0


class Deadline:
    """A moment that does not move.

    Args:
        seconds: How long from now.
        age: Seconds that are gone already.
    """

    def __init__(self, seconds: float, age: float = 0.0) -> None:
        self.end = time.monotonic() + seconds - age

    def left(self) -> float:
        """Return the seconds until then, negative afterwards."""
        return self.end - time.monotonic()


def duration(text: str) -> float:
    """Read an option such as ``90s``, ``30m``, ``0.5h`` or ``2d``; a mere number is seconds.

    Returns:
        Seconds.

    Raises:
        ArgumentTypeError: It is something else, or longer than a number holds.
    """
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smhd]?)", text.strip())
    seconds = float(match[1]) * _UNITS[match[2]] if match else inf
    if seconds == inf:
        raise ArgumentTypeError(f"expected a duration such as 90s, 30m or 8h, got {text[:60]!r}")
    return seconds


def process_age() -> float:
    """Return the seconds since this process started (Linux); 0 where that cannot be known."""
    try:
        # The second field is the command's name in brackets, which may hold anything.
        fields = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        started = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - started
    except (OSError, ValueError, IndexError, AttributeError):
        return 0.0
    return age if 0 <= age < _OLDEST else 0.0

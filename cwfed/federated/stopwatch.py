"""Seconds by phase."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter


class Stopwatch:
    """Adds up the seconds of a round's phases."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Add the seconds of a block to those of a phase."""
        start = perf_counter()
        yield
        self._seconds[phase] = self._seconds.get(phase, 0.0) + perf_counter() - start

    def take(self) -> dict[str, float]:
        """Return the seconds by phase, and start again."""
        seconds, self._seconds = self._seconds, {}
        return seconds

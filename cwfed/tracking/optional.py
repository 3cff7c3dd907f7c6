"""Lets a run go on without what it can do without: dashboards and plots."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

log = logging.getLogger("cwfed")


class GoingOn:
    """Lets no failure of something optional reach the run: warns once, and goes on.

    Args:
        name: What may fail, for the warning.

    Attributes:
        failed: Something has failed.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.failed = False
        self._warned = False

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Try a block."""
        try:
            yield
        except Exception as error:  # a picture is not worth a run, whatever went wrong
            self.failed = True
            self.warn(f"{in_short(error)}; the run goes on, perhaps without it")

    def warn(self, words: str) -> None:
        """Warn, unless there was a warning before."""
        if not self._warned:
            log.warning("%s: %s", self.name, words)
        self._warned = True


def in_short(error: Exception) -> str:
    """Return the first sentence of what went wrong."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].partition(". ")[0].rstrip(".")

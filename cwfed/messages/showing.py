"""The package's messages on standard error, for the length of a command."""

import io
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from cwfed.messages.texts import brief, shown


class _Stderr(logging.Handler):
    """Writes to whatever standard error is at the time, not to what it was at the start."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        with suppress(OSError, ValueError):
            sys.stderr.write(f"{shown(brief(record.getMessage()))}\n")


@contextmanager
def _any_text() -> Iterator[None]:
    """Let a strict terminal show an escape for what it has no letter for, in a block."""
    before = []
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            before.append((stream, stream.errors))
            stream.reconfigure(errors="backslashreplace")
    try:
        yield
    finally:
        for stream, errors in before:
            with suppress(OSError, ValueError):
                stream.reconfigure(errors=errors)


@contextmanager
def showing_messages() -> Iterator[None]:
    """Show the package's messages for the length of a command."""
    with _any_text(), _logging():
        yield


@contextmanager
def _logging() -> Iterator[None]:
    logger, handler = logging.getLogger("cwfed"), _Stderr()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)

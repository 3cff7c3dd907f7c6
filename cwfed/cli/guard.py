"""What stands between a person and a traceback: errors while setting up, signals, closed pipes."""

import os
import signal
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

from rich.console import Console

from cwfed.cli.files import UsageError

FAILED, USAGE_ERROR, INTERRUPTED, TERMINATED = 1, 2, 130, 143
"""Exit codes: something broke, a user's mistake, Ctrl-C, SIGTERM."""

DEBUG = "CWFED_DEBUG"
"""Environment variable that lets the traceback of a refused command through."""


@contextmanager
def setting_up() -> Iterator[None]:
    """Turn what fails before a run starts into one line; nothing has been written then.

    Components come from configurations and may raise anything. An error of a kind that is not
    meant for users keeps the name of its kind.
    """
    try:
        yield
    except UsageError:
        raise
    except Exception as error:
        if os.environ.get(DEBUG):
            raise
        meant = isinstance(error, ValueError | OSError)
        text = str(error) or type(error).__name__
        kind = "" if meant else f"{type(error).__name__}: "
        hint = "" if meant else f" (set {DEBUG}=1 for the traceback)"
        raise UsageError(f"{kind}{text}{hint}") from error


class PlainParser(ArgumentParser):
    """A parser for commands without a configuration; complains as the other commands do."""

    def error(self, message: str) -> NoReturn:
        """Raise a UsageError instead of printing the usage."""
        raise UsageError(message)


class Termination:
    """Lets SIGTERM end a run as Ctrl-C does: after what is being written, with the same hint.

    Attributes:
        received: Whether SIGTERM came.
    """

    def __init__(self) -> None:
        self.received = False

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Handle SIGTERM for a block; only the main thread can."""
        try:
            before = signal.signal(signal.SIGTERM, self._handle)
        except ValueError:
            yield
            return
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.received = True
        raise KeyboardInterrupt


class Terminal(Console):
    """A console for plain text that outlives its reader: a closed pipe ends the output only.

    Args:
        stderr: Write to standard error.
    """

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False, highlight=False, soft_wrap=False)

    def say(self, text: str) -> None:
        """Print one line, never broken."""
        self.print(text, soft_wrap=True)

    def on_broken_pipe(self) -> None:
        """Send what follows nowhere."""
        self.quiet = True
        stream = sys.stderr if self.stderr else sys.stdout
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())

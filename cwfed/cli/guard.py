"""What stands between a person and a traceback: errors while setting up, signals, closed pipes."""

import errno
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from rich.console import Console

from cwfed.cli.files import UsageError

FAILED, USAGE_ERROR, REQUEUE, INTERRUPTED = 1, 2, 75, 130
"""Exit codes: something broke, a user's mistake, try again later (EX_TEMPFAIL), Ctrl-C.

Any other signal ends with 128 and its number, as a shell would have it.
"""

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
        text = explain_os(error) if isinstance(error, OSError) else str(error)
        text = text or type(error).__name__
        kind = "" if meant else f"{type(error).__name__}: "
        hint = "" if meant else f" (set {DEBUG}=1 for the traceback)"
        raise UsageError(f"{kind}{text}{hint}") from error


_ADVICE = {
    errno.ENOSPC: "make room on that disk",
    errno.EDQUOT: "make room in your quota",
    errno.EFBIG: "the system limits the size of files (ulimit -f)",
    errno.EACCES: "allow this user to write there",
    errno.EPERM: "allow this user to write there",
    errno.EROFS: "the disk must be writable",
    errno.ENOENT: "was the folder removed or renamed?",
    errno.ENOTDIR: "was the folder replaced?",
    errno.EIO: "is the disk broken or gone?",
    errno.ESTALE: "is the network disk gone?",
    errno.EMFILE: "allow more open files (ulimit -n)",
}


def explain_os(error: OSError) -> str:
    """Return what the system refused: which file, why, and what can be done."""
    if error.errno is None:
        return str(error)
    where = f"{error.filename}: " if error.filename else ""
    advice = _ADVICE.get(error.errno)
    return f"{where}{error.strerror}{f' ({advice})' if advice else ''}"


class Stop:
    """Lets a signal end a run as Ctrl-C does: at once, but not while something is written.

    The first signal raises KeyboardInterrupt, wherever the program is. Those after it are deaf:
    the run is on its way out, and they must not tear what it does last.

    Attributes:
        received: The first signal that came, if one did.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None

    @contextmanager
    def watch(self, signals: tuple[int, ...]) -> Iterator[None]:
        """Handle signals for a block; those that are ignored, as under nohup, stay so.

        Only the main thread can.
        """
        handlers = {which: signal.getsignal(which) for which in signals}
        before = {w: h for w, h in handlers.items() if h not in (signal.SIG_IGN, None)}
        try:
            for which in before:
                signal.signal(which, self._handle)
        except ValueError:
            yield
            return
        try:
            yield
        finally:
            for which, handler in before.items():
                signal.signal(which, handler)

    def code(self) -> int:
        """Return the exit code: under SLURM one that asks for a requeue, unless it was Ctrl-C."""
        if self.received in (None, signal.SIGINT):
            return INTERRUPTED
        return REQUEUE if "SLURM_JOB_ID" in os.environ else 128 + int(self.received or 0)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.received is None:
            self.received = signal.Signals(number)
            raise KeyboardInterrupt


class Terminal(Console):
    """A console for plain text that outlives its reader: what is gone ends the output only.

    Closed pipes, closed terminals and a disk too full for the log are no reason to end a run.

    Args:
        stderr: Write to standard error.
    """

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False, highlight=False, soft_wrap=False)

    def say(self, text: str) -> None:
        """Print one line, never broken."""
        self.print(text, soft_wrap=True)

    def __exit__(self, *error: Any) -> None:
        """Write what was printed in the block."""
        try:
            super().__exit__(*error)
        except OSError:
            self.on_broken_pipe()

    def on_broken_pipe(self) -> None:
        """Send what follows nowhere."""
        self.quiet = True
        stream = sys.stderr if self.stderr else sys.stdout
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())

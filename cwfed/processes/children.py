"""Child processes: how they are started, watched, asked to end, ended, and what their end says.

Who starts them, for what, and what follows from their end is each caller's own.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import IO

from cwfed.processes.own_modules import SAFE_FLAGS

_TICK = 0.05
_ROOT = Path(__file__).resolve().parents[2]


class Child:
    """A process that this one has started.

    Args:
        process: It, from `subprocess` or `multiprocessing`.
        apart: Whether it leads a session of its own.
    """

    def __init__(
        self, process: "subprocess.Popen[bytes] | BaseProcess", apart: bool = False
    ) -> None:
        self.process = process
        self.apart = apart

    @property
    def pid(self) -> int:
        """Return its id."""
        assert self.process.pid is not None
        return self.process.pid

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal's number; None while it runs."""
        if isinstance(self.process, subprocess.Popen):
            return self.process.poll()
        return self.process.exitcode

    def wait(self, seconds: float | None = None) -> int | None:
        """Return the exit code; None if it still runs after some seconds."""
        if isinstance(self.process, subprocess.Popen):
            with suppress(subprocess.TimeoutExpired):
                return self.process.wait(seconds)
            return None
        self.process.join(seconds)
        return self.process.exitcode

    def send(self, which: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, which)

    def ask(self) -> None:
        """Ask it to end after what it is writing, so that it can be resumed."""
        if self.poll() is None:
            self.process.terminate()

    def kill(self) -> None:
        """End it at once, also where it is paused, and what its session has left behind."""
        if self.poll() is None:
            self.process.kill()
        if self.apart:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)


def python(module: str, *arguments: str) -> list[str]:
    """Return the command ``python -m module …``, which does not search the current folder."""
    return [sys.executable, *SAFE_FLAGS, "-m", module, *arguments]


def importable() -> str:
    """Return a ``PYTHONPATH`` with which a child finds this package, wherever it starts."""
    return os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))


def start(
    command: Sequence[str],
    output: int | IO[bytes],
    environment: Mapping[str, str] | None = None,
    *,
    apart: bool = True,
    inherit: Sequence[int] = (),
) -> Child:
    """Start a command without input, its output and errors in one place.

    Args:
        command: The program and its arguments.
        output: An open file, or ``subprocess.PIPE``.
        environment: Added to this process's.
        apart: In a session of its own: Ctrl-C reaches this process alone, which then asks its
            children once. Otherwise it ends with the session that this process is in.
        inherit: Descriptors of open files that it gets.
    """
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        env={**os.environ, **(environment or {})},
        start_new_session=apart,
        pass_fds=inherit,
    )
    return Child(process, apart)


def end(children: Sequence[Child], grace: float = 0.0) -> None:
    """Ask children to end, kill those that have not after a grace time, and wait for all.

    Args:
        children: The processes; some may have ended.
        grace: Seconds that they have; 0 kills them at once.
    """
    if grace > 0:
        for child in children:
            child.ask()
        until = time.monotonic() + grace
        while time.monotonic() < until and any(child.poll() is None for child in children):
            time.sleep(_TICK)
    for child in children:
        child.kill()
    for child in children:
        child.wait()


def explain(code: int | None) -> str:
    """Return an exit code in words.

    >>> explain(3)
    'exit code 3'
    >>> explain(-9)
    'killed by SIGKILL: out of memory?'
    """
    if code is None or code >= 0:
        return f"exit code {code}"
    name = f"signal {-code}"
    with suppress(ValueError):
        name = signal.Signals(-code).name
    hint = ": out of memory?" if name == "SIGKILL" else ""
    return f"killed by {name}{hint}"


def die_with_parent() -> RuntimeError | None:
    """Watch the parent of a process of `multiprocessing`, and end with it.

    Called in the child.

    Returns:
        The error where no thread can be started to watch.
    """
    try:
        threading.Thread(target=_wait_for_parent, daemon=True).start()
    except RuntimeError as error:
        return error
    return None


def _wait_for_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)

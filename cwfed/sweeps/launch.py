"""Processes that run one job each: what crashes there costs one job.

A cold process is ``python -m cwfed fit …``. A warm one is forked from a server that has imported
everything once, which saves the seconds of imports that would be most of a tiny job.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Protocol

import cwfed
from cwfed.processes.lock import Lock
from cwfed.processes.own_modules import SAFE_FLAGS, forget_current_folder, safe_processes

_ROOT = Path(cwfed.__file__).resolve().parent.parent


class Started(Protocol):
    """A process at work."""

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal's number; None while it runs."""

    def stop(self) -> None:
        """Ask it to end after what it is writing, so that it can be resumed."""


class Cold:
    """``python -m cwfed`` with its output in a file.

    Args:
        arguments: The command and its options.
        log: File that takes the output.
        environment: Added to this process's.
        claim: A lock that lives as long as the process, even if this one is killed.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        log: Path,
        environment: Mapping[str, str],
        claim: Lock | None = None,
    ) -> None:
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, *SAFE_FLAGS, "-m", "cwfed", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment, "PYTHONPATH": _path()},
                # Ctrl-C reaches this process alone, which then asks its jobs once.
                start_new_session=True,
                pass_fds=claim.descriptors if claim else (),
            )

    def poll(self) -> int | None:
        """See `Started`."""
        return self.process.poll()

    def stop(self) -> None:
        """See `Started`."""
        self.process.terminate()


class Warm:
    """The same in a process that has imported everything already; see `Cold` for the arguments."""

    def __init__(
        self,
        arguments: Sequence[str],
        log: Path,
        environment: Mapping[str, str],
        claim: Lock | None = None,
    ) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["cwfed.cli.fit", "cwfed.sweeps.launch"])
        self.process = context.Process(
            target=_work, args=(list(arguments), str(log), dict(environment))
        )
        # The server that forks them starts with the first, and finds there what it preloads.
        with safe_processes(PYTHONPATH=_path()):
            self.process.start()

    def poll(self) -> int | None:
        """See `Started`."""
        return self.process.exitcode

    def stop(self) -> None:
        """See `Started`."""
        self.process.terminate()


def _path() -> str:
    return os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))


def has_warm() -> bool:
    """Return whether this system can fork warm processes."""
    return "forkserver" in multiprocessing.get_all_start_methods()


def devices(environment: Mapping[str, str], count: int) -> list[str]:
    """Return the names of the GPUs that this process may use, as ``CUDA_VISIBLE_DEVICES`` has them.

    Args:
        environment: The environment variables.
        count: How many GPUs PyTorch sees.
    """
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name.strip() for name in visible.split(",") if name.strip()]
    return [str(index) for index in range(count)]


def explain(code: int) -> str:
    """Return an exit code in words."""
    if code >= 0:
        return f"exit code {code}"
    name = f"signal {-code}"
    with suppress(ValueError):
        name = signal.Signals(-code).name
    hint = ": out of memory?" if name == "SIGKILL" else ""
    return f"killed by {name}{hint}"


def _work(arguments: list[str], log: str, environment: dict[str, str]) -> None:
    forget_current_folder()
    os.setsid()
    os.environ.update(environment)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.close(descriptor)
    # The command itself, as `python -m cwfed` runs it: fronts are above what starts them.
    sys.exit(import_module("cwfed.cli").main(arguments))

"""One writer for a run folder."""

import os
from pathlib import Path

try:
    import fcntl
except ImportError:  # no such locks on Windows
    fcntl = None  # type: ignore[assignment]

_HELD: set[int] = set()


def lock_folder(path: Path) -> None:
    """Keep other processes from writing into a folder for as long as this one lives.

    Processes that this one forks do not hold the lock.

    Raises:
        ValueError: Another process is writing.
    """
    if fcntl is None:
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise ValueError(f"run_dir: another process is writing the run in {path}") from None
    _HELD.add(descriptor)


def _forget() -> None:
    """Close a forked process's copies, which would keep the locks alive after their owner."""
    for descriptor in _HELD:
        os.close(descriptor)
    _HELD.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)

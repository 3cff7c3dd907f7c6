"""One writer for a run folder."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # no such locks on Windows
    fcntl = None  # type: ignore[assignment]

_HELD: set[int] = set()


def try_lock(descriptor: int) -> bool:
    """Lock an open file or folder until it is closed; return whether nobody else has it.

    True where the system has no such locks.
    """
    if fcntl is None:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_locked(folder: Path) -> bool:
    """Return whether a process writes into a run folder."""
    if fcntl is None or not folder.is_dir():
        return False
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        return not try_lock(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def waiting_for(folder: Path) -> Iterator[None]:
    """Hold a folder's lock for a block, after whoever has it."""
    if fcntl is None:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def lock_folder(path: Path) -> None:
    """Keep other processes from writing into a folder for as long as this one lives.

    Processes that this one forks do not hold the lock.

    Raises:
        ValueError: Another process is writing.
    """
    if fcntl is None:
        return
    descriptor = os.open(path, os.O_RDONLY)
    if not try_lock(descriptor):
        os.close(descriptor)
        raise ValueError(f"run_dir: another process is writing the run in {path}")
    _HELD.add(descriptor)


@contextmanager
def unlocked_afterwards() -> Iterator[None]:
    """Give back at the end of a block the locks that were taken in it."""
    before = set(_HELD)
    try:
        yield
    finally:
        for descriptor in _HELD - before:
            os.close(descriptor)
            _HELD.discard(descriptor)


def _forget() -> None:
    """Close a forked process's copies, which would keep the locks alive after their owner."""
    for descriptor in _HELD:
        os.close(descriptor)
    _HELD.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)

"""One writer for a run folder.

Where the system has ``fcntl``, a folder itself is locked, and nothing is left behind. Elsewhere the
package ``filelock`` locks the file `LOCK` in it, by whatever the system has.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

try:
    import fcntl
except ImportError:  # no such locks on Windows
    fcntl = None  # type: ignore[assignment]

LOCK = ".lock"
"""File that stands for its folder's lock, where a folder cannot be locked itself."""


@dataclass(frozen=True, eq=False)
class Lock:
    """A lock that this process has.

    Attributes:
        release: Gives it back, unless a process that was given the descriptor still runs.
        descriptors: What a process must be given to hold the lock, too; empty where none can.
    """

    release: Callable[[], None]
    descriptors: tuple[int, ...] = ()


_HELD: set[Lock] = set()


def try_lock(path: Path) -> Lock | None:
    """Lock a folder, or a file that is made if missing; None if another process has it."""
    return _flock(path, wait=False) if fcntl else _filelock(path, wait=False)


def is_locked(folder: Path) -> bool:
    """Return whether a process writes into a run folder."""
    if not folder.is_dir() or (fcntl is None and not (folder / LOCK).exists()):
        return False
    lock = try_lock(folder)
    if lock:
        lock.release()
    return lock is None


@contextmanager
def waiting_for(folder: Path) -> Iterator[None]:
    """Hold a folder's lock for a block, after whoever has it."""
    lock = _flock(folder, wait=True) if fcntl else _filelock(folder, wait=True)
    assert lock is not None
    try:
        yield
    finally:
        lock.release()


def lock_folder(path: Path) -> None:
    """Keep other processes from writing into a folder for as long as this one lives.

    Processes that this one forks do not hold the lock.

    Raises:
        ValueError: Another process is writing.
    """
    lock = try_lock(path)
    if lock is None:
        raise ValueError(f"run_dir: another process is writing the run in {path}")
    _HELD.add(lock)


@contextmanager
def unlocked_afterwards() -> Iterator[None]:
    """Give back at the end of a block the locks that were taken in it."""
    before = set(_HELD)
    try:
        yield
    finally:
        for lock in _HELD - before:
            lock.release()
            _HELD.discard(lock)


def _flock(path: Path, *, wait: bool) -> Lock | None:
    flags = os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT
    descriptor = os.open(path, flags, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return Lock(lambda: os.close(descriptor), (descriptor,))


def _filelock(path: Path, *, wait: bool) -> Lock | None:
    # Imported here: most systems do without.
    import filelock

    lock = filelock.FileLock(path / LOCK if path.is_dir() else path, thread_local=False)
    try:
        lock.acquire(timeout=-1 if wait else 0)
    except filelock.Timeout:
        return None
    return Lock(lock.release)


def _forget() -> None:
    """Close a forked process's copies, which would keep the locks alive after their owner."""
    for descriptor in [descriptor for lock in _HELD for descriptor in lock.descriptors]:
        os.close(descriptor)
    _HELD.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)

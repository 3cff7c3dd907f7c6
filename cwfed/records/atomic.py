"""Files that are whole or not there, whatever ends the process or fills the disk.

Every step is a call of `os` of its own, so that tests can kill or fail each of them.
"""

import errno
import hashlib
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

TEMPORARY = ".tmp"
"""Suffix of the hidden files that a kill may leave; the next start removes them."""

_FLAGS = os.O_WRONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_NO_SYNC = {errno.EINVAL, errno.EBADF, errno.ENOTSUP, errno.EACCES}
"""Errors of file systems that cannot make a folder durable."""


class HashingWriter:
    """Writes bytes to a descriptor and hashes them on the way: what is hashed is what was meant.

    Args:
        descriptor: An open file.

    Attributes:
        sha256: Of all bytes so far.
        error: What a write failed with; libraries in between tend to hide it.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.sha256 = hashlib.sha256()
        self.error: OSError | None = None

    def write(self, data: Any) -> int:
        """Write all of a bytes-like object; return its length in bytes."""
        view = memoryview(data).cast("B")
        length = len(view)
        self.sha256.update(view)
        try:
            while view:
                view = view[os.write(self.descriptor, view) :]
        except OSError as error:
            self.error = error
            raise
        return length

    def flush(self) -> None:
        """Do nothing: nothing is held back."""


@contextmanager
def atomic_file(path: Path) -> Iterator[HashingWriter]:
    """Open a file for writing that appears, whole and on the disk, at the end of the block.

    It is written under a hidden name, synchronised, renamed, and the folder synchronised. If the
    block or a step fails, what was there before stays.

    Raises:
        OSError: With the file's name.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}{TEMPORARY}")
    with _naming(path):
        descriptor = os.open(temporary, _FLAGS | os.O_CREAT | os.O_EXCL, 0o666)
        writer = HashingWriter(descriptor)
        try:
            try:
                yield writer
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.replace(temporary, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            if writer.error:
                raise writer.error from None
            raise
        sync_folder(path.parent)


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write a file so that it is whole or not there; see `atomic_file`."""
    with atomic_file(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def append_atomic(path: Path, text: str, expected: int | None = None) -> None:
    """Append to a file, and make sure that it is on the disk; all of the text or nothing.

    Only a kill in the middle of the system's write can leave a part of it.

    Args:
        path: The file; made if missing.
        text: What to append.
        expected: Bytes that the file must have before; None: any.

    Raises:
        OSError: With the file's name.
        ValueError: The file has another size than expected; nothing was written.
    """
    with _naming(path):
        new = not path.exists()
        descriptor = os.open(path, _FLAGS | _NO_LINK | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            size = os.fstat(descriptor).st_size
            if expected not in (None, size):
                raise ValueError(f"{path}: expected the {expected:,} bytes so far, got {size:,}")
            try:
                HashingWriter(descriptor).write(text.encode())
                os.fsync(descriptor)
            except BaseException:
                with suppress(OSError):
                    os.ftruncate(descriptor, size)
                raise
        finally:
            os.close(descriptor)
        if new:
            sync_folder(path.parent)


def make_folder(path: Path) -> None:
    """Make a folder in an existing one, unless it is there.

    A run folder that was removed is not made again: its other files would be missing.
    """
    if not path.is_dir():
        with _naming(path):
            path.mkdir(exist_ok=True)
            sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Put a folder's names on the disk, so that a rename outlives a power cut."""
    if os.name != "posix":
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise
    finally:
        os.close(descriptor)


def is_temporary(path: Path) -> bool:
    """Return whether a path has the name of a file that was not finished."""
    return path.name.startswith(".") and path.name.endswith(TEMPORARY)


def remove_temporaries(folders: Iterable[Path]) -> None:
    """Remove what a kill has left unfinished in some folders, missing ones included."""
    for folder in folders:
        for path in folder.glob(f".*{TEMPORARY}"):
            path.unlink(missing_ok=True)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Let an error of the system name the file that was meant."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error

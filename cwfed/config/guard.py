"""Turns a failure while a run is set up into one line."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from cwfed.config.files import UsageError
from cwfed.messages.shortage import shortage

DEBUG = "CWFED_DEBUG"
"""Environment variable that lets the traceback of a refused command through."""


@contextmanager
def setting_up() -> Iterator[None]:
    """Turn what fails before a run starts into one line; nothing has been written then.

    Components come from configurations and may raise anything. An error of a kind that is not
    meant for users keeps the name of its kind. What the machine has run out of is no mistake and
    passes.
    """
    try:
        yield
    except UsageError:
        raise
    except Exception as error:
        if os.environ.get(DEBUG) or shortage(error):
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

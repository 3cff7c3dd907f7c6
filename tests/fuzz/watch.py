"""What a reader does beside reading: files it writes, processes it starts, time, memory."""

import os
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from .harm import Harm
from .targets import POLITE, Target

MOST_SECONDS = 5.0
MOST_BYTES = 1 << 30
FORBIDDEN = (
    *("os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "subprocess.Popen"),
    *("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.chmod", "os.link", "os.symlink"),
    *("os.truncate", "shutil.", "socket.connect", "socket.bind", "ctypes.dlopen"),
)
_seen: list[str] = []
_watching = False


def check(target: Target, data: bytes) -> None:
    """Let a target read bytes.

    Raises:
        Harm: It failed without a word or otherwise than readers may, took long or much memory,
            wrote a file or started a process.
    """
    target, data = target.chosen(data)
    target.prepare(data)
    before, start = _peak(), time.process_time()
    with nullcontext() if target.whole else _watch():
        try:
            target.read()
        except Harm as harm:
            raise Harm(f"{harm} for {data[:300]!r}") from None
        except POLITE as error:
            if target.whole:
                raise Harm(f"a traceback: {error!r:.300} for {data[:300]!r}") from error
            if not str(error).strip():
                raise Harm(f"an empty message: {error!r} for {data[:300]!r}") from error
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            raise Harm(f"{said[:300]} for {data[:300]!r}") from error
    if _seen and not target.whole:
        raise Harm(f"did more than read: {_seen[:5]} for {data[:300]!r}")
    seconds, grown = time.process_time() - start, _peak() - before
    if seconds > MOST_SECONDS or grown > MOST_BYTES:
        raise Harm(f"took {seconds:.1f} s and {grown >> 20} MiB for {data[:300]!r}")


def _peak() -> int:
    """Return the most bytes this process has held so far."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


@contextmanager
def _watch() -> Iterator[None]:
    global _watching
    _seen.clear()
    bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    _watching = True
    try:
        yield
    finally:
        _watching, sys.dont_write_bytecode = False, bytecode


def _audit(event: str, arguments: tuple) -> None:
    if not _watching:
        return
    if event == "open":
        _, mode, flags = arguments
        writes = set(mode or "") & set("wax+") or (flags or 0) & (os.O_WRONLY | os.O_RDWR)
        if writes:
            _seen.append(f"open {arguments[0]!r}")
    elif event.startswith(FORBIDDEN):
        _seen.append(f"{event} {arguments!r:.80}")


sys.addaudithook(_audit)

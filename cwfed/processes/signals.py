"""Signals that end a process: which they are, and putting them off while something is written."""

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

STOPPING = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1")
    if hasattr(signal, name)
)
"""Signals that end a run: Ctrl-C, a polite end, a closed terminal, a cluster's warning."""


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Put what ends a run off until the end of a block, so that what is written is whole."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {w: h for w, h in handlers(STOPPING).items() if h is not signal.SIG_IGN}
    for which in before:
        signal.signal(which, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        for which, handler in before.items():
            signal.signal(which, handler)
    for number in came[:1]:
        signal.raise_signal(number)


def handlers(signals: Sequence[int]) -> dict[int, Any]:
    """Return the handlers, less those that are not Python's and cannot be put back."""
    found = {which: signal.getsignal(which) for which in signals}
    return {which: handler for which, handler in found.items() if handler is not None}

"""Signals that end a run, put off while something is written."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from cwfed.engines.workers import STOPPING


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Put what ends a run off until the end of a block, so that what is written is whole."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[tuple[int, FrameType | None]] = []
    handlers = {which: signal.getsignal(which) for which in STOPPING}
    # What is ignored, as under nohup, stays so; what is not Python's cannot be put back.
    before = {w: h for w, h in handlers.items() if h not in (signal.SIG_IGN, None)}
    for which in before:
        signal.signal(which, lambda *call: came.append(call))
    try:
        yield
    finally:
        for which, handler in before.items():
            signal.signal(which, handler)
    for number, _ in came[:1]:
        signal.raise_signal(number)

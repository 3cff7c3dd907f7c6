"""Signals end a run as Ctrl-C does, between two things that are written."""

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from types import FrameType

from cwfed.federated.callbacks import LoopCallback
from cwfed.federated.record import RoundRecord
from cwfed.federated.state import FederatedState
from cwfed.processes.signals import STOPPING, handlers

_ECHO = 1.0
"""Seconds in which further signals are part of the first: terminals and clusters send several."""


class Stop(LoopCallback):
    """Lets a signal end a run as Ctrl-C does: at once, but not while something is written.

    A signal raises KeyboardInterrupt, wherever the program is. One that comes a second later or
    more raises it again, so that a person can cut short what the run does at its end, such as
    waiting for an upload.

    Attributes:
        received: The first signal that came, if one did.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._deaf_until = 0.0

    @contextmanager
    def watch(self, signals: Sequence[int] = STOPPING) -> Iterator[None]:
        """Handle signals for a block, in the main thread; elsewhere they do what they did.

        Those that are ignored, as under nohup, and those that the program handles stay so.
        """
        usual = (signal.SIG_DFL, signal.default_int_handler)
        main = threading.current_thread() is threading.main_thread()
        found = handlers(signals) if main else {}
        before = {which: handler for which, handler in found.items() if handler in usual}
        for which in before:
            signal.signal(which, self._handle)
        try:
            yield
        finally:
            for which, handler in before.items():
                signal.signal(which, handler)

    def on_round(self, record: RoundRecord, state: FederatedState) -> None:
        """Raise what was lost: Python drops an exception in a destructor."""
        if self.received:
            raise KeyboardInterrupt

    def settle(self) -> None:
        """Let no further signal disturb what is said at the end."""
        self._deaf_until = float("inf")

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.received = self.received or signal.Signals(number)
        if monotonic() >= self._deaf_until:
            self._deaf_until = monotonic() + _ECHO
            raise KeyboardInterrupt

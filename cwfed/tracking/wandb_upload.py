"""Tells on the terminal if a run reaches the server of Weights & Biases."""

import logging
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import Any

from cwfed.tracking.optional import GoingOn
from cwfed.tracking.wandb_service import end_service

log = logging.getLogger("cwfed")

_SOON = 4.0
"""Seconds after which a person is told what is being waited for."""

_MOST_CHARACTERS = 200


class Upload:
    """Listens in place of the terminal to what W&B says, and waits for the upload at the end.

    W&B repeats every few seconds that it tries again. Here its first word is passed on, and the end
    of the run says what came of it.

    Args:
        online: There is a server.
        patience: Seconds that the end of a run waits for what is not uploaded yet.
        going_on: Hears of every failure of the run.
    """

    def __init__(self, online: bool, patience: float, going_on: GoingOn) -> None:
        self.online = online
        self.patience = patience
        self.going_on = going_on
        self._before: Any = None
        # What W&B says of itself must not use up the one warning of a failure.
        self._spoken = GoingOn("W&B")
        self._lost = self._ending = False
        self._waits: set[str] = set()

    def settings(self) -> Any:
        """Return W&B's settings for a run that is silent and ends in bounded time."""
        import wandb

        settings = wandb.Settings(silent=True, console="off")
        for name, value in (("finish_timeout", self.patience), ("finish_timeout_raises", True)):
            if name in wandb.Settings.model_fields:
                setattr(settings, name, value)
        return settings

    def listen(self) -> None:
        """Hear what W&B would print, until the end."""
        import wandb

        self._before = wandb.setup().settings
        wandb.termsetup(wandb.Settings(silent=True), self)
        # What W&B reports of itself fails as the upload does, and would be printed.
        logging.getLogger("opentelemetry").addHandler(logging.NullHandler())

    def info(self, message: str) -> None:
        """Pass the first word on: W&B speaks up when a request fails, and tries again."""
        if not self._ending:
            words = " ".join(message.split()).removeprefix("wandb: ")[:_MOST_CHARACTERS]
            self._spoken.warn(f"{words}; the run goes on")

    def warning(self, message: str) -> None:
        """Note that something will be missing."""
        self._lost = True
        self.info(message)

    error = warning

    def finish(self, run: Any, exit_code: int) -> bool:
        """End a W&B run; return whether all of it was uploaded, as far as W&B knows.

        Args:
            run: The W&B run.
            exit_code: Other than 0 marks it as failed.
        """
        import wandb

        self._ending = broken = True
        try:
            with self.said_when_slow(self._waiting()), self.going_on():
                with self._noting_lateness():
                    run.finish(exit_code=exit_code)
                broken = False
        finally:
            wandb.termsetup(self._before, None)
            # Ctrl-C ends the wait, also that at the end of the process.
            if broken or self._lost:
                end_service()
        return not (broken or self._lost or self.going_on.failed)

    @contextmanager
    def _noting_lateness(self) -> Iterator[None]:
        try:
            yield
        except TimeoutError:
            self._lost = True

    def _waiting(self) -> str:
        import wandb

        known = "finish_timeout" in wandb.Settings.model_fields
        bound = f", for at most {self.patience:.0f} s" if known else ""
        return f"waiting for what is not uploaded yet{bound}; Ctrl-C ends the wait"

    @contextmanager
    def said_when_slow(self, words: str) -> Iterator[None]:
        """Say what is being waited for while a block takes long, unless that was said before."""
        timer = Timer(_SOON, self._say_once, (words,))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _say_once(self, words: str) -> None:
        if self.online and words not in self._waits:
            log.info("W&B: %s", words)
        self._waits.add(words)


def say_how_to_upload(folders: Sequence[Path]) -> None:
    """Say by which command W&B's folders of a run can be uploaded later."""
    names = " ".join(shlex.quote(str(folder)) for folder in folders)
    # Without the option it passes over folders of runs that were logged online.
    online = [not folder.name.startswith("offline-") for folder in folders]
    command = f"wandb sync {'--include-online ' * any(online)}{names}"
    if all(online):
        log.warning("W&B: not everything was uploaded; do it later with: %s", command)
    else:
        log.info("W&B: written offline; upload it with: %s", command)

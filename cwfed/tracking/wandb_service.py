"""The process that the package ``wandb`` starts beside this one, and how it ends."""

from contextlib import suppress
from threading import Thread
from typing import Any

_PATIENCE = 5.0
"""Seconds in which it can end by itself."""


def end_service() -> None:
    """Let go of W&B's process where its server does not answer, or where it has died.

    It may go on asking for many minutes, and would be waited for when this process ends. One that
    has died would be missed with a traceback. It stays while a run that ``wandb.init`` made the
    current one of this process uses it. One that does not end in time is left to itself.
    """
    import wandb

    if getattr(wandb, "run", None) is not None:
        return
    ending = Thread(target=_tear_down, args=(wandb,), daemon=True)
    ending.start()
    ending.join(_PATIENCE)


def _tear_down(wandb: Any) -> None:
    # SystemExit: with the exit code of the process.
    with suppress(Exception, SystemExit):
        wandb.teardown()

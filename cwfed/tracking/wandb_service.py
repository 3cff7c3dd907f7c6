"""The process that the package ``wandb`` starts beside this one, and how it ends."""

from contextlib import suppress
from threading import Thread
from typing import Any

_PATIENCE = 5.0
"""Seconds in which it can end by itself."""


def end_service() -> None:
    """End W&B's process where its server does not answer, or where it has died.

    It may go on asking for many minutes, and would be waited for when this process ends. One that
    has died would be missed with a traceback. It stays while a run that ``wandb.init`` made the
    current one of this process uses it.
    """
    import wandb

    if getattr(wandb, "run", None) is not None:
        return
    process = _process(wandb)
    ending = Thread(target=_tear_down, args=(wandb,), daemon=True)
    ending.start()
    ending.join(_PATIENCE)
    if ending.is_alive() and process is not None:
        process.kill()
        ending.join(_PATIENCE)


def _tear_down(wandb: Any) -> None:
    # SystemExit: with the exit code of the process.
    with suppress(Exception, SystemExit):
        wandb.teardown()


def _process(wandb: Any) -> Any:
    """Return the process; None where a version of W&B keeps it elsewhere."""
    found = None
    # It may be what did not start.
    with suppress(Exception):
        found = wandb.setup()
    for name in ("_connection", "_proc", "_process"):
        found = getattr(found, name, None)
    return found if hasattr(found, "kill") else None

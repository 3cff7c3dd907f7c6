"""Finds out, before a run begins, if it can be logged to Weights & Biases."""

import os
import sys
from types import ModuleType
from typing import Any

from cwfed.tracking.optional import in_short
from cwfed.tracking.wandb_options import WandbMode, WandbOptions
from cwfed.tracking.wandb_service import end_service

_OFFLINE = "keep the run on this machine with --wandb.mode offline"
_SILENCE = "did not respond in time"
_WITHOUT = "a run goes without it with --wandb.mode disabled"


def check_login(options: WandbOptions) -> WandbMode:
    """Do what `log_in` does, and leave nothing behind that other processes would inherit."""
    try:
        return log_in(options)
    finally:
        # It was not imported where nothing is to be logged, or where it cannot be.
        wandb: Any = sys.modules.get("wandb")
        if hasattr(wandb, "teardown"):
            wandb.teardown()


def log_in(options: WandbOptions, otherwise: str = _OFFLINE) -> WandbMode:
    """Make sure that the run can be logged before anything is written; return how.

    Args:
        options: The mode that is asked for.
        otherwise: What a person without an account can do, for the message.

    Raises:
        ValueError: The package cannot be imported, or W&B is to be used online and cannot be: no
            key, no terminal to ask for one, a key that the server refuses, no network.
    """
    # What is asked for here wins over WANDB_MODE, and that over `wandb offline` and over what an
    # earlier run of this process asked for.
    asked: Any = options.mode or os.environ.get("WANDB_MODE")
    if asked == "disabled":
        return "disabled"
    wandb = _import()
    try:
        chosen = wandb.Settings(mode=asked) if asked else None
        mode = wandb.setup(chosen).settings.mode
        if mode in ("offline", "dryrun"):
            return "offline"
        if mode == "disabled":
            return "disabled"
        # Asks for a key where there is a terminal; False: the person chose not to have an account.
        return "online" if wandb.login(verify=True) else "offline"
    except Exception as error:  # of many kinds, from wrong keys to services that do not start
        why = _explain(error, otherwise)
        end_service()
        raise ValueError(f"wandb: cannot log in: {why}") from error


def _explain(error: Exception, otherwise: str) -> str:
    """Return why a login failed, and what can be done."""
    import wandb

    if _SILENCE in str(error):
        # W&B says this of its own process, which waits for the server.
        url = wandb.setup().settings.base_url
        return f"{url} does not answer; is there a network? Otherwise {otherwise}"
    return f"{in_short(error)}; run `wandb login`, or {otherwise}"


def _import() -> ModuleType:
    try:
        import wandb
    except ImportError as error:
        raise ValueError(
            f"logger: expected wandb to be installed: {in_short(error)}; {_WITHOUT}"
        ) from error
    # Without the package, a folder of that name that runs have left in the current one is found.
    if not hasattr(wandb, "init"):
        folder = next(iter(wandb.__path__))
        raise ValueError(
            f"logger: expected wandb to be installed, found only a folder: {folder}; {_WITHOUT}"
        )
    return wandb

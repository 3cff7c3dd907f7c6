"""Curves for TensorBoard, Weights & Biases or any other Lightning logger."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from lightning.pytorch.loggers import Logger

from cwfed.federated.callbacks import LoopCallback
from cwfed.federated.loop import FederatedLoop
from cwfed.federated.record import RoundRecord
from cwfed.federated.state import FederatedState
from cwfed.records.scalars import flatten
from cwfed.tracking.optional import GoingOn
from cwfed.tracking.wandb_options import WandbOptions

LoggerName = Literal["tensorboard", "wandb"]
LoggerChoice = LoggerName | Logger | list[LoggerName | Logger] | None


def make_reporters(
    choice: LoggerChoice, options: WandbOptions, folder: Path, config: Mapping[str, Any]
) -> list[LoopCallback]:
    """Return what sends the rounds to dashboards; the named ones write into the run folder.

    Args:
        choice: A name, a Lightning logger, a list of them, or None.
        options: What Weights & Biases gets.
        folder: The run folder, which need not be there yet.
        config: The resolved configuration.

    Raises:
        ValueError: A package cannot be imported, W&B cannot be logged in to, or its options are
            given and it is not chosen.
    """
    choices = choice if isinstance(choice, list) else [] if choice is None else [choice]
    if "wandb" not in choices and options != WandbOptions():
        raise ValueError("wandb: expected --logger wandb beside its options, got no such logger")
    loggers: list[Logger] = []
    reporters: list[LoopCallback] = []
    for one in choices:
        if one == "tensorboard":
            loggers.append(_tensorboard(folder))
        elif one == "wandb":
            reporters += _wandb(options, folder, config)
        else:
            loggers.append(one)
    return [RoundLogger(loggers, config), *reporters]


def _tensorboard(folder: Path) -> Logger:
    from lightning.pytorch.loggers import TensorBoardLogger

    try:
        return TensorBoardLogger(str(folder), "", "tensorboard", default_hp_metric=False)
    except ModuleNotFoundError as error:
        raise ValueError(f"logger: expected tensorboard to be installed: {error}") from error


def _wandb(options: WandbOptions, folder: Path, config: Mapping[str, Any]) -> list[LoopCallback]:
    from cwfed.tracking.wandb_login import log_in

    mode = log_in(options)
    if mode == "disabled":
        return []
    from cwfed.tracking.wandb_logger import WandbReporter

    return [WandbReporter(folder, options, config, mode)]


class RoundLogger(LoopCallback):
    """Sends every round's figures to Lightning loggers; a failure of one never stops the run.

    Args:
        loggers: Lightning loggers.
        config: The resolved configuration, logged as hyperparameters.
    """

    def __init__(self, loggers: Sequence[Logger], config: Mapping[str, Any]) -> None:
        self.loggers = [(logger, GoingOn(type(logger).__name__)) for logger in loggers]
        self.config = config

    def on_start(self, loop: FederatedLoop, state: FederatedState) -> None:
        """Log the configuration."""
        for logger, going_on in self.loggers:
            with going_on():
                logger.log_hyperparams(dict(self.config))

    def on_round(self, record: RoundRecord, state: FederatedState) -> None:
        """Log the round's figures with the round as the step."""
        figures = flatten(record.to_line())
        for logger, going_on in self.loggers:
            with going_on():
                logger.log_metrics(figures, step=record.round)

    def on_end(self, state: FederatedState) -> None:
        """Close the loggers."""
        for logger, going_on in self.loggers:
            with going_on():
                logger.finalize("success")

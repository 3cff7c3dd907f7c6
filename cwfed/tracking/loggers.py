"""Curves for TensorBoard, Weights & Biases or any other Lightning logger."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from lightning.pytorch.loggers import Logger

from cwfed.federated.callbacks import LoopCallback
from cwfed.federated.loop import FederatedLoop
from cwfed.federated.record import RoundRecord
from cwfed.federated.state import FederatedState
from cwfed.messages.checks import require_at_least
from cwfed.records.scalars import flatten
from cwfed.tracking.optional import GoingOn

LoggerName = Literal["tensorboard", "wandb"]
LoggerChoice = LoggerName | Logger | list[LoggerName | Logger] | None
WandbMode = Literal["online", "offline", "disabled"]

_MOST_CHARACTERS = 128
_NOT_IN_PROJECTS = "/\\#?%:"


@dataclass
class WandbOptions:
    """What ``--logger wandb`` sends to Weights & Biases, and where.

    Attributes:
        project: The project.
        entity: The user or team that it belongs to; null takes the account's default.
        group: Runs that are compared; null takes the data set and the partition.
        job_type: Kind of the run; null takes the method's name.
        name: Name of the run; null takes the run folder's.
        tags: Tags, beside one for the seed.
        mode: online needs an account; offline writes into the run folder, to be uploaded later
            with ``wandb sync``; disabled logs nothing. null takes the environment variable
            WANDB_MODE, else online.
        heatmaps: Rounds between heat maps; round 0 and the last always have them. null spreads
            about 20 over the run, 0 draws none.
        models: Upload the models that the clients received in the best and in the last round; they
            are kept in the run folder, too.
    """

    project: str = "cwfed"
    entity: str | None = None
    group: str | None = None
    job_type: str | None = None
    name: str | None = None
    tags: list[str] = field(default_factory=list)
    mode: WandbMode | None = None
    heatmaps: int | None = None
    models: bool = False

    def __post_init__(self) -> None:
        """Check what W&B would refuse after the run has begun."""
        if not self.project or set(self.project) & set(_NOT_IN_PROJECTS):
            raise ValueError(
                f"wandb.project: expected a name without any of {_NOT_IN_PROJECTS}, "
                f"got {self.project!r}"
            )
        for name in ("project", "group", "job_type", "name"):
            value = getattr(self, name)
            if value is not None and len(value) > _MOST_CHARACTERS:
                raise ValueError(
                    f"wandb.{name}: expected at most {_MOST_CHARACTERS} characters, "
                    f"got {len(value)}"
                )
        for tag in self.tags:
            if not 1 <= len(tag) <= 64:
                raise ValueError(f"wandb.tags: expected 1 to 64 characters each, got {tag!r}")
        if self.heatmaps is not None:
            require_at_least("wandb.heatmaps", self.heatmaps, 0)


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

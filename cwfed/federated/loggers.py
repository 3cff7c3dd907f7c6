"""Curves for TensorBoard, Weights & Biases or any other Lightning logger."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from lightning.pytorch.loggers import Logger

from cwfed.federated.callbacks import LoopCallback
from cwfed.federated.loop import FederatedLoop
from cwfed.federated.state import FederatedState
from cwfed.results import METRICS, RoundRecord

LoggerChoice = Literal["tensorboard", "wandb"] | Logger | list[Logger] | None


def make_loggers(choice: LoggerChoice, run_dir: Path, name: str) -> list[Logger]:
    """Return Lightning loggers; the named ones write into the run folder.

    Args:
        choice: A name, a logger, a list of loggers, or None.
        run_dir: The run folder.
        name: Name of the run on dashboards.

    Raises:
        ValueError: The logger's package cannot be imported.
    """
    if choice is None:
        return []
    if isinstance(choice, Logger):
        return [choice]
    if isinstance(choice, list):
        return choice
    try:
        if choice == "tensorboard":
            from lightning.pytorch.loggers import TensorBoardLogger

            return [
                TensorBoardLogger(
                    str(run_dir), name="", version="tensorboard", default_hp_metric=False
                )
            ]
        from lightning.pytorch.loggers import WandbLogger

        return [WandbLogger(name=name, save_dir=str(run_dir), project="cwfed")]
    except ModuleNotFoundError as error:
        raise ValueError(f"logger: expected {choice}'s package to be installed: {error}") from error


class RoundLogger(LoopCallback):
    """Sends every round's figures to Lightning loggers.

    Args:
        loggers: Lightning loggers.
        config: The resolved configuration, logged as hyperparameters.
    """

    def __init__(self, loggers: Sequence[Logger], config: Mapping[str, Any]) -> None:
        self.loggers = loggers
        self.config = config

    def on_start(self, loop: FederatedLoop, state: FederatedState) -> None:
        """Log the configuration."""
        for logger in self.loggers:
            logger.log_hyperparams(dict(self.config))

    def on_round(self, record: RoundRecord, state: FederatedState) -> None:
        """Log the round's figures with the round as the step."""
        figures = flatten(record.to_line())
        for logger in self.loggers:
            logger.log_metrics(figures, step=record.round)

    def on_end(self, state: FederatedState) -> None:
        """Close the loggers."""
        for logger in self.loggers:
            logger.finalize("success")


def flatten(line: Mapping[str, Any]) -> dict[str, float]:
    """Return a round's scalar figures by name, such as ``received/accuracy``."""
    figures = {name: line[name] for name in ("train_loss", "mean_R")}
    figures["excluded"] = float(len(line.get("excluded", ())))
    for metric in METRICS:
        for name in ("accuracy", "loss", "val_accuracy"):
            figures[f"{metric}/{name}"] = (line[metric] or {}).get(name)
        for name, value in ((line[metric] or {}).get("fairness") or {}).items():
            figures[f"{metric}/fairness_{name}"] = value
    figures |= {f"method/{name}": value for name, value in line["method"].items()}
    figures |= {f"bytes/{way}": float(sum(values)) for way, values in line["bytes"].items()}
    figures |= {f"seconds/{phase}": value for phase, value in line["seconds"].items()}
    return {name: value for name, value in figures.items() if value is not None}

"""Groups of options of an experiment, as they stand in its configuration."""

from dataclasses import dataclass, field

import torch

from cwfed.aggregators.base import Aggregator
from cwfed.clients.module import OptimizerFactory
from cwfed.clients.phase import TrainingPhase, check_phases
from cwfed.engines.sequential import Precision
from cwfed.models.heads import Head
from cwfed.objectives.base import ObjectiveTerm

MOST_THREADS = 1024


def check_at_least(name: str, value: object, least: float) -> None:
    """Raise a ValueError that names the option unless it is a number >= `least`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= least:
        raise ValueError(f"{name}: expected a number >= {least:g}, got {value}")
    if isinstance(value, int) and value >= 2**63:
        raise ValueError(f"{name}: expected a number below 2**63, got {value}")


@dataclass
class Algorithm:
    """The method.

    Attributes:
        name: Name of the method in results and tables.
        aggregator: The server side.
        objectives: Terms that local training adds to cross-entropy.
        phases: Phases of local training; null is one that trains everything.
        head: What the model's output layer is replaced by; null leaves it.
    """

    name: str
    aggregator: Aggregator
    objectives: list[ObjectiveTerm] = field(default_factory=list)
    phases: list[TrainingPhase] | None = None
    head: Head | None = None

    def __post_init__(self) -> None:
        """Check that the phases fit together."""
        check_phases(self.training_phases())

    def training_phases(self) -> list[TrainingPhase]:
        """Return the phases of local training."""
        return [TrainingPhase()] if self.phases is None else self.phases


@dataclass
class LocalTraining:
    """Local training of a client.

    Attributes:
        batch_size: Samples of a batch.
        local_epochs: Passes over the client's training part in a round.
        optimizer: Made afresh for every local training.
    """

    batch_size: int = 10
    local_epochs: int = 1
    optimizer: OptimizerFactory = lambda params: torch.optim.SGD(params, lr=0.005)

    def __post_init__(self) -> None:
        """Check ranges."""
        check_at_least("client.batch_size", self.batch_size, 1)
        check_at_least("client.local_epochs", self.local_epochs, 1)


@dataclass
class TrainerOptions:
    """Where and how the numbers are computed.

    Attributes:
        accelerator: Lightning's accelerator: auto, cpu, cuda or mps.
        precision: Lightning's precision.
        threads: CPU threads. One by default: the same bits on any number of cores, runs side by
            side do not stall each other, and small batches gain little from more.
        eval_batch_size: Samples of an evaluation batch.
    """

    accelerator: str = "auto"
    precision: Precision = "32-true"
    threads: int = 1
    eval_batch_size: int = 500

    def __post_init__(self) -> None:
        """Check ranges."""
        check_at_least("trainer.threads", self.threads, 1)
        if self.threads > MOST_THREADS:
            raise ValueError(
                f"trainer.threads: expected at most {MOST_THREADS}, got {self.threads}"
            )
        check_at_least("trainer.eval_batch_size", self.eval_batch_size, 1)


@dataclass
class CheckpointOptions:
    """When the run can be resumed from.

    Attributes:
        every: Rounds between checkpoints; the last round always has one.
        keep: How many of the newest checkpoints stay on the disk.
    """

    every: int = 1
    keep: int = 2

    def __post_init__(self) -> None:
        """Check ranges."""
        check_at_least("checkpoint.every", self.every, 1)
        check_at_least("checkpoint.keep", self.keep, 1)


@dataclass
class ReleasedCode:
    """Behaviour of the paper's released code that changes numbers; all off by default.

    Attributes:
        half_lambda: Multiply λ by 0.5.
        test_labels_in_p: Take p_i and the true class distribution from the labels of the training
            and the test part together.
        skip_small_clients: Never train a client that has fewer samples than a batch.
    """

    half_lambda: bool = False
    test_labels_in_p: bool = False
    skip_small_clients: bool = False

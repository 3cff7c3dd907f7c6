"""Groups of options of an experiment, as they stand in its configuration."""

from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Literal

import torch

from cwfed.aggregators.base import Aggregator
from cwfed.clients.module import OptimizerFactory
from cwfed.clients.phase import TrainingPhase, check_phases
from cwfed.messages.checks import require_at_least
from cwfed.messages.texts import require_name
from cwfed.models.heads import Head
from cwfed.objectives.base import ObjectiveTerm


@dataclass
class Algorithm:
    """The method.

    Attributes:
        name: Name of the method in results, tables and folders: at most 100 bytes, no slashes.
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
        """Check the name, and that the phases fit together."""
        require_name("algorithm.name", self.name)
        check_phases(self.training_phases())

    def training_phases(self) -> list[TrainingPhase]:
        """Return the phases of local training."""
        return [TrainingPhase()] if self.phases is None else self.phases

    def phases_of(self, client: "LocalTraining") -> list[TrainingPhase]:
        """Return the phases of local training with ``client.head_epochs`` filled in.

        Raises:
            ValueError: It is given, and no phase trains the output layer alone.
        """
        phases, epochs = self.training_phases(), client.head_epochs
        if epochs is None:
            return phases
        if all(phase.trainable != "head" for phase in phases):
            raise ValueError(
                "client.head_epochs: expected null with a method that never trains the output "
                f"layer alone, as {self.name}, got {epochs}"
            )
        return [replace(p, epochs=epochs) if p.trainable == "head" else p for p in phases]


@dataclass
class LocalTraining:
    """Local training of a client.

    Attributes:
        batch_size: Samples of a batch.
        local_epochs: Passes over the client's training part in a round.
        optimizer: Made afresh for every local training.
        head_epochs: Passes in which the output layer alone is trained, for methods that do so
            (FedRep); null takes the method's own number.
    """

    batch_size: int = 10
    local_epochs: int = 1
    optimizer: OptimizerFactory = lambda params: torch.optim.SGD(params, lr=0.005)
    head_epochs: int | None = None

    def __post_init__(self) -> None:
        """Check ranges."""
        require_at_least("client.batch_size", self.batch_size, 1)
        require_at_least("client.local_epochs", self.local_epochs, 1)
        if self.head_epochs is not None:
            require_at_least("client.head_epochs", self.head_epochs, 1)


@dataclass
class CheckpointOptions:
    """When the run can be resumed from.

    Attributes:
        every: Rounds between checkpoints; the last round always has one, and so has the last
            finished one where a run is stopped. Above 1, that costs the memory of a second state.
        keep: How many of the newest checkpoints stay on the disk.
    """

    every: int = 1
    keep: int = 2

    def __post_init__(self) -> None:
        """Check ranges."""
        require_at_least("checkpoint.every", self.every, 1)
        require_at_least("checkpoint.keep", self.keep, 1)


@dataclass
class SnapshotOptions:
    """Arrays that are kept for a run's plots: norms of the output layers, who learned from whom.

    Attributes:
        every: Rounds between snapshots; round 0 and the last always have one. null spreads about 50
            over the run, 0 keeps none.
    """

    every: int | None = None

    def __post_init__(self) -> None:
        """Check ranges."""
        if self.every is not None:
            require_at_least("snapshots.every", self.every, 0)


@dataclass
class FaultOptions:
    """Clients that fail: what is done about them, and which failures are simulated.

    A client that is left out of a round counts as one that did not take part, except that it
    downloaded a model.

    Attributes:
        policy: What is done where a client's training ends in numbers that are not finite: exclude
            leaves the client out of the round, stop ends the run. May change when a run is resumed.
        dropout: Probability that a participant is lost before it can upload, in [0, 1).
        deadline: How long the server waits, in units of the median client's time; later
            participants are left out. null waits for everybody.
        speed_sigma: Spread of the clients' seconds a step, drawn once for each: sigma of a
            log-normal distribution.
        jitter_sigma: The same for a factor that is drawn in every round.
    """

    policy: Literal["exclude", "stop"] = "exclude"
    dropout: float = 0.0
    deadline: float | None = None
    speed_sigma: float = 0.5
    jitter_sigma: float = 0.0

    def __post_init__(self) -> None:
        """Check ranges."""
        if self.policy not in ("exclude", "stop"):
            raise ValueError(f"faults.policy: expected exclude or stop, got {self.policy!r}")
        require_at_least("faults.dropout", self.dropout, 0)
        if not self.dropout < 1:
            raise ValueError(f"faults.dropout: expected a number in [0, 1), got {self.dropout}")
        for name in ("speed_sigma", "jitter_sigma", "deadline"):
            value = getattr(self, name)
            if name == "deadline" and value is None:
                continue
            require_at_least(f"faults.{name}", value, 0)
            if not isfinite(value) or (name == "deadline" and value == 0):
                wanted = "> 0" if name == "deadline" else ">= 0"
                raise ValueError(f"faults.{name}: expected a finite number {wanted}, got {value}")


@dataclass
class FiguresOptions:
    """Figures drawn during training into the run folder.

    Attributes:
        every: Rounds between heat maps of the output layers (round 0 and the last have one too);
            0 draws none.
    """

    every: int = 0

    def __post_init__(self) -> None:
        """Check ranges."""
        require_at_least("figures.every", self.every, 0)


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

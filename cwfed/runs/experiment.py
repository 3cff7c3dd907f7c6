"""An experiment: data, partition, model and method put together into a federated loop.

Legend: M clients, K classes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path

import torch
from torch import nn

from cwfed.clients.module import OptimizerFactory
from cwfed.clients.phase import TrainingPhase
from cwfed.contract.inspection import (
    ModelFactory,
    build_model,
    check_output,
    check_training,
    describe_model,
)
from cwfed.contract.spec import ModelSpec
from cwfed.data.federated import FederatedData
from cwfed.data.images import ImageData
from cwfed.data.manifest import make_manifest
from cwfed.data.partitioners import Partitioner
from cwfed.data.sources.base import Source
from cwfed.engines.options import TrainerOptions
from cwfed.engines.selection import settle_device
from cwfed.engines.sequential import seeded
from cwfed.federated.options import (
    Algorithm,
    CheckpointOptions,
    FaultOptions,
    FiguresOptions,
    LocalTraining,
    ReleasedCode,
    SnapshotOptions,
)
from cwfed.federated.sampler import UniformSampler
from cwfed.functional.seeding import derive_seed
from cwfed.messages.checks import require_at_least
from cwfed.objectives import WDR, CrossEntropy, Objective, ObjectiveTerm
from cwfed.records.manifest import Manifest
from cwfed.records.regulariser import trained_weight
from cwfed.runs.prepared import PreparedRun


@dataclass
class Experiment:
    """Everything that decides a run's numbers.

    Attributes:
        data: Where the images come from.
        partition: How they are divided among the clients.
        model: Class or function that makes the network.
        algorithm: The method.
        seed: Every random choice is a function of it.
        rounds: Number of federated rounds.
        participation: Fraction of the clients that train in a round, in (0, 1].
        evaluate_every: Rounds between evaluations; the last round always has one, round 0 too.
            A client's score after local training is then taken at the next evaluation.
        val_fraction: Fraction of each client's training part set apart for validation.
        wdr_lambda: λ of the weight distribution regulariser for this data set; methods that use
            the regulariser without a weight of their own take it.
        head: Dotted name of the model's output layer; null takes the model's ``head_name``.
        client: Local training.
        trainer: Where and how the numbers are computed.
        checkpoint: When the run can be resumed from.
        snapshots: What is kept for the figures.
        faults: Clients that fail.
        figures: Figures drawn during training.
        released_code: Behaviour of the released code that changes numbers.

    Made from these: ``phases``, the phases of local training with their objectives, λ filled in.
    """

    data: Source
    partition: Partitioner
    model: ModelFactory
    algorithm: Algorithm
    seed: int = 0
    rounds: int = 1000
    participation: float = 1.0
    evaluate_every: int = 1
    val_fraction: float = 0.0
    wdr_lambda: float | None = None
    head: str | None = None
    client: LocalTraining = field(default_factory=LocalTraining)
    trainer: TrainerOptions = field(default_factory=TrainerOptions)
    checkpoint: CheckpointOptions = field(default_factory=CheckpointOptions)
    snapshots: SnapshotOptions = field(default_factory=SnapshotOptions)
    faults: FaultOptions = field(default_factory=FaultOptions)
    figures: FiguresOptions = field(default_factory=FiguresOptions)
    released_code: ReleasedCode = field(default_factory=ReleasedCode)

    def __post_init__(self) -> None:
        """Check ranges."""
        require_at_least("rounds", self.rounds, 0)
        require_at_least("evaluate_every", self.evaluate_every, 1)
        require_at_least("seed", self.seed, 0)
        if self.wdr_lambda is not None:
            require_at_least("wdr_lambda", self.wdr_lambda, 0)
        require_at_least("val_fraction", self.val_fraction, 0)
        require_at_least("participation", self.participation, 0)
        if not self.val_fraction < 1:
            raise ValueError(f"val_fraction: expected a number in [0, 1), got {self.val_fraction}")
        UniformSampler(self.partition.num_clients, self.participation, self.seed)
        self.phases = self._make_phases()
        reason = self.algorithm.aggregator.needs_everyone
        if reason and self.participation < 1:
            raise ValueError(
                f"participation: expected 1 with {self.algorithm.name}, since {reason}; "
                f"got {self.participation}"
            )
        check_optimizer(self.client.optimizer)

    def _make_phases(self) -> list[tuple[TrainingPhase, Objective]]:
        """Return the phases of local training and their objectives, λ filled in.

        A phase's objective is cross-entropy plus its own terms, or else the method's.
        """
        phases = []
        for phase in self.algorithm.phases_of(self.client):
            terms = self.algorithm.objectives if phase.objectives is None else phase.objectives
            if any(isinstance(term, CrossEntropy) for term in terms):
                raise ValueError(
                    "algorithm.objectives: expected terms beside cross-entropy, which is always "
                    "there, got CrossEntropy"
                )
            phases.append((phase, Objective([CrossEntropy(), *map(self._weighted, terms)])))
        return phases

    def divide(self, data_dir: Path | None = None) -> tuple[ImageData, Manifest]:
        """Load the data set and divide it among the clients."""
        with blaming("data"):
            images = self.data.load(data_dir)
        with blaming("partition"):
            manifest = make_manifest(
                images, self.partition, seed=self.seed, val_fraction=self.val_fraction
            )
        return images, manifest

    def prepare(self, data_dir: Path | None = None) -> PreparedRun:
        """Load, divide, build the model and check that everything fits together.

        Raises:
            ValueError: Something does not fit; the message names the field.
        """
        trainer = settle_device(self.trainer)
        assert trainer.eval_batch_size is not None
        images, manifest = self.divide(data_dir)
        dtype = torch.float64 if self.trainer.precision == "64-true" else torch.float32
        data = FederatedData(
            images,
            manifest,
            self.seed,
            self.client.batch_size,
            self.client.local_epochs,
            trainer.eval_batch_size,
            self.released_code.skip_small_clients,
            dtype,
            self.algorithm.aggregator.holdout_fraction,
        )
        model, contract = self.initialise(images, "initialisation", dtype)
        held = [len(data.indices(i, "train")) for i in range(data.num_clients)]
        least = data.batch_size if data.skip_small else 1
        sizes = {min(size, data.batch_size) for size in held if size >= least}
        self.check_phases(contract)
        with seeded(derive_seed(self.seed, "check")):
            check_training(
                model,
                images.input_shape,
                images.num_classes,
                sorted(sizes),
                images.served_dtype(dtype),
            )
        return PreparedRun(self, data, model, contract, trainer).settled()

    def check_phases(self, contract: ModelSpec) -> None:
        """Check that every phase trains something, and WDR a head that it can act on.

        Raises:
            ValueError: One does not.
        """
        for number, (phase, objective) in enumerate(self.phases):
            if not phase.names(contract):
                raise ValueError(
                    f"algorithm.phases: expected phase {number} to train something, got "
                    f"trainable: {phase.trainable} with a model in which that is frozen"
                )
            uses_wdr = any(isinstance(term, WDR) and term.weight for term in objective.terms)
            if uses_wdr:
                head = frozenset({contract.head_weight})
                contract.require_trained(head, "WDR acts on its weight")

    def initialise(
        self, images: ImageData, purpose: str, dtype: torch.dtype
    ) -> tuple[nn.Module, ModelSpec]:
        """Return a fresh network, a function of the seed and a purpose, and its names."""
        with seeded(derive_seed(self.seed, purpose)):
            model = build_model(self.model, images.input_shape, images.num_classes).to(dtype)
            check_output(model, images.input_shape, images.num_classes, images.served_dtype(dtype))
            contract = describe_model(model, images.num_classes, self.head)
            if self.algorithm.head:
                self.algorithm.head.install(model, contract)
                contract = describe_model(model, images.num_classes, contract.head)
        return model, contract

    def _weighted(self, term: ObjectiveTerm) -> ObjectiveTerm:
        if not isinstance(term, WDR):
            return term
        halved = self.released_code.half_lambda
        weight = trained_weight(term.weight, self.wdr_lambda, halved=halved)
        if weight is None:
            raise ValueError(
                f"wdr_lambda: expected a number >= 0, since {self.algorithm.name} uses the weight "
                f"distribution regulariser, got null"
            )
        weighted = copy(term)
        weighted.weight = weight
        return weighted


def check_optimizer(factory: OptimizerFactory) -> None:
    """Try an optimiser on one parameter.

    Raises:
        ValueError: It refuses its arguments or a dense gradient, or a hyperparameter is not finite.
    """
    parameter = nn.Parameter(torch.zeros(1))
    parameter.grad = torch.zeros(1)
    try:
        optimizer = factory([parameter])
        optimizer.step(lambda: 0.0)
    except Exception as error:  # every optimiser has its own ways to refuse
        raise ValueError(f"client.optimizer: {error}") from error
    for name, value in optimizer.param_groups[0].items():
        if isinstance(value, float) and not isfinite(value):
            raise ValueError(f"client.optimizer.{name}: expected a finite number, got {value}")


@contextmanager
def blaming(field_name: str) -> Iterator[None]:
    """Name the option whose component raises a ValueError or OSError in a block."""
    try:
        yield
    except (ValueError, OSError) as error:
        raise ValueError(f"{field_name}: {error}") from error

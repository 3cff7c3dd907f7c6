"""Phases of a client's local training.

Most methods train once: from what the client received, everything, into the upload. Others train
a personal model beside it, or the output layer and the rest in turn. A phase says from which model
it starts, what it trains, with which terms, and where the result goes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from cwfed.contract.spec import ModelSpec
from cwfed.messages.checks import require_integer
from cwfed.objectives.base import ObjectiveTerm

Source = Literal["received", "upload", "personal"]
Target = Literal["upload", "personal"]


@dataclass
class TrainingPhase:
    """One phase of local training.

    All modules are in training mode in every phase: BatchNorm's statistics follow the batches also
    where the weights are fixed, as in the released code of FedRep.

    Attributes:
        source: Model to start from: what the client received (after its own choice or mix), its
            upload as of the phase before, or its personal model.
        target: Where the result goes: the upload, or the client's personal model.
        trainable: What is trained: everything, the output layer (head), or all but it (base).
        objectives: Terms added to cross-entropy; null takes the method's.
        epochs: Passes over the training part; null takes the run's ``client.local_epochs``. Where
            the output layer alone is trained, ``client.head_epochs`` comes first if it is given.
        plan: Number of the batch plan. Phases with the same number see the same batches.
    """

    source: Source = "received"
    target: Target = "upload"
    trainable: Literal["all", "head", "base"] = "all"
    objectives: list[ObjectiveTerm] | None = None
    epochs: int | None = None
    plan: int = 0

    def __post_init__(self) -> None:
        """Check ranges."""
        if self.epochs is not None:
            require_integer("phases.epochs", self.epochs, 1)
        require_integer("phases.plan", self.plan)

    def names(self, contract: ModelSpec) -> tuple[str, ...]:
        """Return the names of the parameters that the phase trains."""
        head = contract.head_names()
        if self.trainable == "all":
            return contract.parameters
        return tuple(n for n in contract.parameters if (n in head) == (self.trainable == "head"))


def check_phases(phases: Sequence[TrainingPhase]) -> None:
    """Check that phases fit together: one of them, and first, must make the upload.

    Raises:
        ValueError: There is none, or a phase starts from a personal model that none trains.
    """
    if not phases or phases[0].target != "upload" or phases[0].source != "received":
        raise ValueError(
            "algorithm.phases: expected a first phase that makes the upload from the received "
            f"model, got {phases[:1]}"
        )
    if keeps_personal(phases) and not makes_personal(phases):
        raise ValueError(
            "algorithm.phases: expected a phase with target personal, since one has it as source"
        )


def keeps_personal(phases: Sequence[TrainingPhase]) -> bool:
    """Return whether clients carry a personal model from round to round.

    They do if a phase starts from it before any has made it anew.
    """
    for phase in phases:
        if phase.source == "personal":
            return True
        if phase.target == "personal":
            return False
    return False


def makes_personal(phases: Sequence[TrainingPhase]) -> bool:
    """Return whether a phase trains a model beside the upload."""
    return any(phase.target == "personal" for phase in phases)

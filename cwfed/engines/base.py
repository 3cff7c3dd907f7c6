"""The contract of engines: how a cohort of clients is trained and scored.

Legend: m clients of a cohort, K classes, F features.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor, nn

from cwfed.clients.module import ClientModule, OptimizerFactory
from cwfed.clients.phase import TrainingPhase
from cwfed.contract.spec import ModelSpec
from cwfed.data.federated import FederatedData, Part
from cwfed.functional.stacking import Bank
from cwfed.objectives.base import ClientContext, Objective

EngineName = Literal["sequential", "parallel", "vectorized"]
Kernel = Literal["grouped", "unfold", "streams"]
MemoryFormat = Literal["contiguous", "channels_last"]
Precision = Literal["32-true", "64-true", "16-mixed", "bf16-mixed"]
MatmulPrecision = Literal["highest", "high", "medium"]

MEMORY_FORMATS: dict[MemoryFormat, torch.memory_format] = {
    "contiguous": torch.contiguous_format,
    "channels_last": torch.channels_last,
}


@dataclass(frozen=True)
class Workload:
    """Local training, whoever carries it out.

    Attributes:
        model: A network in its initial state; engines may use it as a workspace.
        contract: Its names.
        contexts: What the terms may know of each client, by client id.
        optimizer: Called with the parameters at the start of every local training.
        data: The clients' data.
        memory_format: Layout in which the model sees weights and images of convolutions. It
            changes the last bits, not the meaning.
    """

    model: nn.Module
    contract: ModelSpec
    contexts: Sequence[ClientContext]
    optimizer: OptimizerFactory
    data: FederatedData
    memory_format: MemoryFormat = "contiguous"


@dataclass(frozen=True)
class Fitted:
    """Outcome of a cohort's local training.

    Attributes:
        models: Trained parameters and buffers, ``[m, ...]`` by name, on the CPU.
        losses: Mean local objective over each client's steps; NaN for a client without steps.
    """

    models: Bank
    losses: Sequence[float]


class Engine(ABC):
    """Trains and scores cohorts; every engine gives the same numbers."""

    @abstractmethod
    def fit(
        self,
        round_: int,
        clients: Sequence[int],
        start: Bank,
        anchors: Bank,
        phase: TrainingPhase,
        objective: Objective,
    ) -> Fitted:
        """Train each client for one phase of a round, from its own row.

        Args:
            round_: Round number, which selects the batches.
            clients: Ids, ascending.
            start: Their models, ``[m, ...]`` by name; row i is that of ``clients[i]``. They may be
                views of what the server keeps: an engine does not write into them.
            anchors: What proximal terms pull towards, as `start`; the same object where that is
                what training starts from. Taken client by client, by `stacking.row`, they need no
                further memory.
            phase: What is trained and for how long.
            objective: The local objective of the phase.

        Returns:
            Models and losses in the order of `clients`, in memory of their own.
        """

    @abstractmethod
    def evaluate(self, clients: Sequence[int], models: Bank, part: Part) -> Tensor:
        """Score each client's own row on one part of its data.

        Args:
            clients: Ids, ascending.
            models: Their models, ``[m, ...]`` by name; row i is that of ``clients[i]``.
            part: Which part of the data.

        Returns:
            float64 ``[m, 3]``: correct predictions, samples, summed cross-entropy.
        """

    @abstractmethod
    def class_means(self, clients: Sequence[int], models: Bank) -> tuple[Tensor, Tensor]:
        """Return each client's mean unit-length feature by class, over its training part.

        Arguments as for `evaluate`; returns means ``[m, K, F]`` and counts int64 ``[m, K]``.
        """

    def close(self) -> None:  # noqa: B027
        """Let go of processes and device memory; the engine can be used again afterwards."""


class EngineFactory(Protocol):
    """Makes an engine: a class whose constructor has `workload`, and the others that it needs.

    What a run has settled under ``trainer`` arrives by these names, the memory format within the
    workload. Arguments of other names are the engine's own, from its ``init_args``.
    """

    def __call__(
        self,
        workload: Workload,
        accelerator: str,
        precision: Precision,
        matmul_precision: MatmulPrecision,
        workers: int,
        threads: int,
        chunk: int | None,
        kernel: Kernel,
        client: type[ClientModule],
    ) -> Engine:
        """Return the engine."""

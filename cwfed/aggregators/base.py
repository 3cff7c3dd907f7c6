"""The contract of the server side.

An aggregator turns the bank of last uploads into the models that the clients start the next round
with. It is mostly a mixing matrix for each group of tensors; the matrices are pure functions in
`cwfed.functional`, applied in one place here. Aggregators hold hyperparameters only: what evolves
is a state that the loop owns and the checkpoint saves.

Legend: M clients, K classes.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from cwfed.functional.aggregation import mix
from cwfed.functional.contract import ModelContract
from cwfed.functional.stacking import Bank

ServerState = Mapping[str, Tensor]


@dataclass(frozen=True)
class ServerContext:
    """What the server knows from the start.

    Attributes:
        num_samples_M: Training samples n_i of every client, int64 ``[M]``.
        label_counts_MK: Label counts n_ij, int64 ``[M, K]``; read only by methods whose clients
            send them.
        model: The model's names.
    """

    num_samples_M: Tensor
    label_counts_MK: Tensor
    model: ModelContract

    @property
    def num_clients(self) -> int:
        """Return M."""
        return len(self.num_samples_M)


class Aggregator(ABC):
    """Server side of a method.

    Args:
        aggregate_buffers: Whether floating-point buffers (BatchNorm statistics) are aggregated
            with the weights of the block they stand in, and integer counters take the maximum
            over the participants. False leaves every client its own, as the released code does.
    """

    def __init__(self, aggregate_buffers: bool = True) -> None:
        self.aggregate_buffers = aggregate_buffers

    def init_state(self, server: ServerContext) -> ServerState:
        """Return the state before the first round; tensors by name."""
        return {}

    def validate(self, server: ServerContext) -> None:  # noqa: B027
        """Raise a ValueError where the hyperparameters do not fit the model or the clients."""

    @abstractmethod
    def mixing(
        self, uploads: Bank, participants: Tensor, state: ServerState, server: ServerContext
    ) -> tuple[Mapping[str, Tensor], ServerState]:
        """Return the mixing matrix of every parameter and floating-point buffer, and the state.

        Args:
            uploads: The last upload of every client, ``[M, ...]`` by name; the common
                initialisation where a client has not uploaded yet.
            participants: Ids of the clients whose uploads are of this round, int64, ascending,
                at least one.
            state: The state as of the last round; not to be changed.
            server: What the server knows.

        Returns:
            Matrices ``[M, M]`` in float64 by tensor name, and the new state.
        """

    def aggregate(
        self, uploads: Bank, participants: Tensor, state: ServerState, server: ServerContext
    ) -> tuple[dict[str, Tensor], ServerState]:
        """Return the models ``[M, ...]`` with which the clients start the next round.

        Arguments as for `mixing`. Every client gets a model, participant or not.
        """
        matrices, state = self.mixing(uploads, participants, state, server)
        models = dict(uploads)
        names = [*server.model.parameters]
        if self.aggregate_buffers:
            names += server.model.float_buffers
            for name in server.model.counters:
                top = uploads[name][participants].amax(0)
                models[name] = top.expand(uploads[name].shape)
        for name in names:
            models[name] = mix(matrices[name], uploads[name])
        return models, state


def same_for_all(weights_M: Tensor) -> Tensor:
    """Return the mixing matrix ``[M, M]`` that gives every client the same average."""
    return weights_M.expand(len(weights_M), -1)


def one_matrix(matrix_MM: Tensor, server: ServerContext) -> dict[str, Tensor]:
    """Return one mixing matrix for all parameters and floating-point buffers."""
    return dict.fromkeys((*server.model.parameters, *server.model.float_buffers), matrix_MM)


def identity(size: int) -> Tensor:
    """Return the mixing matrix that leaves every client its own model, float64."""
    return torch.eye(size, dtype=torch.float64)

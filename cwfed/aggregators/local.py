"""Local training: a server that does nothing."""

from collections.abc import Mapping

import torch
from torch import Tensor

from cwfed.aggregators.base import (
    MixingAggregator,
    ServerContext,
    ServerState,
    identity,
    one_matrix,
)
from cwfed.functional.stacking import Bank


class Local(MixingAggregator):
    """Every client keeps its own model: the floor that personalisation must beat.

    Use it to see whether a client gains from taking part at all. Nothing is sent.

    Example:
        >>> import torch
        >>> from cwfed import aggregate
        >>> uploads = {"head.weight": torch.tensor([[[0.0], [0.0]], [[4.0], [8.0]]])}
        >>> sent = aggregate(Local(), uploads, [[2, 1], [1, 0]])
        >>> sent.models["head.weight"].tolist()
        [[[0.0], [0.0]], [[4.0], [8.0]]]
    """

    def __init__(self) -> None:
        super().__init__(aggregate_buffers=False)

    def exchanged(self, server: ServerContext) -> frozenset[str]:
        """Return nothing."""
        return frozenset()

    def traffic(
        self, participants: Tensor, state: ServerState, server: ServerContext
    ) -> tuple[Tensor, Tensor]:
        """Return zeros."""
        return torch.zeros_like(participants), torch.zeros_like(participants)

    def mixing(
        self, uploads: Bank, participants: Tensor, state: ServerState, server: ServerContext
    ) -> tuple[Mapping[str, Tensor], ServerState]:
        """Return the identity for every tensor."""
        return one_matrix(identity(server.num_clients), server), state

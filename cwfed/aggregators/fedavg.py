"""Federated averaging."""

from collections.abc import Mapping

from torch import Tensor

from cwfed.aggregators.base import (
    MixingAggregator,
    ServerContext,
    ServerState,
    one_matrix,
    same_for_all,
)
from cwfed.functional.aggregation import sample_weights
from cwfed.functional.stacking import Bank


class FedAvg(MixingAggregator):
    """FedAvg: ``w = sum_i p_i w_i`` over the participants (McMahan et al. 2017, Algorithm 1).

    One model for everybody, weighted by training samples. Use it as the reference that does not
    personalise. Each participant uploads and downloads one model a round.

    Args:
        aggregate_buffers: See `Aggregator`.

    Example:
        >>> import torch
        >>> from cwfed import aggregate
        >>> uploads = {"head.weight": torch.tensor([[[0.0], [0.0]], [[4.0], [8.0]]])}
        >>> sent = aggregate(FedAvg(), uploads, [[2, 1], [1, 0]])
        >>> sent.models["head.weight"].tolist()  # three samples against one
        [[[1.0], [2.0]], [[1.0], [2.0]]]
    """

    def __init__(self, aggregate_buffers: bool = True) -> None:
        super().__init__(aggregate_buffers)

    def mixing(
        self, uploads: Bank, participants: Tensor, state: ServerState, server: ServerContext
    ) -> tuple[Mapping[str, Tensor], ServerState]:
        """Return the same row ``p_i`` for every client and tensor."""
        weights = sample_weights(server.num_samples_M, participants)
        return one_matrix(same_for_all(weights), server), state

"""Federated averaging with personal layers."""

from collections.abc import Mapping
from typing import Literal

from torch import Tensor

from cwfed.aggregators.base import (
    MixingAggregator,
    ServerContext,
    ServerState,
    one_matrix,
    same_for_all,
)
from cwfed.contract.spec import check_scope
from cwfed.functional.aggregation import sample_weights
from cwfed.functional.stacking import Bank


class FedPer(MixingAggregator):
    """FedPer (Arivazhagan et al. 2019, arXiv 1912.00818): FedAvg of the base, personal layers stay.

    ``w_base <- sum_i p_i w_base,i`` over the participants; every client keeps its own personal
    layers. FedRep (Collins et al. 2021, arXiv 2102.07078) has the same server and trains the
    output layer and the base in turn (phases of the method): ``client.head_epochs`` of the one, 1
    unless given, and ``client.local_epochs`` of the other, as in the code base of later
    comparisons. Its authors train ten and five on CIFAR-100: the method `fedrep_original`. Use it
    where clients share features but not decisions. Each participant uploads and downloads the base
    alone.

    Args:
        personal: What stays on the client: ``output`` (weight and bias of the output layer),
            ``none``, ``all``, or a number L for the last L top-level blocks that hold parameters.
            Buffers stay with the block they stand in.
        aggregate_buffers: See `Aggregator`.

    Raises:
        ValueError: `personal` is none of these.

    Example:
        >>> import torch
        >>> from cwfed import aggregate
        >>> head = torch.tensor([[[0.0], [0.0]], [[4.0], [8.0]]])
        >>> uploads = {"base.weight": torch.tensor([[0.0], [4.0]]), "head.weight": head}
        >>> sent = aggregate(FedPer(), uploads, [[2, 1], [1, 0]])
        >>> sent.models["base.weight"].tolist(), torch.equal(sent.models["head.weight"], head)
        ([[1.0], [1.0]], True)
    """

    def __init__(
        self,
        personal: Literal["output", "none", "all"] | int = "output",
        aggregate_buffers: bool = True,
    ) -> None:
        super().__init__(aggregate_buffers)
        check_scope("personal", personal, ("output", "none", "all"))
        self.personal = personal

    def validate(self, server: ServerContext) -> None:
        """Raise a ValueError where the model has no such last layers, or they are frozen."""
        names = server.model.names_in(self.personal)
        server.model.require_trained(names, "it is what stays personal")

    def exchanged(self, server: ServerContext) -> frozenset[str]:
        """Return the names of the base's tensors."""
        return super().exchanged(server) - server.model.names_in(self.personal)

    def mixing(
        self, uploads: Bank, participants: Tensor, state: ServerState, server: ServerContext
    ) -> tuple[Mapping[str, Tensor], ServerState]:
        """Return FedAvg's row ``p_i`` for the base and nothing for the personal layers."""
        average = same_for_all(sample_weights(server.num_samples_M, participants))
        kept = server.model.names_in(self.personal)
        matrices = one_matrix(average, server)
        return {name: matrix for name, matrix in matrices.items() if name not in kept}, state

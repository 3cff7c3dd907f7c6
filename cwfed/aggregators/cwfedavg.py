"""Class-wise federated averaging."""

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from cwfed.aggregators.base import (
    COUNT,
    MixingAggregator,
    ServerContext,
    ServerState,
    one_matrix,
    same_for_all,
)
from cwfed.contract.spec import check_scope
from cwfed.functional.aggregation import (
    classwise_weights,
    mixing_matrix,
    sample_weights,
)
from cwfed.functional.distribution import label_distribution, norm_distribution
from cwfed.functional.stacking import Bank

Q = "classwise_weights_MK"
"""Name of Q in the aggregator's state."""


class CwFedAvg(MixingAggregator):
    """cwFedAvg (arXiv 2406.07800): one FedAvg a class, personal models mixed from the classes.

    ``w_j^G = sum_i q_ij w_i`` with ``q_ij = p_i p_ij / sum_i p_i p_ij``, then
    ``w_i <- sum_j p_ij w_j^G``; fused into ``(P Qᵀ) W`` without building the K class models.
    Tensors outside the scope are averaged as FedAvg does. Use it where clients differ in their
    label distributions. Costs what FedAvg costs: one model up and down.

    Args:
        scope: What is aggregated class-wise: ``output`` (weight and bias of the output layer, the
            paper's main variant), ``all``, or a number L for the last L top-level blocks that
            hold parameters.
        distribution: Where P comes from: ``estimated`` from the norms of the uploaded output
            layer's rows, or ``true`` from label counts that clients then have to send.
        aggregate_buffers: See `Aggregator`. Buffers follow the block they stand in.

    Raises:
        ValueError: An argument is none of these.

    Example:
        >>> import torch
        >>> from cwfed import aggregate
        >>> uploads = {"head.weight": torch.tensor([[[1.0], [1.0]], [[1.0], [0.0]]])}
        >>> sent = aggregate(CwFedAvg(), uploads, [[1, 1], [2, 0]])
        >>> sent.mixing["head.weight"]  # both have the first class, client 0 alone the second
        tensor([[0.6667, 0.3333],
                [0.3333, 0.6667]], dtype=torch.float64)
    """

    def __init__(
        self,
        scope: Literal["output", "all"] | int = "output",
        distribution: Literal["estimated", "true"] = "estimated",
        aggregate_buffers: bool = True,
    ) -> None:
        super().__init__(aggregate_buffers)
        check_scope("scope", scope, ("output", "all"))
        if distribution not in ("estimated", "true"):
            raise ValueError(f"distribution: expected 'estimated' or 'true', got {distribution!r}")
        self.scope = scope
        self.distribution = distribution

    def validate(self, server: ServerContext) -> None:
        """Raise a ValueError where the model has no such last layers, or they are frozen."""
        names = server.model.names_in(self.scope)
        server.model.require_trained(names, "it is aggregated class-wise")

    def traffic(
        self, participants: Tensor, state: ServerState, server: ServerContext
    ) -> tuple[Tensor, Tensor]:
        """Return what FedAvg costs; label counts take the place of n_i where they are used."""
        up, down = super().traffic(participants, state, server)
        if self.distribution == "true":
            up = up - COUNT + COUNT * server.label_counts_MK.shape[1]
        return up, down

    def init_state(self, server: ServerContext, initialisation: Bank) -> ServerState:
        """Return a Q whose columns rest on the holders of each class.

        All uploads equal the initialisation then, so any columns that sum to 1 give the same
        models; those of the holders stay right until a holder uploads. A class that nobody holds
        counts equally everywhere and is never asked for.
        """
        everyone = torch.arange(server.num_clients)
        equal = torch.full(
            server.label_counts_MK.shape, 1.0 / server.num_clients, dtype=torch.float64
        )
        if self.distribution == "estimated":
            return {Q: equal}
        p_MK = label_distribution(server.label_counts_MK)
        return {Q: classwise_weights(p_MK, server.num_samples_M, everyone, equal)}

    def class_distribution(self, uploads: Bank, server: ServerContext) -> Tensor:
        """Return P, float64 ``[M, K]``: of every client's last upload, or of its labels.

        A client without labels gets the distribution of all: with that, the classes mix to FedAvg.
        """
        if self.distribution == "true":
            counts_MK = server.label_counts_MK
            empty_M1 = counts_MK.sum(1, keepdim=True) == 0
            return label_distribution(torch.where(empty_M1, counts_MK.sum(0), counts_MK))
        return norm_distribution(uploads[server.model.head_weight].to(torch.float64))

    def mixing(
        self, uploads: Bank, participants: Tensor, state: ServerState, server: ServerContext
    ) -> tuple[Mapping[str, Tensor], ServerState]:
        """Return ``P Qᵀ`` for the class-wise tensors and FedAvg's row for the others."""
        p_MK = self.class_distribution(uploads, server).cpu()
        q_MK = classwise_weights(p_MK, server.num_samples_M, participants, state[Q])
        average = same_for_all(sample_weights(server.num_samples_M, participants))
        classwise = dict.fromkeys(server.model.names_in(self.scope), mixing_matrix(p_MK, q_MK))
        return one_matrix(average, server) | classwise, {Q: q_MK}

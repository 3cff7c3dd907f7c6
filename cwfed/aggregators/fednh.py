"""FedNH: the server moves the class prototypes that stand in for an output layer."""

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from cwfed.aggregators.base import (
    COUNT,
    Aggregator,
    Broadcast,
    ServerContext,
    ServerRound,
    ServerState,
)
from cwfed.aggregators.fedavg import FedAvg
from cwfed.functional.fednh import moved_prototypes
from cwfed.functional.stacking import Bank


class FedNH(Aggregator):
    """FedNH: prototypes as the output layer, moved by the server (Dai et al. 2023).

    Needs the head `PrototypeHead`. After training, a client sends the mean unit-length feature
    μ_ic of each of its classes, normalised, and the count n_ic. The server sets
    ``W_c <- normalise(ρ W_c + (1 - ρ) normalise(sum_i n_ic μ_ic / sum_i n_ic))`` over the
    participants (arXiv 2212.02758); a class without samples this round keeps
    its row. The backbone and the scale s are averaged. Use it where classes are unbalanced or
    missing on clients, so that trained output layers would drift apart.

    Costs one model each way, K counts up, and one more pass over a participant's training part in
    evaluation mode. The counts are sent: the server learns the label distributions.

    The prototypes live in the models: frozen in training, the same for everybody, so the
    participants' starting point holds them and the aggregator needs no state.

    Differs from the released code: gradients are not clipped to norm 10, and the server has no
    learning rate.

    Args:
        rho: ρ in [0, 1]: how much of a prototype stays; 1 keeps them fixed.
        weighting: ``uniform`` averages the backbone with equal weights, as published; ``samples``
            by training samples, as FedAvg does.
        aggregate_buffers: See `Aggregator`. Float buffers follow the backbone.

    Raises:
        ValueError: An argument is none of these.

    Example:
        >>> import torch
        >>> from cwfed import aggregate
        >>> uploads = {"head.weight": torch.eye(2)[None]}
        >>> aggregate(FedNH(), uploads, [[1, 1]])  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ValueError: algorithm.head: expected PrototypeHead with FedNH, ... trainable weight
    """

    def __init__(
        self,
        rho: float = 0.9,
        weighting: Literal["uniform", "samples"] = "uniform",
        aggregate_buffers: bool = True,
    ) -> None:
        super().__init__(aggregate_buffers)
        if not 0 <= rho <= 1:
            raise ValueError(f"rho: expected a number in [0, 1], got {rho}")
        if weighting not in ("uniform", "samples"):
            raise ValueError(f"weighting: expected 'uniform' or 'samples', got {weighting!r}")
        self.rho = rho
        self.weighting = weighting

    def validate(self, server: ServerContext) -> None:
        """Raise a ValueError where the output layer is trained or has a bias."""
        model = server.model
        if model.head_weight in model.parameters or model.head_bias:
            raise ValueError(
                f"algorithm.head: expected PrototypeHead with FedNH, whose prototypes only the "
                f"server moves, got an output layer {model.head!r} with a "
                f"{'bias' if model.head_weight not in model.parameters else 'trainable weight'}"
            )

    def init_state(self, server: ServerContext, initialisation: Bank) -> ServerState:
        """Return no state.

        Raises:
            ValueError: The rows of the output layer do not have unit length.
        """
        lengths = initialisation[server.model.head_weight][0].norm(dim=1)
        if not torch.allclose(lengths, torch.ones_like(lengths), atol=1e-3):
            raise ValueError(
                f"algorithm.head: expected prototypes of unit length (PrototypeHead), got lengths "
                f"from {lengths.min():.3g} to {lengths.max():.3g} in {server.model.head_weight!r}"
            )
        return {}

    def exchanged(self, server: ServerContext) -> frozenset[str]:
        """Add the prototypes: means of the features on the way up."""
        return super().exchanged(server) | {server.model.head_weight}

    def traffic(
        self, participants: Tensor, state: ServerState, server: ServerContext
    ) -> tuple[Tensor, Tensor]:
        """Return the bytes of a model each way and of the K counts up."""
        model = sum(server.sizes[name] for name in self.exchanged(server))
        counts = COUNT * server.label_counts_MK.shape[1]
        return torch.full_like(participants, model + counts), torch.full_like(participants, model)

    def aggregate(
        self, round_: ServerRound, state: ServerState, server: ServerContext
    ) -> tuple[Broadcast, ServerState]:
        """Average the backbone, move the prototypes. Arguments as for `Aggregator.aggregate`."""
        if self.weighting == "uniform":
            server = replace(server, num_samples_M=torch.ones_like(server.num_samples_M))
        average = FedAvg(self.aggregate_buffers).aggregate(round_, {}, server)[0]
        prototypes_KF = self.prototypes(round_, server)
        shared = prototypes_KF.expand(server.num_clients, -1, -1)
        mixing = {n: m for n, m in average.mixing.items() if n != server.model.head_weight}
        models = {**average.models, server.model.head_weight: shared}
        return Broadcast(models, mixing=mixing), state

    def prototypes(self, round_: ServerRound, server: ServerContext) -> Tensor:
        """Return the prototypes after the round, ``[K, F]``.

        Features of a finite model may still overflow: such means count as classes without samples.
        """
        old_KF = round_.starts[server.model.head_weight][round_.participants[0]]
        means_mKF, counts_mK = round_.clients.class_means(round_.participants, round_.uploads)
        usable_mK = means_mKF.isfinite().all(2)
        means_mKF = means_mKF.nan_to_num(0.0, 0.0, 0.0)
        return moved_prototypes(old_KF, means_mKF, counts_mK * usable_mK, self.rho)

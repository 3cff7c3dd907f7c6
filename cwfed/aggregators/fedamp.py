"""Federated attentive message passing."""

import logging
from collections.abc import Mapping
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from cwfed.aggregators.banks import attentive_mixture
from cwfed.aggregators.base import (
    Aggregator,
    Broadcast,
    ServerContext,
    ServerRound,
    ServerState,
)
from cwfed.functional.fedamp import attention, squared_distances
from cwfed.functional.stacking import Bank

log = logging.getLogger("cwfed")

ATTENTION = "attention_MM"
"""Name of c in the aggregator's state."""
UPLOADED = "uploaded_M"
"""Name of the mask of clients that have uploaded, in the aggregator's state."""


class FedAMP(Aggregator):
    """FedAMP (Huang et al., AAAI 2021, arXiv 2007.03797): similar clients pull each other.

    ``u_i = w_i + sum_{j != i} c_ij (w_j - w_i)`` with ``c_ij = alpha A'(||w_i - w_j||²)`` and
    ``A(x) = 1 - exp(-x / sigma)``, so ``c_ij = (alpha / sigma) exp(-||w_i - w_j||² / sigma)``
    (Equation 5; distances over the parameters). A client keeps its own model w_i, buffers
    included, starts from it and adds ``(λ / (2 alpha)) ||w - u_i||²`` to its loss (Equation 6):
    `cwfed.objectives.AttentionProximal`, which takes alpha from here. Without that term, or with
    λ = 0, the method is local training.

    Use it where some clients have similar data and it is not known which. Costs one model's
    parameters up and down, and M² / 2 distances between models on the server.

    **Choosing alpha, sigma and λ.** The off-diagonal mass ``sum_{j != i} c_ij`` is at most
    ``(M - 1) alpha / sigma``. Up to 1, u_i is a convex combination of the models; beyond, it lies
    past them, and training may break down: a warning is logged, once a round. The default,
    ``alpha = sigma / M``, keeps the mass below 1 whatever the models are: clients with the same
    model get equal weights, 1 / M. Then sigma says how far attention reaches, and a step of SGD
    with learning rate η goes ``η λ M / sigma`` of the way to u_i, which must stay well below 1.
    Mass and self-weight ``c_ii = 1 - sum_{j != i} c_ij`` are recorded every round (`figures`).

    With alpha 1000, sigma 0.1 and λ 1, which the code base of the published comparisons uses,
    c_ij is 1e4 for equal models, 2e-5 at a squared distance of 2 and 4e-40 at 10. In that code
    base no gradient comes from the term, so that all of this changes nothing: it is local training
    to the bit, the method `fedamp_released`. Here the term has its gradient: these settings make
    training break down where models are near each other, as those of many or alike clients are
    after the first round.

    With partial participation every u_i is made from the last uploads. A client that has never
    uploaded stands at the initialisation: it is nobody's peer, and its u_i is that.

    Differs from the paper: Equation 6 is not solved but approached by the run's local epochs of
    SGD from w_i, and alpha is the same in all rounds, where the paper allows one a round.

    Args:
        alpha: Step size towards the peers, > 0; None takes sigma / M.
        sigma: Squared distance over which attention falls by a factor e, > 0.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> import torch
        >>> from cwfed import aggregate
        >>> values = torch.tensor([0.0, 0.0, 9.0])
        >>> uploads = {"head.weight": values[:, None, None].expand(3, 2, 1)}
        >>> sent = aggregate(FedAMP(sigma=3.0), uploads, [[1, 1]] * 3)
        >>> sent.mixing["head.weight"].round(decimals=4).tolist()  # alike clients pull each other
        [[0.6667, 0.3333, 0.0], [0.3333, 0.6667, 0.0], [0.0, 0.0, 1.0]]
    """

    def __init__(self, alpha: float | None = None, sigma: float = 10.0) -> None:
        super().__init__(aggregate_buffers=False)
        for name, value in (("alpha", alpha), ("sigma", sigma)):
            if value is None and name == "alpha":
                continue
            if value is None or not (isfinite(value) and value > 0):
                raise ValueError(f"{name}: expected a finite number > 0, got {value}")
        self.alpha = alpha
        self.sigma = sigma

    def step(self, server: ServerContext) -> float:
        """Return alpha: as given, or sigma / M."""
        return self.sigma / server.num_clients if self.alpha is None else self.alpha

    def hyperparameter(self, name: str, server: ServerContext) -> Any:
        """Return what a loss term takes from here; see `Aggregator.hyperparameter`."""
        return self.step(server) if name == "alpha" else super().hyperparameter(name, server)

    def init_state(self, server: ServerContext, initialisation: Bank) -> ServerState:
        """Return no attention and nobody who has uploaded."""
        size = server.num_clients
        return {
            ATTENTION: torch.zeros(size, size, dtype=torch.float64),
            UPLOADED: torch.zeros(size, dtype=torch.bool),
        }

    def figures(self, state: ServerState) -> Mapping[str, float]:
        """Return over clients mean and maximum of the off-diagonal mass, mean and least c_ii."""
        mass_M = state[ATTENTION].sum(1)
        self_weight_M = 1 - mass_M
        return {
            "off_diagonal_mass_mean": mass_M.mean().item(),
            "off_diagonal_mass_max": mass_M.max().item(),
            "self_weight_mean": self_weight_M.mean().item(),
            "self_weight_min": self_weight_M.min().item(),
        }

    def traffic(
        self, participants: Tensor, state: ServerState, server: ServerContext
    ) -> tuple[Tensor, Tensor]:
        """Return w_i up and u_i down; nobody asks for the number of samples."""
        model = torch.full_like(
            participants, sum(server.sizes[name] for name in self.exchanged(server))
        )
        return model, model

    def aggregate(
        self, round_: ServerRound, state: ServerState, server: ServerContext
    ) -> tuple[Broadcast, ServerState]:
        """Return the clients' own models and, as anchors, u_i."""
        uploads = round_.uploads
        uploaded_M = state[UPLOADED].index_fill(0, round_.participants, True)
        squared_MM = squared_distances(uploads[name] for name in server.model.parameters)
        c_MM = attention(squared_MM, self.step(server), self.sigma, uploaded_M)
        warn_of_extrapolation(c_MM.sum(1))
        u_M = {name: attentive_mixture(c_MM, uploads[name]) for name in server.model.parameters}
        weights_MM = c_MM + (1 - c_MM.sum(1)).diag()
        mixing = dict.fromkeys(server.model.parameters, weights_MM)
        state = {ATTENTION: c_MM, UPLOADED: uploaded_M}
        return Broadcast(uploads, {**uploads, **u_M}, mixing), state


def warn_of_extrapolation(mass_M: Tensor) -> None:
    """Log a warning if attention goes beyond the other models for any client."""
    beyond = int((mass_M > 1).sum())
    if beyond:
        log.warning(
            "FedAMP: the weights of the other clients sum to more than 1 for %d of %d clients, up "
            "to %.3g: what these are pulled to lies beyond the models; a smaller alpha / sigma "
            "prevents that",
            beyond,
            len(mass_M),
            mass_M.max().item(),
        )

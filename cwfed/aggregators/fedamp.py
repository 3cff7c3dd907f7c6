"""Federated attentive message passing."""

import logging
from collections.abc import Mapping
from math import isfinite

import torch
from torch import Tensor

from cwfed.aggregators.base import (
    Aggregator,
    Broadcast,
    ServerContext,
    ServerRound,
    ServerState,
)
from cwfed.functional.fedamp import attention, attentive_mixture, squared_distances
from cwfed.functional.stacking import Bank

log = logging.getLogger("cwfed")

ATTENTION = "attention_MM"
"""Name of c in the aggregator's state."""
UPLOADED = "uploaded_M"
"""Name of the mask of clients that have uploaded, in the aggregator's state."""


class FedAMP(Aggregator):
    """FedAMP (Huang et al. 2021, arXiv 2007.03797): clients are pulled towards similar clients.

    ``u_i = w_i + sum_{j != i} c_ij (w_j - w_i)`` with
    ``c_ij = (alpha / sigma) exp(-||w_i - w_j||² / sigma)`` (Equation 5; distances over the
    parameters). A client keeps its own model w_i, buffers included, starts from it and adds
    ``(λ / (2 alpha)) ||w - u_i||²`` to its loss (Equation 6):
    `cwfed.objectives.AttentionProximal`, which takes alpha from here. Without that term, or with
    λ = 0, the method is local training.

    Use it where some clients have similar data and it is not known which. Costs one model's
    parameters up and down, and M² / 2 distances between models on the server.

    **The released settings (alpha 1000, sigma 0.1, λ 1) seldom act as intended.** Once models are
    further apart than a squared distance of about 2 (c_ij is 2e-5 there, 4e-40 at 10), every
    u_i is the client's own last model: what is left is local training with a pull of strength
    λ / alpha = 0.001 towards where the round started. Nearer than about 0.92, as in the first
    rounds of short local training, c_ij exceeds 1 and soon 1000: u_i lies far beyond the other
    models, and training may break down. With ``alpha = sigma / M`` and sigma of the order of the
    squared distances or above, every u_i is a convex combination with c_ij up to 1 / M: alpha 1,
    sigma 10 on the quickstart's 10 clients gives them an off-diagonal mass of about 0.83. The
    recorded figures show what a run had: mean and maximum over clients of that mass,
    ``sum_{j != i} c_ij``; a mass above 1 is also logged as a warning, once a round.

    With partial participation every u_i is made from the last uploads. A client that has never
    uploaded stands at the initialisation: it is nobody's peer, and its u_i is that.

    Deviations: the authors' code starts local training from u_i and lets alpha decay; here a
    client starts from w_i, and alpha is constant.

    Args:
        alpha: Step size towards the peers, > 0.
        sigma: Squared distance over which attention falls by a factor e, > 0.

    Raises:
        ValueError: An argument is out of range.
    """

    def __init__(self, alpha: float = 1000.0, sigma: float = 0.1) -> None:
        super().__init__(aggregate_buffers=False)
        for name, value in (("alpha", alpha), ("sigma", sigma)):
            if not (isfinite(value) and value > 0):
                raise ValueError(f"{name}: expected a finite number > 0, got {value}")
        self.alpha = alpha
        self.sigma = sigma

    def init_state(self, server: ServerContext, initialisation: Bank) -> ServerState:
        """Return no attention and nobody who has uploaded."""
        size = server.num_clients
        return {
            ATTENTION: torch.zeros(size, size, dtype=torch.float64),
            UPLOADED: torch.zeros(size, dtype=torch.bool),
        }

    def figures(self, state: ServerState) -> Mapping[str, float]:
        """Return mean and maximum over clients of the off-diagonal mass."""
        mass_M = state[ATTENTION].sum(1)
        return {
            "off_diagonal_mass_mean": mass_M.mean().item(),
            "off_diagonal_mass_max": mass_M.max().item(),
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
        c_MM = attention(squared_MM, self.alpha, self.sigma, uploaded_M)
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

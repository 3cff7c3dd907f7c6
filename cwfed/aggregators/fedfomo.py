"""Federated learning with first-order model optimisation.

Legend: M clients, m clients that mix, C candidates of each.
"""

from typing import Literal

import torch
from torch import Tensor

from cwfed.aggregators.banks import mix, replace_rows
from cwfed.aggregators.base import (
    COUNT,
    Aggregator,
    Broadcast,
    Clients,
    ServerContext,
    ServerRound,
    ServerState,
    identity,
    one_matrix,
)
from cwfed.functional.fedfomo import candidates, distances, mixing_weights, raw_weights
from cwfed.functional.stacking import Bank
from cwfed.messages.checks import require_integer

P = "preferences_MM"
"""Name of P in the aggregator's state."""
UPLOADED = "uploaded_M"
"""Name of the mask of clients that have uploaded in the aggregator's state."""
WEIGHTS = "weights_MM"
"""Name of the weights of every client's last mix in the aggregator's state."""
OLD = "old/"
"""Prefix of the models after the previous mix in the aggregator's state."""


class FedFomo(Aggregator):
    """FedFomo: each client mixes the models that help it most (Zhang et al. 2021, ICLR).

    Before training, client i weighs its own upload and those of the clients it prefers by
    ``w_n = (L_i(old_i) - L_i(theta_n)) / (||theta_n - old_i|| + 1e-5)`` (arXiv 2012.08565,
    Equation 5), with L_i the loss on a part of its training data kept for that and ``old_i`` its
    model after its previous mix, that is before its last training; negatives are set to 0, the
    rest is normalised, and ``theta_i = sum_n w_n theta_n``. Preferences P start as the identity and
    gain the raw weights, negatives too. Before its first upload a client does not mix.

    Where no weight is positive, its own included, nobody helps the client: its last training made
    it worse on the kept part. Its authors' code then goes back to the model before that training
    (`fallback` ``before_training``, which the shipped method says), and the code base of later
    comparisons goes on from the trained one (``trained``). The latter is what a configuration
    means that does not say which, as all did when there was no choice.

    Use it where some clients resemble each other and nobody knows which. Costs one model up and
    `num_models` - 1 down a round, and `num_models` + 1 evaluations of the kept part on each
    participant, which lacks that part for training; the server keeps a second bank of models.

    Differs from the paper: no random exploration of candidates, as in the code that later
    comparisons rest on. A loss that is not finite gives weight 0.

    Args:
        num_models: Candidates offered to a client, its own among them; those that exist where
            fewer clients have uploaded.
        holdout_fraction: Fraction of the training part kept for the losses, in (0, 1).
        aggregate_buffers: Whether floating-point buffers are mixed with the same weights and
            counters take the maximum over the models mixed; else every client keeps its own, with
            which it also judges the candidates.
        fallback: Where a client starts from that nobody helps: ``before_training``, from old_i as
            a whole, buffers too; or ``trained``, from its upload.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> import torch
        >>> from cwfed import aggregate
        >>> uploads = {"head.weight": torch.tensor([[[0.0], [0.0]], [[4.0], [8.0]]])}
        >>> sent = aggregate(FedFomo(num_models=2), uploads, [[2, 1], [1, 0]])
        >>> # The clients mix, not the server.
        >>> torch.equal(sent.models["head.weight"], uploads["head.weight"])
        True
    """

    def __init__(
        self,
        num_models: int = 5,
        holdout_fraction: float = 0.2,
        aggregate_buffers: bool = True,
        fallback: Literal["before_training", "trained"] = "trained",
    ) -> None:
        super().__init__(aggregate_buffers)
        require_integer("num_models", num_models, 1)
        if not 0 < holdout_fraction < 1:
            raise ValueError(
                f"holdout_fraction: expected a number between 0 and 1, got {holdout_fraction!r}"
            )
        if fallback not in ("before_training", "trained"):
            raise ValueError(f"fallback: expected 'before_training' or 'trained', got {fallback!r}")
        self.num_models = num_models
        self.holdout_fraction = holdout_fraction
        self.fallback = fallback

    def init_state(self, server: ServerContext, initialisation: Bank) -> ServerState:
        """Return P = identity, no uploads, and the initialisation as everybody's old model."""
        return {
            P: identity(server.num_clients),
            WEIGHTS: identity(server.num_clients),
            UPLOADED: torch.zeros(server.num_clients, dtype=torch.bool),
        } | {OLD + name: value for name, value in initialisation.items()}

    def select(
        self,
        received: Bank,
        uploads: Bank,
        participants: Tensor,
        state: ServerState,
        server: ServerContext,
        clients: Clients,
    ) -> tuple[Bank, ServerState]:
        """Return the mixes that the participants start from. Arguments as for `Aggregator`."""
        mixing = participants[state[UPLOADED][participants]]
        if len(mixing) == 0:
            return received, state
        old = {name: state[OLD + name] for name in uploads}
        raw_mM = self.weigh(mixing, uploads, old, state, server, clients)
        weights_mM = self.mixing_weights(raw_mM, mixing)
        helped_m = weights_mM.any(1)
        state = {
            **state,
            P: state[P].index_add(0, mixing, raw_mM),
            WEIGHTS: state[WEIGHTS].index_copy(0, mixing, weights_mM),
        }
        helped, alone = mixing[helped_m], mixing[~helped_m].tolist()
        if alone:
            theirs = {name: value[alone] for name, value in old.items()}
            received = replace_rows(received, alone, theirs)
        if len(helped) == 0:
            return received, state
        mixed = self.mixed(weights_mM[helped_m], helped, uploads, server)
        old = replace_rows(old, helped.tolist(), mixed)
        state |= {OLD + name: value for name, value in old.items()}
        return replace_rows(received, helped.tolist(), mixed), state

    def aggregate(
        self, round_: ServerRound, state: ServerState, server: ServerContext
    ) -> tuple[Broadcast, ServerState]:
        """Leave every client its own upload. Arguments as for `Aggregator.aggregate`."""
        uploaded_M = state[UPLOADED].index_fill(0, round_.participants, True)
        broadcast = Broadcast(round_.uploads, mixing=one_matrix(state[WEIGHTS], server))
        return broadcast, {**state, UPLOADED: uploaded_M}

    def traffic(
        self, participants: Tensor, state: ServerState, server: ServerContext
    ) -> tuple[Tensor, Tensor]:
        """Return bytes up and down; see `Aggregator.traffic`.

        Up goes the model and the raw weights, down the others' models; in a client's first round
        it has nothing to weigh and receives the common initialisation.
        """
        model = sum(server.sizes[name] for name in self.exchanged(server))
        offered = min(self.num_models, int(state[UPLOADED].sum()))
        mixes = state[UPLOADED][participants]
        up = torch.where(mixes, model + COUNT * offered, model)
        return up, torch.where(mixes, model * (offered - 1), model)

    def weigh(
        self,
        mixing: Tensor,
        uploads: Bank,
        old: Bank,
        state: ServerState,
        server: ServerContext,
        clients: Clients,
    ) -> Tensor:
        """Return the raw weights by client, 0 for those that are not offered, ``[m, M]``."""
        shared = self.exchanged(server)
        ids_mC = candidates(state[P], state[UPLOADED], mixing, self.num_models)
        old_loss_m = clients.loss(mixing, old, "holdout")
        losses, lengths = [], []
        for ids_m in ids_mC.T:
            row_M = torch.arange(server.num_clients).index_copy(0, mixing, ids_m)
            offered = {n: v[row_M] if n in shared else v for n, v in uploads.items()}
            losses.append(clients.loss(mixing, offered, "holdout"))
            lengths.append(distances(offered, old, mixing, server.model.parameters))
        raw_mC = raw_weights(old_loss_m, torch.stack(losses, 1), torch.stack(lengths, 1))
        none = torch.zeros(len(mixing), server.num_clients, dtype=torch.float64)
        return none.scatter(1, ids_mC, raw_mC)

    def mixing_weights(self, raw_mM: Tensor, mixing: Tensor) -> Tensor:
        """Return the weights of the mixes, ``[m, M]``; rows of 0 go back to the old model."""
        weights_mM = mixing_weights(raw_mM)
        if self.fallback == "trained":
            alone_m = ~weights_mM.any(1)
            weights_mM[alone_m, mixing[alone_m]] = 1.0
        return weights_mM

    def mixed(
        self, weights_mM: Tensor, mixing: Tensor, uploads: Bank, server: ServerContext
    ) -> dict[str, Tensor]:
        """Return the mixed models ``[m, ...]`` by name, of models with a positive weight only."""
        models = {}
        for name, value in uploads.items():
            if name not in self.exchanged(server):
                models[name] = value[mixing]
            elif name in server.model.counters:
                peaks = [value[weights_M > 0].amax(0) for weights_M in weights_mM]
                models[name] = torch.stack(peaks)
            else:
                models[name] = mix_finite(weights_mM, value)
        return models


def mix_finite(weights_mM: Tensor, theta_M: Tensor) -> Tensor:
    """Return what `mix` does, but 0 times a model that is not finite counts as 0.

    Args:
        weights_mM: ``[m, M]``.
        theta_M: One parameter on every client, ``[M, ...]``.
    """
    mixed_m = mix(weights_mM, theta_M)
    # A sum may also overflow: then a mix is made again for nothing.
    suspects = (~mixed_m.flatten(1).sum(1).isfinite()).nonzero()[:, 0].tolist()
    if suspects:
        mixed_m = mixed_m.clone()
    for position in suspects:
        chosen = weights_mM[position].nonzero()[:, 0]
        mixed_m[position] = mix(weights_mM[None, position, chosen], theta_M, chosen)[0]
    return mixed_m

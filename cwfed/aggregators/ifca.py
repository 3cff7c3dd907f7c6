"""The iterative federated clustering algorithm.

Legend: M clients, m clients that choose, C centres.
"""

from collections.abc import Mapping
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
    one_matrix,
)
from cwfed.functional.aggregation import sample_weights
from cwfed.functional.stacking import Bank, row
from cwfed.messages.checks import require_integer

CHOICE = "choice_M"
"""Name of every client's centre in the aggregator's state; -1: not known yet."""
CENTRES = "centres/"
"""Prefix of the centres' tensors ``[C, ...]`` in the aggregator's state."""


class IFCA(Aggregator):
    """IFCA: a few models, each client trains the one that fits it best (Ghosh et al. 2020).

    Client i takes centre ``argmin_k L_i(theta_k)``, L_i its training loss, and trains it; the
    server then sets ``theta_k = sum_i n_i w_i / sum_i n_i`` over the participants that took centre
    k (NeurIPS 2020, arXiv 2006.04088, Algorithm 1, model averaging). A centre that nobody took
    stays. Centre 0 starts as the common initialisation, the others as different ones.

    Use it where clients fall into a few groups whose tasks contradict each other. Costs one model
    up and `num_centres` down a round, and `num_centres` evaluations of the training part, here on
    every client: that also tells what a client would start the next round with, so the choice is
    not evaluated again. One centre is FedAvg and evaluates nothing.

    Differs from the paper: means are weighted by training samples, unless `uniform`. A loss that
    is not finite counts as infinite; ties go to the lower centre. Differs from the released code,
    in which a client takes the centre with the lowest loss on its test data: here on its training
    data, as in the paper, since test data must not choose what they score.

    Args:
        num_centres: Number of centres.
        weighting: Weights of a centre's mean: training ``samples``, or ``uniform`` as released.
        aggregate_buffers: Whether a centre has floating-point buffers (averaged with the same
            weights) and counters (the maximum); else every client keeps its own, with which it
            also judges the centres.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> import torch
        >>> class Clients:  # client i wants the number i
        ...     def loss(self, clients, models, part):
        ...         return (models["w"][clients, 0] - clients).abs()
        >>> centres, uploads = {"w": torch.tensor([[2.0], [0.0]])}, {"w": torch.zeros(3, 1)}
        >>> IFCA(num_centres=2).choose(torch.arange(3), centres, uploads, Clients()).tolist()
        [1, 0, 0]
    """

    def __init__(
        self,
        num_centres: int = 2,
        weighting: Literal["samples", "uniform"] = "samples",
        aggregate_buffers: bool = True,
    ) -> None:
        super().__init__(aggregate_buffers)
        require_integer("num_centres", num_centres, 1)
        if weighting not in ("samples", "uniform"):
            raise ValueError(f"weighting: expected 'samples' or 'uniform', got {weighting!r}")
        self.num_centres = num_centres
        self.weighting = weighting

    def init_state(self, server: ServerContext, initialisation: Bank) -> ServerState:
        """Return the centres, and no choice yet."""
        others = [server.new_initialisation(k) for k in range(1, self.num_centres)]
        models = [row(initialisation, 0), *others]
        return {CHOICE: torch.full((server.num_clients,), -1)} | {
            CENTRES + name: torch.stack([model[name] for model in models])
            for name in self.exchanged(server)
        }

    def select(
        self,
        received: Bank,
        uploads: Bank,
        participants: Tensor,
        state: ServerState,
        server: ServerContext,
        clients: Clients,
    ) -> tuple[Bank, ServerState]:
        """Let those choose whose choice is not known. Arguments as for `Aggregator.select`."""
        unknown = participants[state[CHOICE][participants] < 0]
        if len(unknown) == 0:
            return received, state
        centres = {name: state[CENTRES + name] for name in self.exchanged(server)}
        chosen = self.choose(unknown, centres, uploads, clients)
        models = self.models(unknown, chosen, centres, uploads)
        choice_M = state[CHOICE].index_copy(0, unknown, chosen)
        return replace_rows(received, unknown.tolist(), models), {**state, CHOICE: choice_M}

    def aggregate(
        self, round_: ServerRound, state: ServerState, server: ServerContext
    ) -> tuple[Broadcast, ServerState]:
        """Average by centre, then let everybody choose anew. Arguments as for `Aggregator`."""
        uploads, everyone = round_.uploads, torch.arange(server.num_clients)
        chosen = state[CHOICE][round_.participants]
        assert (chosen >= 0).all(), "every participant has chosen before training"
        centres = {name: state[CENTRES + name].clone() for name in self.exchanged(server)}
        shares_CM = torch.zeros(self.num_centres, server.num_clients, dtype=torch.float64)
        for k in chosen.unique().tolist():
            members = round_.participants[chosen == k]
            shares_CM[k] = self.shares(members, server)
            self.average(k, members, shares_CM[k], centres, uploads, server)
        choice_M = self.choose(everyone, centres, uploads, round_.clients)
        models = self.models(everyone, choice_M, centres, uploads)
        named = {CENTRES + name: value for name, value in centres.items()}
        mixing = one_matrix(shares_CM[choice_M], server)
        return Broadcast(models, mixing=mixing), {CHOICE: choice_M, **named}

    def shares(self, members: Tensor, server: ServerContext) -> Tensor:
        """Return the weights of the members' uploads in their centre, float64 ``[M]``."""
        n_M = server.num_samples_M
        return sample_weights(torch.ones_like(n_M) if self.weighting == "uniform" else n_M, members)

    def average(
        self,
        k: int,
        members: Tensor,
        shares_M: Tensor,
        centres: dict[str, Tensor],
        uploads: Bank,
        server: ServerContext,
    ) -> None:
        """Write the mean of the members' uploads into centre k.

        Only theirs are touched: 0 times an upload that is not finite would not be 0.
        """
        weights_1m = shares_M[None, members]
        for name in centres:
            if name in server.model.counters:
                centres[name][k] = uploads[name][members].amax(0)
            else:
                centres[name][k] = mix(weights_1m, uploads[name], members)[0]

    def choose(self, ids: Tensor, centres: Bank, uploads: Bank, clients: Clients) -> Tensor:
        """Return the centre with the lowest training loss for each client, int64 ``[m]``."""
        if self.num_centres == 1:
            return torch.zeros_like(ids)
        losses = []
        for k in range(self.num_centres):
            offered = {
                name: centres[name][k].expand(value.shape) if name in centres else value
                for name, value in uploads.items()
            }
            losses.append(clients.loss(ids, offered, "train"))
        loss_mC = torch.stack(losses, 1)
        return torch.where(loss_mC.isfinite(), loss_mC, torch.inf).argmin(1)

    def models(
        self, ids: Tensor, chosen: Tensor, centres: Bank, uploads: Bank
    ) -> dict[str, Tensor]:
        """Return the centres that clients chose, ``[m, ...]`` by name; the rest is their own."""
        return {
            name: centres[name][chosen] if name in centres else value[ids]
            for name, value in uploads.items()
        }

    def figures(self, state: ServerState) -> Mapping[str, float]:
        """Return how many clients take each centre."""
        chosen = state[CHOICE]
        return {f"clients_of_centre_{k}": int((chosen == k).sum()) for k in range(self.num_centres)}

    def traffic(
        self, participants: Tensor, state: ServerState, server: ServerContext
    ) -> tuple[Tensor, Tensor]:
        """Return bytes up and down; see `Aggregator.traffic`.

        All centres go down; up go a model, the number of samples and the choice, where needed.
        """
        model = sum(server.sizes[name] for name in self.exchanged(server))
        numbers = (self.weighting == "samples") + (self.num_centres > 1)
        return (
            torch.full_like(participants, model + numbers * COUNT),
            torch.full_like(participants, model * self.num_centres),
        )

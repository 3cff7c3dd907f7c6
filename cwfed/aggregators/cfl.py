"""Clustered federated learning."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from cwfed.aggregators.banks import replace_rows
from cwfed.aggregators.base import (
    COUNT,
    Broadcast,
    MixingAggregator,
    ServerContext,
    ServerRound,
    ServerState,
    one_matrix,
)
from cwfed.functional.aggregation import sample_weights
from cwfed.functional.cfl import bipartition, cosines, update_norms
from cwfed.functional.stacking import Bank
from cwfed.messages.checks import require_at_least, require_integer

CLUSTER = "cluster_M"
"""Name of every client's cluster in the aggregator's state: the lowest id of its members."""
ROUND = "round"
MEAN_NORM = "mean_update_norm_M"
NORM = "update_norm_M"


class CFL(MixingAggregator):
    """CFL (Sattler et al. 2020, arXiv 1910.01991): FedAvg within clusters that split.

    All clients start in one cluster. With updates ``ΔW_i = upload - start`` over the parameters, a
    cluster of more than two members is divided after a round > `warm_up` if
    ``||sum_i w_i ΔW_i|| < eps1`` and ``max_i ||ΔW_i|| > eps2``: the mean has nearly settled while
    single members still pull. The parts are the complete-linkage bipartition by the cosines of the
    updates. Then each cluster, new ones included, moves by its own mean update: clusters are
    divided first and averaged second, and a new one is looked at again in the next round. As all
    members of a cluster started from one model, start plus mean update is the mean of the uploads.

    Use it where clients fall into a few groups with contradicting data. eps1 and eps2 depend on
    the model, the learning rate and the number of local steps: the recorded figures show the
    smallest mean norm of a cluster and the largest norm of an update to choose them by. Without
    any split the method is FedAvg. Costs one model up and down as FedAvg, and m² products of
    updates on the server in a round that splits a cluster of m.

    Where an update is missing because a client failed, its cluster moves by the mean of the others
    and is not split in that round; a cluster without any update stays.

    Deviations: the authors' code weights clients equally (``weighting: uniform``) and counts the
    members of a second split from the start of their cluster, which mixes clusters up. The
    paper's option of stopping a split by the cosines across the parts is left out, as in that
    code.

    Args:
        eps1: Norm of the mean update below which a cluster may split, >= 0.
        eps2: Norm of an update that one member must exceed for that, >= 0.
        warm_up: Rounds at the start without a split.
        weighting: Weights of all means: by training samples (``samples``) or equal (``uniform``).
        aggregate_buffers: See `Aggregator`; averages and maxima are those of the cluster.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> import torch
        >>> from cwfed import aggregate
        >>> updates = torch.tensor([1.0, 1.0, -1.0, -1.0])
        >>> uploads = {"head.weight": updates[:, None, None].expand(4, 2, 1)}
        >>> sent = aggregate(CFL(eps1=0.1, eps2=0.5, warm_up=0), uploads, [[1, 1]] * 4)
        >>> sent.models["head.weight"][:, 0, 0].tolist()  # two clusters that pull apart
        [1.0, 1.0, -1.0, -1.0]
    """

    needs_everyone = "a cluster can only be split when all its members have sent an update"

    def __init__(
        self,
        eps1: float = 0.4,
        eps2: float = 1.6,
        warm_up: int = 20,
        weighting: Literal["samples", "uniform"] = "samples",
        aggregate_buffers: bool = True,
    ) -> None:
        super().__init__(aggregate_buffers)
        for name, value in (("eps1", eps1), ("eps2", eps2)):
            require_at_least(name, value, 0)
        require_integer("warm_up", warm_up)
        if weighting not in ("samples", "uniform"):
            raise ValueError(f"weighting: expected 'samples' or 'uniform', got {weighting!r}")
        self.eps1 = eps1
        self.eps2 = eps2
        self.warm_up = warm_up
        self.weighting = weighting

    def init_state(self, server: ServerContext, initialisation: Bank) -> ServerState:
        """Return one cluster of all clients."""
        size = server.num_clients
        return {
            CLUSTER: torch.zeros(size, dtype=torch.int64),
            ROUND: torch.tensor(0),
            MEAN_NORM: torch.zeros(size, dtype=torch.float64),
            NORM: torch.zeros(size, dtype=torch.float64),
        }

    def figures(self, state: ServerState) -> Mapping[str, float]:
        """Return the number of clusters and, after a round, what its splits were decided by."""
        clusters = {"clusters": float(len(state[CLUSTER].unique()))}
        if not state[ROUND]:
            return clusters
        return clusters | {
            "mean_update_norm_min": state[MEAN_NORM].min().item(),
            "update_norm_max": state[NORM].max().item(),
        }

    def traffic(
        self, participants: Tensor, state: ServerState, server: ServerContext
    ) -> tuple[Tensor, Tensor]:
        """Return what FedAvg costs; without n_i where means are uniform."""
        up, down = super().traffic(participants, state, server)
        return up - COUNT * (self.weighting == "uniform"), down

    def aggregate(
        self, round_: ServerRound, state: ServerState, server: ServerContext
    ) -> tuple[Broadcast, ServerState]:
        """Split clusters, then average within them."""
        broadcast, state = super().aggregate(round_, self.split(round_, state, server), server)
        models = dict(broadcast.models)
        counters = self.exchanged(server) & set(server.model.counters)
        models |= {name: round_.uploads[name].clone() for name in counters}
        for members in clusters(state):
            present = among(members, round_.participants)
            if len(present) == 0:
                starts = {n: round_.starts[n][members] for n in self.exchanged(server)}
                models |= replace_rows({n: models[n] for n in starts}, members.tolist(), starts)
                continue
            for name in counters:
                models[name][members] = round_.uploads[name][present].amax(0)
        return replace(broadcast, models=models), state

    def mixing(
        self, uploads: Bank, participants: Tensor, state: ServerState, server: ServerContext
    ) -> tuple[Mapping[str, Tensor], ServerState]:
        """Return FedAvg's row of each client's cluster, for every tensor.

        Rows of a cluster without participants are 0.
        """
        matrix_MM = torch.zeros(server.num_clients, server.num_clients, dtype=torch.float64)
        for members in clusters(state):
            present = among(members, participants)
            if len(present):
                matrix_MM[members] = self.weights(present, server)
        return one_matrix(matrix_MM, server), state

    def weights(self, members: Tensor, server: ServerContext) -> Tensor:
        """Return the weights of a cluster's mean, float64 ``[M]``; 0 for other clients."""
        n_M = server.num_samples_M
        return sample_weights(torch.ones_like(n_M) if self.weighting == "uniform" else n_M, members)

    def split(self, round_: ServerRound, state: ServerState, server: ServerContext) -> ServerState:
        """Return the state of this round, with clusters split where the criteria hold."""
        new = {name: value.clone() for name, value in state.items()}
        new[ROUND] += 1
        uploads = {name: round_.uploads[name] for name in server.model.parameters}
        for members in clusters(state):
            present = among(members, round_.participants)
            if len(present) == 0:
                continue
            weights_m = self.weights(present, server)[present]
            mean, each_m = update_norms(uploads, round_.starts, weights_m, present)
            new[MEAN_NORM][members], new[NORM][present] = mean, each_m
            if len(present) < len(members):
                continue
            at_odds = bool(mean < self.eps1) and bool(each_m.max() > self.eps2)
            if at_odds and len(members) > 2 and new[ROUND] > self.warm_up:
                part = members[bipartition(cosines(uploads, round_.starts, members))]
                new[CLUSTER][part] = part[0]
        return new


def clusters(state: ServerState) -> list[Tensor]:
    """Return the members of every cluster, ascending ids."""
    return [(state[CLUSTER] == cluster).nonzero()[:, 0] for cluster in state[CLUSTER].unique()]


def among(members: Tensor, participants: Tensor) -> Tensor:
    """Return the members that take part, ascending ids."""
    return members[torch.isin(members, participants)]

"""The contract of the server side.

An aggregator turns the bank of last uploads into what the clients receive. It is mostly a mixing
matrix for each group of tensors; the matrices are pure functions in `cwfed.functional`, applied in
one place here. Aggregators hold hyperparameters only: what evolves is a state that the loop owns
and the checkpoint saves.

Legend: M clients, m participants, K classes, F features.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from cwfed.aggregators.banks import mix
from cwfed.contract.spec import ModelSpec
from cwfed.functional.stacking import Bank

ServerState = Mapping[str, Tensor]

COUNT = 8
"""Bytes of a number of samples."""


def _only_one(index: int) -> Mapping[str, Tensor]:
    raise RuntimeError(f"no other initialisation is known than the common one, asked for {index}")


@dataclass(frozen=True)
class ServerContext:
    """Facts that the server knows from the start.

    Attributes:
        num_samples_M: Training samples n_i of every client, int64 ``[M]``.
        label_counts_MK: Label counts n_ij, int64 ``[M, K]``; read only by methods whose clients
            send them.
        model: The model's names.
        sizes: Bytes of one client's tensor, by name.
        new_initialisation: Called with k >= 1, returns the k-th other random initialisation of
            the model by name, the same at every call: for methods that start from several.

    Example:
        >>> import torch
        >>> from cwfed.aggregators.by_hand import make_server
        >>> server = make_server({"head.weight": torch.zeros(2, 3, 4)}, [[5, 0, 1], [0, 2, 2]])
        >>> isinstance(server, ServerContext), server.num_clients, server.num_samples_M.tolist()
        (True, 2, [6, 4])
    """

    num_samples_M: Tensor
    label_counts_MK: Tensor
    model: ModelSpec
    sizes: Mapping[str, int] = field(default_factory=dict)
    new_initialisation: Callable[[int], Mapping[str, Tensor]] = _only_one

    @property
    def num_clients(self) -> int:
        """Return M."""
        return len(self.num_samples_M)


class Clients(Protocol):
    """Computations that the server may ask clients to do on their own data."""

    def loss(self, clients: Tensor, models: Bank, part: str) -> Tensor:
        """Return the mean cross-entropy of each client's row on one part of its data.

        Args:
            clients: Ids, int64 ``[m]``.
            models: A row for every client, ``[M, ...]`` by name.
            part: ``train``, or ``holdout`` for the part kept by `Aggregator.holdout_fraction`.

        Returns:
            float64 ``[m]``; infinite for a client without samples there or a loss that is not a
            number.
        """

    def class_means(self, clients: Tensor, models: Bank) -> tuple[Tensor, Tensor]:
        """Return each client's mean unit-length feature by class, over its training part.

        Args:
            clients: Ids, int64 ``[m]``.
            models: A row for every client, ``[M, ...]`` by name.

        Returns:
            Means of the output layer's inputs, each scaled to unit length, ``[m, K, F]`` (zeros
            for a class without samples), and sample counts, int64 ``[m, K]``.
        """


@dataclass(frozen=True)
class ServerRound:
    """Uploads that reach the server in a round.

    Attributes:
        uploads: The last upload of every client, ``[M, ...]`` by name; the common initialisation
            where a client has not uploaded yet. Finite: who uploads anything else is no
            participant, and the upload before stands here.
        starts: What the participants' training started from, ``[M, ...]`` by name.
        participants: Ids of the clients whose uploads are of this round, int64, ascending, at
            least one. Clients that failed or were lost in the round are not among them, also where
            a method `needs_everyone`.
        clients: The clients, to ask for what they compute.
    """

    uploads: Bank
    starts: Bank
    participants: Tensor
    clients: Clients


@dataclass(frozen=True)
class Broadcast:
    """Models that the clients receive.

    Attributes:
        models: With which every client would start the next round, ``[M, ...]`` by name.
        anchors: What proximal terms pull towards, ``[M, ...]`` by name; None: towards what a
            client starts the round with, after its own choice or mix.
        mixing: Who learns from whom, for figures: row i holds the weights of all clients' uploads
            in what client i receives, is pulled towards or, for methods whose clients mix, started
            the round from, float64 ``[M, M]`` by tensor name. Rows sum to 1; one of zeros stands
            for a model that this round has left as it was (a cluster or centre without uploads).
            Tensors that no such matrix makes are left out.
    """

    models: Bank
    anchors: Bank | None = None
    mixing: Mapping[str, Tensor] = field(default_factory=dict)


class Aggregator(ABC):
    """Server side of a method.

    Attributes:
        holdout_fraction: Fraction of each client's training part that the method keeps from
            training for decisions of its own (FedFomo's validation part).
        needs_everyone: Why the method cannot work with a part of the clients, or None.

    Args:
        aggregate_buffers: Whether floating-point buffers (BatchNorm statistics) are aggregated
            with the weights of the block they stand in, and integer counters take the maximum
            over the participants. False leaves every client its own, as the released code does.

    Example:
        >>> import torch
        >>> from cwfed import aggregate
        >>> class FromFirst(Aggregator):
        ...     def aggregate(self, round_, state, server):
        ...         first = {n: rows[:1].expand_as(rows) for n, rows in round_.uploads.items()}
        ...         return Broadcast(first), state
        >>> uploads = {"head.weight": torch.tensor([[[1.0], [2.0]], [[3.0], [4.0]]])}
        >>> aggregate(FromFirst(), uploads, [[1, 1], [1, 1]]).models["head.weight"].tolist()
        [[[1.0], [2.0]], [[1.0], [2.0]]]
    """

    holdout_fraction: float = 0.0
    needs_everyone: str | None = None

    def __init__(self, aggregate_buffers: bool = True) -> None:
        self.aggregate_buffers = aggregate_buffers

    def validate(self, server: ServerContext) -> None:  # noqa: B027
        """Raise a ValueError where the hyperparameters do not fit the model or the clients."""

    def init_state(self, server: ServerContext, initialisation: Bank) -> ServerState:
        """Return the state before the first round; tensors by name.

        They keep their names, shapes and dtypes over the rounds: a run is stopped where `select` or
        `aggregate` return others, since no checkpoint of it could be resumed from.

        Args:
            server: What the server knows.
            initialisation: The common initialisation, M equal rows by name.
        """
        return {}

    def figures(self, state: ServerState) -> Mapping[str, float]:
        """Return numbers that tell how the method fares, by name; recorded every round."""
        return {}

    def hyperparameter(self, name: str, server: ServerContext) -> Any:
        """Return a value that a loss term takes from here (`ObjectiveTerm.from_server`).

        By default the attribute of that name.

        Raises:
            AttributeError: There is none.
        """
        return getattr(self, name)

    def exchanged(self, server: ServerContext) -> frozenset[str]:
        """Return the names of the tensors that travel between clients and server."""
        names = [*server.model.parameters]
        if self.aggregate_buffers:
            names += [*server.model.float_buffers, *server.model.counters]
        return frozenset(names)

    def traffic(
        self, participants: Tensor, state: ServerState, server: ServerContext
    ) -> tuple[Tensor, Tensor]:
        """Return the bytes that each participant sends and receives in a round.

        By default one model each way and the number of samples n_i up: the tensors that are
        `exchanged`. The download is what the participant needs to start the round; in the first
        that is their common initialisation. Tensors that never travel later are taken to be made
        from the seed.

        Args:
            participants: Ids, int64 ``[m]``.
            state: The state before the round.
            server: What the server knows.

        Returns:
            Bytes up and bytes down, int64 ``[m]`` each.
        """
        model = sum(server.sizes[name] for name in self.exchanged(server))
        count = COUNT if model else 0
        return torch.full_like(participants, model + count), torch.full_like(participants, model)

    def select(
        self,
        received: Bank,
        uploads: Bank,
        participants: Tensor,
        state: ServerState,
        server: ServerContext,
        clients: Clients,
    ) -> tuple[Bank, ServerState]:
        """Return what the participants start from, chosen on their own data, and the state.

        By default what they received.

        Args:
            received: The models of the last `Broadcast`, ``[M, ...]`` by name.
            uploads: The last upload of every client, ``[M, ...]`` by name.
            participants: Ids, int64, ascending.
            state: The state as of the last round; not to be changed.
            server: What the server knows.
            clients: The clients, to ask for what they compute.
        """
        return received, state

    @abstractmethod
    def aggregate(
        self, round_: ServerRound, state: ServerState, server: ServerContext
    ) -> tuple[Broadcast, ServerState]:
        """Return what the clients receive, and the state. Every client gets a finite model.

        Args:
            round_: What reached the server.
            state: The state as of the last round; not to be changed.
            server: What the server knows.
        """


class MixingAggregator(Aggregator):
    """An aggregator that is a mixing matrix for each tensor and nothing else."""

    @abstractmethod
    def mixing(
        self, uploads: Bank, participants: Tensor, state: ServerState, server: ServerContext
    ) -> tuple[Mapping[str, Tensor], ServerState]:
        """Return the mixing matrix of every parameter and floating-point buffer, and the state.

        Args:
            uploads: As in `ServerRound`.
            participants: As in `ServerRound`.
            state: The state as of the last round; not to be changed.
            server: What the server knows.

        Returns:
            Matrices ``[M, M]`` in float64 by tensor name, and the new state.
        """

    def aggregate(
        self, round_: ServerRound, state: ServerState, server: ServerContext
    ) -> tuple[Broadcast, ServerState]:
        """Apply the matrices. Arguments as for `Aggregator.aggregate`."""
        matrices, state = self.mixing(round_.uploads, round_.participants, state, server)
        mixed = self.exchanged(server) - set(server.model.counters)
        shown = {name: matrix for name, matrix in matrices.items() if name in mixed}
        return Broadcast(self.apply(matrices, round_, server), mixing=shown), state

    def apply(
        self, matrices: Mapping[str, Tensor], round_: ServerRound, server: ServerContext
    ) -> dict[str, Tensor]:
        """Return the mixed models; a tensor without a matrix stays each client's own."""
        uploads, participants = round_.uploads, round_.participants
        models = dict(uploads)
        for name in self.exchanged(server):
            if name in server.model.counters:
                top = uploads[name][participants].amax(0)
                models[name] = top.expand(uploads[name].shape)
            elif name in matrices:
                models[name] = mix(matrices[name], uploads[name])
        return models


def same_for_all(weights_M: Tensor) -> Tensor:
    """Return the mixing matrix ``[M, M]`` that gives every client the same average."""
    return weights_M.expand(len(weights_M), -1)


def one_matrix(matrix_MM: Tensor, server: ServerContext) -> dict[str, Tensor]:
    """Return one mixing matrix for all parameters and floating-point buffers."""
    return dict.fromkeys((*server.model.parameters, *server.model.float_buffers), matrix_MM)


def identity(size: int) -> Tensor:
    """Return the mixing matrix that leaves every client its own model, float64."""
    return torch.eye(size, dtype=torch.float64)

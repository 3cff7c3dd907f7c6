"""Aggregators on a few tensors, without data, model or training: to try them and to learn.

Legend: M clients, K classes, F features.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from cwfed.aggregators.base import (
    Aggregator,
    Broadcast,
    Clients,
    ServerContext,
    ServerRound,
)
from cwfed.contract.spec import ModelSpec
from cwfed.functional.stacking import Bank, replicate, row


class _Nobody:
    """Clients that cannot be asked: there are no data."""

    def loss(self, clients: Tensor, models: Bank, part: str) -> Tensor:
        raise ValueError("clients: expected an object with a method loss, since the method asks it")

    def class_means(self, clients: Tensor, models: Bank) -> tuple[Tensor, Tensor]:
        raise ValueError("clients: expected an object with class_means, since the method asks it")


def _only_one(index: int) -> Mapping[str, Tensor]:
    raise ValueError(
        "aggregator: expected a method that starts from one initialisation, got one that asks for "
        "others, which need a model"
    )


def aggregate(
    aggregator: Aggregator,
    uploads: Mapping[str, Tensor],
    label_counts: Tensor | Sequence[Sequence[int]],
    *,
    head: str | None = None,
    participants: Sequence[int] | None = None,
    initialisation: Mapping[str, Tensor] | None = None,
    clients: Clients | None = None,
) -> Broadcast:
    """Aggregate one round of uploads: what the clients receive, and who learned from whom.

    Args:
        aggregator: The method's server side.
        uploads: The clients' models, ``[M, ...]`` by name, floating point.
        label_counts: Training samples n_ij of class j on client i, ``[M, K]``.
        head: Name of the output layer's weight, ``[M, K, F]`` among the uploads. By default the
            last tensor of such a shape.
        participants: Ids of the clients that upload; by default all.
        initialisation: The model that training started from, by name; by default zeros. Clients
            that do not upload still have it.
        clients: What answers for the clients; needed by methods that have them compute something,
            see `cwfed.aggregators.base.Clients`.

    Returns:
        ``models``, ``[M, ...]`` by name, and ``mixing``, the matrices ``[M, M]`` by name.

    Raises:
        ValueError: Shapes or numbers do not fit; the message names the argument.

    Example:
        >>> from cwfed.aggregators import CwFedAvg
        >>> uploads = {"head.weight": torch.tensor([[[1.0], [0.0]], [[0.0], [1.0]]])}
        >>> sent = aggregate(CwFedAvg(), uploads, [[9, 0], [0, 9]])
        >>> sent.mixing["head.weight"]  # one class each: nothing is shared
        tensor([[1., 0.],
                [0., 1.]], dtype=torch.float64)
    """
    server = make_server(uploads, label_counts, head=head)
    aggregator.validate(server)
    start = replicate(_initialisation(uploads, initialisation), server.num_clients)
    taking_part = _participants(participants, server.num_clients)
    absent = torch.ones(server.num_clients, dtype=torch.bool)
    absent[taking_part] = False
    sent = {name: value.clone() for name, value in uploads.items()}
    for name, value in sent.items():
        value[absent] = start[name][absent]
    round_ = ServerRound(sent, start, taking_part, clients or _Nobody())
    return aggregator.aggregate(round_, aggregator.init_state(server, start), server)[0]


def make_server(
    uploads: Mapping[str, Tensor],
    label_counts: Tensor | Sequence[Sequence[int]],
    *,
    head: str | None = None,
) -> ServerContext:
    """Return what a server knows of clients that are no more than tensors.

    Args:
        uploads: The clients' models, ``[M, ...]`` by name, floating point.
        label_counts: Training samples n_ij of class j on client i, ``[M, K]``.
        head: Name of the output layer's weight; by default the last tensor ``[M, K, F]``.

    Raises:
        ValueError: Shapes or numbers do not fit; the message names the argument.
    """
    counts_MK = _counts(label_counts)
    num_clients, num_classes = counts_MK.shape
    for name, value in uploads.items():
        if not value.dim() or len(value) != num_clients or not value.is_floating_point():
            raise ValueError(
                f"uploads: expected floating-point tensors with a row for each of {num_clients} "
                f"clients, got {name!r} of shape {tuple(value.shape)}, {value.dtype}"
            )
    fitting = [n for n, v in uploads.items() if v.dim() == 3 and v.shape[1] == num_classes]
    if not fitting or head not in (None, *fitting):
        raise ValueError(
            f"head: expected the name of an upload of shape ({num_clients}, {num_classes}, "
            f"features), got {head!r} with {list(uploads)}"
        )
    return ServerContext(
        num_samples_M=counts_MK.sum(1),
        label_counts_MK=counts_MK,
        model=_contract(uploads, head or fitting[-1], num_classes),
        new_initialisation=_only_one,
        sizes={name: value[0].numel() * value.element_size() for name, value in uploads.items()},
    )


def _contract(uploads: Bank, head_weight: str, num_classes: int) -> ModelSpec:
    head = head_weight.rpartition(".")[0]
    bias = f"{head}.bias" if head else "bias"
    has_bias = bias in uploads and uploads[bias].shape[1:] == (num_classes,)
    blocks: dict[str, list[str]] = {}
    for name in uploads:
        blocks.setdefault(name.partition(".")[0], []).append(name)
    return ModelSpec(
        head=head or head_weight,
        head_weight=head_weight,
        head_bias=bias if has_bias else None,
        blocks=tuple(map(tuple, blocks.values())),
        parameters=tuple(uploads),
        float_buffers=(),
        counters=(),
    )


def _counts(label_counts: Tensor | Sequence[Sequence[int]]) -> Tensor:
    counts_MK = torch.as_tensor(label_counts)
    if counts_MK.dim() != 2 or not counts_MK.numel() or (counts_MK < 0).any():
        raise ValueError(
            f"label_counts: expected numbers >= 0, clients x classes, got {counts_MK.tolist()}"
        )
    return counts_MK.to(torch.int64)


def _participants(participants: Sequence[int] | None, num_clients: int) -> Tensor:
    ids = sorted(set(range(num_clients) if participants is None else participants))
    if not ids or ids[0] < 0 or ids[-1] >= num_clients:
        raise ValueError(
            f"participants: expected at least one id from 0 to {num_clients - 1}, got "
            f"{participants}"
        )
    return torch.tensor(ids)


def _initialisation(uploads: Bank, initialisation: Mapping[str, Tensor] | None) -> Bank:
    first = row(uploads, 0)
    if initialisation is None:
        return {name: torch.zeros_like(value) for name, value in first.items()}
    for name, value in first.items():
        if name not in initialisation or initialisation[name].shape != value.shape:
            raise ValueError(
                f"initialisation: expected {name!r} of shape {tuple(value.shape)}, got "
                f"{ {n: tuple(v.shape) for n, v in initialisation.items()} }"
            )
    return {name: initialisation[name].to(value) for name, value in first.items()}

"""Dividing a data set among clients, and each client's share into parts.

Legend: N samples, K classes, M clients.
"""

import torch
from torch import Tensor

from cwfed.data.images import ImageData
from cwfed.data.partitioners import Partitioner
from cwfed.functional.partition import holdout
from cwfed.functional.seeding import numpy_generator
from cwfed.records.manifest import PARTS, ClientSplit, Manifest, Part


def make_manifest(
    data: ImageData,
    partitioner: Partitioner,
    *,
    seed: int,
    train_fraction: float = 0.75,
    val_fraction: float = 0.0,
) -> Manifest:
    """Divide a data set among clients, and each client's share into train, val and test.

    The result depends on the labels, the partitioner and the seed, on no global random state.

    Args:
        data: The data set.
        partitioner: How the samples are divided among clients.
        seed: The run's seed.
        train_fraction: Share of a client's samples for training, in (0, 1).
        val_fraction: Share of the training part to hold out for validation, in [0, 1). Train
            keeps at least one sample.

    Returns:
        The manifest.

    Raises:
        ValueError: If an argument is out of range or the data cannot be divided this way.
    """
    if not 0 < train_fraction < 1:
        raise ValueError(f"train_fraction: expected a number in (0, 1), got {train_fraction}")
    if not 0 <= val_fraction < 1:
        raise ValueError(f"val_fraction: expected a number in [0, 1), got {val_fraction}")
    pairs = partitioner.train_test(data, seed=seed, train_fraction=train_fraction)
    clients = []
    for client, (train, test) in enumerate(pairs):
        if not (len(train) and len(test)):
            raise ValueError(
                f"num_clients: expected training and test samples on every client, got "
                f"{len(train)} and {len(test)} on client {client} of {len(pairs)}; fewer clients "
                f"or more samples a client are needed"
            )
        kept, val = train, train[:0]
        if val_fraction > 0:
            rng = numpy_generator(seed, "validation", client=client)
            kept, val = holdout(train, val_fraction, rng)
        clients.append(ClientSplit(train=kept, val=val, test=test))
    return Manifest(
        dataset_hash=data.content_hash,
        dataset_name=data.name,
        num_samples=len(data),
        num_classes=data.num_classes,
        clients=tuple(clients),
        origin=partitioner.origin(data),
    )


def label_counts(manifest: Manifest, labels_N: Tensor, part: Part | tuple[Part, ...]) -> Tensor:
    """Count each client's labels.

    Args:
        manifest: The partition.
        labels_N: The data set's labels.
        part: ``"train"``, ``"val"``, ``"test"`` or a tuple of them, counted together.

    Returns:
        int64 counts ``[M, K]``.

    Raises:
        ValueError: If a part is unknown or the labels are not N.
    """
    parts = (part,) if isinstance(part, str) else part
    if unknown := [name for name in parts if name not in PARTS]:
        raise ValueError(f"part: expected one of {', '.join(PARTS)}, got {unknown[0]!r}")
    if len(labels_N) != manifest.num_samples:
        raise ValueError(f"labels_N: expected {manifest.num_samples} labels, got {len(labels_N)}")
    counts_MK = torch.zeros(len(manifest.clients), manifest.num_classes, dtype=torch.int64)
    for client, split in enumerate(manifest.clients):
        for name in parts:
            labels = labels_N[torch.from_numpy(getattr(split, name).copy())]
            counts_MK[client] += torch.bincount(labels, minlength=manifest.num_classes)
    return counts_MK

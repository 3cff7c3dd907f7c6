"""The partition of a data set as a value: hashed, saved, loaded and checked.

Legend: N samples, K classes, M clients.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from cwfed.data.images import ImageData
from cwfed.functional.partition import holdout
from cwfed.functional.seeding import numpy_generator
from cwfed.records.atomic import write_atomic
from cwfed.records.checksums import CHECKSUM, opened, sealed
from cwfed.records.reading import load_json, read_text

if TYPE_CHECKING:
    from cwfed.data.partitioners import Partitioner

SCHEMA_VERSION = 1
Part = Literal["train", "val", "test"]
PARTS: tuple[Part, ...] = ("train", "val", "test")
Origin = Mapping[str, str | int | float]
"""How a partition came about, for people: plain values by name."""

MOST_ORIGIN = 20


@dataclass(frozen=True, eq=False)
class ClientSplit:
    """One client's samples: indices into the data set's canonical order.

    Attributes:
        train: Sorted int64 indices to train on.
        val: Sorted int64 indices held out of training; may be empty.
        test: Sorted int64 indices to test on.
    """

    train: np.ndarray
    val: np.ndarray
    test: np.ndarray

    @property
    def train_and_val(self) -> np.ndarray:
        """Return train and val together, sorted."""
        return np.sort(np.concatenate([self.train, self.val]))

    @property
    def all(self) -> np.ndarray:
        """Return all of the client's samples, sorted."""
        return np.sort(np.concatenate([self.train, self.val, self.test]))


@dataclass(frozen=True, eq=False)
class Manifest:
    """Which client holds which sample, and what for; equality is that of `hash`.

    Attributes:
        dataset_hash: Content hash of the data set.
        dataset_name: Name of the data set, for people.
        num_samples: N.
        num_classes: K.
        clients: Each client's parts. Every sample is in exactly one part of one client.
        origin: How the partition came about, where its partitioner says so.

    Raises:
        ValueError: If a sample is missing, used twice or out of range, or a part is not sorted.
    """

    dataset_hash: str
    dataset_name: str
    num_samples: int
    num_classes: int
    clients: tuple[ClientSplit, ...]
    origin: Origin | None = None

    def __post_init__(self) -> None:
        """Check that every sample is in exactly one part of one client."""
        for client, split in enumerate(self.clients):
            for part in PARTS:
                if (np.diff(getattr(split, part)) < 0).any():
                    raise ValueError(
                        f"clients: expected sorted indices, got client {client}, {part}"
                    )
        _check_cover([client.all for client in self.clients], self.num_samples)

    @cached_property
    def hash(self) -> str:
        """Return the SHA-256 (hex) over the data set's hash and every client's three parts.

        The data set's name, its source and how the partition came about do not enter.
        """
        digest = hashlib.sha256(f"cwfed-manifest/{self.dataset_hash}".encode())
        for client in self.clients:
            for part in PARTS:
                indices = np.asarray(getattr(client, part), dtype="<i8")
                # The length goes first, so that no index can move to the next part unseen.
                digest.update(len(indices).to_bytes(8, "little"))
                digest.update(indices.tobytes())
        return digest.hexdigest()

    def label_counts(self, labels_N: Tensor, part: Part | tuple[Part, ...]) -> Tensor:
        """Count each client's labels.

        Args:
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
        if len(labels_N) != self.num_samples:
            raise ValueError(f"labels_N: expected {self.num_samples} labels, got {len(labels_N)}")
        counts_MK = torch.zeros(len(self.clients), self.num_classes, dtype=torch.int64)
        for client, split in enumerate(self.clients):
            for name in parts:
                labels = labels_N[torch.from_numpy(getattr(split, name).copy())]
                counts_MK[client] += torch.bincount(labels, minlength=self.num_classes)
        return counts_MK

    def to_json(self) -> str:
        """Return the manifest as JSON text, one client a line."""
        about = {
            "name": self.dataset_name,
            "hash": self.dataset_hash,
            "num_samples": self.num_samples,
            "num_classes": self.num_classes,
        }
        head: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION, "hash": self.hash, "dataset": about
        }  # fmt: skip
        head |= {"origin": dict(self.origin)} if self.origin else {}
        rows = ",\n".join(
            _compact({part: getattr(client, part).tolist() for part in PARTS})
            for client in self.clients
        )
        origin = f'"origin": {_compact(dict(self.origin))},\n' if self.origin else ""
        return (
            f'{{"schema_version": {SCHEMA_VERSION},\n"hash": {_compact(self.hash)},\n'
            f'"dataset": {_compact(about)},\n{origin}'
            f'"{CHECKSUM}": {_compact(sealed(head)[CHECKSUM])},\n"clients": [\n{rows}\n]}}\n'
        )

    def save(self, path: str | Path) -> None:
        """Write the JSON file at once or not at all: a reader never sees half of it.

        Args:
            path: The file; its folder must exist.

        Raises:
            ValueError: If the folder does not exist.
        """
        target = Path(path)
        if not target.parent.is_dir():
            raise ValueError(f"path: expected an existing folder, got {target.parent}")
        write_atomic(target, self.to_json())

    @classmethod
    def load(cls, path: str | Path) -> Manifest:
        """Read a manifest and check it whole.

        Args:
            path: A file that `save` wrote.

        Returns:
            The manifest.

        Raises:
            ValueError: If the file is missing, damaged, of another schema version, does not use
                every sample exactly once, or does not match its own hash.
        """
        try:
            return _from_json(read_text(Path(path)))
        except (OSError, ValueError, RecursionError) as error:
            raise ValueError(f"{path}: not a readable manifest: {error}") from error


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


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _check_cover(shares: list[np.ndarray], num_samples: int) -> None:
    used = np.concatenate([np.empty(0, dtype=np.int64), *shares])
    if len(used) and not (used.min() >= 0 and used.max() < num_samples):
        raise ValueError(
            f"clients: expected indices in [0, {num_samples}), got {used.min()} to {used.max()}"
        )
    unique, times = np.unique(used, return_counts=True)
    if (times > 1).any():
        raise ValueError(f"clients: expected sample {unique[times > 1][0]} once, got it twice")
    if len(unique) != num_samples:
        raise ValueError(f"clients: expected all {num_samples} samples, got {len(unique)}")


def _from_json(text: str) -> Manifest:
    document = load_json(text)
    version = document.get("schema_version") if isinstance(document, dict) else None
    if version != SCHEMA_VERSION:
        raise ValueError(f"expected schema_version {SCHEMA_VERSION}, got {version!r}")
    head = _field(document, "dataset", dict)
    manifest = Manifest(
        dataset_hash=_field(head, "hash", str),
        dataset_name=_field(head, "name", str),
        num_samples=_field(head, "num_samples", int),
        num_classes=_field(head, "num_classes", int),
        clients=tuple(_client(entry) for entry in _field(document, "clients", list)),
        origin=_origin(_field(document, "origin", dict)) if "origin" in document else None,
    )
    stored = _field(document, "hash", str)
    if stored != manifest.hash:
        raise ValueError(f"expected hash {manifest.hash} (of its indices), got {stored}")
    # The checksum is of what the hash does not cover.
    opened({name: value for name, value in document.items() if name != "clients"})
    return manifest


def _origin(entry: dict[str, Any]) -> Origin:
    if not 0 < len(entry) <= MOST_ORIGIN:
        raise ValueError(f"origin: expected 1 to {MOST_ORIGIN} values, got {len(entry)}")
    for name, value in entry.items():
        if type(value) not in (str, int, float):
            raise ValueError(f"origin: expected text or a number as {name[:60]}, got {value!r:.60}")
    return entry


def _client(entry: object) -> ClientSplit:
    return ClientSplit(**{part: _indices(_field(entry, part, list)) for part in PARTS})


def _indices(values: list[object]) -> np.ndarray:
    # NumPy would turn 1.5 and true into integers without a word.
    for value in values:
        if type(value) is not int or not 0 <= value < 2**63:
            raise ValueError(f"clients: expected sample indices, got {value!r}")
    return np.array(values, dtype=np.int64)


def _field(entry: object, name: str, kind: type) -> Any:
    if not isinstance(entry, dict) or type(entry.get(name)) is not kind:
        got = entry.get(name) if isinstance(entry, dict) else entry
        raise ValueError(f"{name}: expected {kind.__name__}, got {str(got)[:60]!r}")
    return entry[name]

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
from typing import Any, Literal

import numpy as np

from cwfed.records.atomic import write_atomic
from cwfed.records.checksums import CHECKSUM, opened, sealed
from cwfed.records.reading import load_json, read_text

SCHEMA_VERSION = 1
Part = Literal["train", "val", "test"]
PARTS: tuple[Part, ...] = ("train", "val", "test")
Origin = Mapping[str, str | int | float]
"""Origin of a partition, for people: plain values by name."""


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
    """A partition: the samples of each client, and their use; equality is that of `hash`.

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

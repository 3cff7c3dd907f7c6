"""Partitions from files."""

import numpy as np
from torch import Tensor

from cwfed.data.images import ImageData
from cwfed.data.partitioners.base import Partitioner
from cwfed.records.manifest import Manifest, Origin


class FromManifest(Partitioner):
    """A saved partition, given back as it was.

    The file's test parts stay as they are, and so does the union of its train and validation
    parts, whatever ``train_fraction`` says. The validation part is cut anew from that union by
    the run's seed and ``val_fraction``: the seed and fraction the file was made with give the
    file's own manifest, to the hash.

    Args:
        path: The manifest file. It is read at once, so that a wrong file fails before data load.

    Raises:
        ValueError: If the file is missing, damaged or not a manifest this version reads.

    Example:
        >>> import tempfile
        >>> from cwfed.data.manifest import make_manifest
        >>> from cwfed.data.partitioners import IID
        >>> from cwfed.data.sources import SyntheticImages
        >>> images = SyntheticImages(num_classes=2, samples_per_class=20, image_size=16).load()
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     manifest = make_manifest(images, IID(num_clients=4), seed=0)
        ...     manifest.save(f"{folder}/split.json")
        ...     again = make_manifest(images, FromManifest(f"{folder}/split.json"), seed=0)
        >>> again.hash == manifest.hash
        True
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._manifest = Manifest.load(path)
        self.num_clients = len(self._manifest.clients)

    def split(self, labels_N: Tensor, num_classes: int, seed: int) -> list[np.ndarray]:
        """Give back each client's samples, all parts together; ``seed`` changes nothing."""
        self._expect("samples", self._manifest.num_samples, len(labels_N))
        self._expect("classes", self._manifest.num_classes, num_classes)
        return [client.all for client in self._manifest.clients]

    def train_test(
        self, data: ImageData, *, seed: int, train_fraction: float
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Give back each client's train (validation included) and test parts.

        Args:
            data: The data set; it must be the one the manifest was made for.
            seed: Changes nothing.
            train_fraction: Changes nothing.

        Returns:
            For each client its sorted train and test indices.

        Raises:
            ValueError: If the manifest was made for another data set.
        """
        self._expect("content hash", self._manifest.dataset_hash, data.content_hash)
        self._expect("samples", self._manifest.num_samples, len(data))
        self._expect("classes", self._manifest.num_classes, data.num_classes)
        return [(client.train_and_val, client.test) for client in self._manifest.clients]

    def origin(self, data: ImageData) -> Origin | None:
        """Return what the file says of its partition."""
        return self._manifest.origin

    def _expect(self, what: str, expected: object, got: object) -> None:
        if expected != got:
            raise ValueError(
                f"path: {self.path} divides another data set "
                f"({self._manifest.dataset_name}): expected {what} {expected}, got {got}"
            )


class FromSource(Partitioner):
    """The partition with which the data come, such as those of PFLlib's folders.

    Training and test parts are those of the source, whatever ``train_fraction`` and the seed say.
    A validation part is cut from training samples by the run's seed and ``val_fraction``.

    Attributes:
        num_clients: 0 until the data are there.

    Example:
        >>> import torch
        >>> FromSource().split(torch.tensor([0, 1]), 2, seed=0)
        Traceback (most recent call last):
        ValueError: FromSource: expected a data set that comes divided, got labels alone
    """

    def __init__(self) -> None:
        self.num_clients = 0

    def split(self, labels_N: Tensor, num_classes: int, seed: int) -> list[np.ndarray]:
        """Refuse: labels do not say who holds them.

        Raises:
            ValueError: Always.
        """
        raise ValueError("FromSource: expected a data set that comes divided, got labels alone")

    def train_test(
        self, data: ImageData, *, seed: int, train_fraction: float
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Give back each client's train and test parts.

        Args:
            data: A data set that comes divided among clients.
            seed: Changes nothing.
            train_fraction: Changes nothing.

        Returns:
            For each client its sorted train and test indices.

        Raises:
            ValueError: If the data do not come divided.
        """
        order = data.source_order
        if order is None or order.sizes is None:
            raise ValueError(
                f"FromSource: expected data that come divided among clients, such as PFLlib's "
                f"folders (--data PFLlib), got {data.name}"
            )
        ends = np.cumsum([size for pair in order.sizes for size in pair])
        parts = [np.sort(part) for part in np.split(order.indices_N.numpy(), ends[:-1])]
        self.num_clients = len(order.sizes)
        return list(zip(parts[::2], parts[1::2], strict=True))

    def origin(self, data: ImageData) -> Origin | None:
        """Return that the source has divided the data, and how it lists them."""
        order = data.source_order
        return {"partitioner": "FromSource", "order": f"source: {order.name}"} if order else None

"""How a data set is divided among clients: one small class for each protocol."""

import math
from abc import ABC, abstractmethod

import numpy as np
from torch import Tensor

from cwfed.data.images import ImageData
from cwfed.data.manifest import Manifest
from cwfed.functional import partition
from cwfed.functional.seeding import numpy_generator


class Partitioner(ABC):
    """Divides the samples of a data set among clients.

    A partition is a function of the labels, the partitioner's arguments and the seed: no global
    random state, no pixels.

    Attributes:
        num_clients: M, the number of clients.
    """

    num_clients: int

    @abstractmethod
    def split(self, labels_N: Tensor, num_classes: int, seed: int) -> list[np.ndarray]:
        """Divide the samples among the clients.

        Args:
            labels_N: int64 class indices in ``[0, num_classes)``.
            num_classes: K.
            seed: The run's seed.

        Returns:
            M sorted int64 index arrays, disjoint, that cover all samples.

        Raises:
            ValueError: If these labels cannot be divided this way.
        """

    def train_test(
        self, data: ImageData, *, seed: int, train_fraction: float
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Divide the samples among the clients, and each client's share into train and test.

        Args:
            data: The data set.
            seed: The run's seed.
            train_fraction: Share of a client's samples for training, in (0, 1).

        Returns:
            For each client its sorted train and test indices.

        Raises:
            ValueError: If these data cannot be divided this way.
        """
        shares = self.split(data.labels_N, data.num_classes, seed)
        return [
            partition.train_test_split(
                share, train_fraction, numpy_generator(seed, "train_test", client=client)
            )
            for client, share in enumerate(shares)
        ]


class Pathological(Partitioner):
    """Every client holds the same small number of classes, in unequal random portions.

    Args:
        num_clients: Number of clients M.
        classes_per_client: Number of classes c that each client holds. M x c must be a multiple
            of the number of classes K. The paper takes 2 for MNIST and CIFAR-10, 10 for CIFAR-100
            and 20 for Tiny ImageNet.

    Raises:
        ValueError: If an argument is not an integer >= 1.
    """

    def __init__(self, num_clients: int = 20, classes_per_client: int = 2) -> None:
        self.num_clients = _at_least("num_clients", num_clients, 1)
        self.classes_per_client = _at_least("classes_per_client", classes_per_client, 1)

    def split(self, labels_N: Tensor, num_classes: int, seed: int) -> list[np.ndarray]:
        """Divide the samples; see `cwfed.functional.partition.pathological`."""
        return partition.pathological(
            labels_N.cpu().numpy(),
            num_classes,
            self.num_clients,
            self.classes_per_client,
            numpy_generator(seed, "partition"),
        )


class Dirichlet(Partitioner):
    """The practical setting: each class divided by proportions drawn from a Dirichlet.

    Args:
        num_clients: Number of clients M.
        alpha: Concentration α of the Dirichlet distribution, > 0; the smaller, the more skewed.
        min_samples: Fewest samples a client may hold. Default: 40, or half the mean client size
            if that is smaller.

    Raises:
        ValueError: If an argument is out of range.
    """

    def __init__(
        self, num_clients: int = 20, alpha: float = 0.1, min_samples: int | None = None
    ) -> None:
        self.num_clients = _at_least("num_clients", num_clients, 1)
        if isinstance(alpha, bool) or not (math.isfinite(alpha) and alpha > 0):
            raise ValueError(f"alpha: expected a finite number > 0, got {alpha}")
        self.alpha = alpha
        self.min_samples = None if min_samples is None else _at_least("min_samples", min_samples, 1)

    def split(self, labels_N: Tensor, num_classes: int, seed: int) -> list[np.ndarray]:
        """Divide the samples; see `cwfed.functional.partition.dirichlet`."""
        return partition.dirichlet(
            labels_N.cpu().numpy(),
            num_classes,
            self.num_clients,
            self.alpha,
            self.min_samples,
            numpy_generator(seed, "partition"),
        )


class IID(Partitioner):
    """Samples dealt at random: client sizes differ by at most one.

    Args:
        num_clients: Number of clients M.

    Raises:
        ValueError: If ``num_clients`` is not an integer >= 1.
    """

    def __init__(self, num_clients: int = 20) -> None:
        self.num_clients = _at_least("num_clients", num_clients, 1)

    def split(self, labels_N: Tensor, num_classes: int, seed: int) -> list[np.ndarray]:
        """Divide the samples; see `cwfed.functional.partition.iid`."""
        return partition.iid(len(labels_N), self.num_clients, numpy_generator(seed, "partition"))


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

    def _expect(self, what: str, expected: object, got: object) -> None:
        if expected != got:
            raise ValueError(
                f"path: {self.path} divides another data set "
                f"({self._manifest.dataset_name}): expected {what} {expected}, got {got}"
            )


def _at_least(name: str, value: int, low: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise ValueError(f"{name}: expected an integer >= {low}, got {value}")
    return value

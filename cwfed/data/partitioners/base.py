"""The contract of partitioners."""

from abc import ABC, abstractmethod

import numpy as np
from torch import Tensor

from cwfed.data.images import ImageData
from cwfed.functional import partition
from cwfed.functional.seeding import numpy_generator
from cwfed.records.manifest import Origin


class Partitioner(ABC):
    """Divides the samples of a data set among clients.

    A partition is a function of the labels, the partitioner's arguments and the seed: no global
    random state, no pixels.

    Attributes:
        num_clients: M, the number of clients.

    Example:
        >>> import numpy as np, torch
        >>> class Halves(Partitioner):
        ...     num_clients = 2
        ...     def split(self, labels_N, num_classes, seed):
        ...         return np.array_split(np.arange(len(labels_N)), 2)
        >>> Halves().split(torch.zeros(5, dtype=torch.int64), 1, seed=0)
        [array([0, 1, 2]), array([3, 4])]
    """

    num_clients: int

    @abstractmethod
    def split(self, labels_N: Tensor, num_classes: int, seed: int) -> list[np.ndarray]:
        """Divide the samples among the clients.

        Args:
            labels_N: int64 class indices in ``[0, num_classes)``.
            num_classes: Number of classes, K.
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

    def origin(self, data: ImageData) -> Origin | None:
        """Return how the partition comes about, where its file is to say so.

        Args:
            data: The data set.
        """
        return None

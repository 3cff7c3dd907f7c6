"""The suite's own partitions: functions of labels, arguments and the run's seed."""

import math

import numpy as np
from torch import Tensor

from cwfed.data.partitioners.base import Partitioner
from cwfed.functional import partition
from cwfed.functional.seeding import numpy_generator
from cwfed.messages.checks import require_integer


class Pathological(Partitioner):
    """Every client holds the same small number of classes, in unequal random portions.

    Args:
        num_clients: Number of clients M.
        classes_per_client: Number of classes c that each client holds. M x c must be a multiple
            of the number of classes K. The paper takes 2 for MNIST and CIFAR-10, 10 for CIFAR-100
            and 20 for Tiny ImageNet.

    Raises:
        ValueError: If an argument is not an integer >= 1.

    Example:
        >>> import torch
        >>> labels_N = torch.arange(120) % 3
        >>> shares = Pathological(num_clients=3, classes_per_client=1).split(labels_N, 3, seed=0)
        >>> [len(labels_N[share].unique()) for share in shares]
        [1, 1, 1]
    """

    def __init__(self, num_clients: int = 20, classes_per_client: int = 2) -> None:
        self.num_clients = require_integer("num_clients", num_clients, 1)
        self.classes_per_client = require_integer("classes_per_client", classes_per_client, 1)

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

    Example:
        >>> import torch
        >>> labels_N = torch.arange(120) % 3
        >>> shares = Dirichlet(num_clients=4, alpha=0.1, min_samples=9).split(labels_N, 3, seed=0)
        >>> sum(map(len, shares)), min(map(len, shares)) >= 9
        (120, True)
    """

    def __init__(
        self, num_clients: int = 20, alpha: float = 0.1, min_samples: int | None = None
    ) -> None:
        self.num_clients = require_integer("num_clients", num_clients, 1)
        if isinstance(alpha, bool) or not (math.isfinite(alpha) and alpha > 0):
            raise ValueError(f"alpha: expected a finite number > 0, got {alpha}")
        self.alpha = alpha
        self.min_samples = (
            None if min_samples is None else require_integer("min_samples", min_samples, 1)
        )

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

    Example:
        >>> import torch
        >>> labels_N = torch.arange(120) % 3
        >>> [len(share) for share in IID(num_clients=7).split(labels_N, 3, seed=0)]
        [18, 17, 17, 17, 17, 17, 17]
    """

    def __init__(self, num_clients: int = 20) -> None:
        self.num_clients = require_integer("num_clients", num_clients, 1)

    def split(self, labels_N: Tensor, num_classes: int, seed: int) -> list[np.ndarray]:
        """Divide the samples; see `cwfed.functional.partition.iid`."""
        return partition.iid(len(labels_N), self.num_clients, numpy_generator(seed, "partition"))

"""The partitions that are published with the code base on which the paper builds."""

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from torch import Tensor

from cwfed.data.images import ImageData
from cwfed.data.partitioners.base import Partitioner
from cwfed.data.source_order import SourceOrder
from cwfed.functional import released
from cwfed.messages.checks import require_integer
from cwfed.records.manifest import Origin

Order = Literal["auto", "source", "content"]
MOST_SEED = 2**32 - 1
CONTENT = "content: by label, then by SHA-256 of the image"


class Released(Partitioner):
    """Shared part of both published partitions: a seed of their own, and an order of the samples.

    How many samples of each class a client holds depends on the class sizes alone. Which samples
    these are depends on the order in which they stand when they are dealt.

    Args:
        num_clients: Number of clients M.
        seed: Seed of NumPy's legacy generator, in [0, 2**32). The run's seed changes nothing.
        order: Order of the samples: ``"source"`` is that of the published files (training images,
            then test images; Tiny ImageNet: by class and file name), known where these are read;
            ``"content"`` is by label, then by the SHA-256 of each image, the same for the same
            images from any files; ``"auto"`` takes the source's where it is known.

    Raises:
        ValueError: If an argument is out of range.
    """

    def __init__(self, num_clients: int, seed: int, order: Order) -> None:
        self.num_clients = require_integer("num_clients", num_clients, 1)
        self.seed = require_integer("seed", seed, 0)
        if seed > MOST_SEED:
            raise ValueError(f"seed: expected at most {MOST_SEED}, got {seed}")
        if order not in ("auto", "source", "content"):
            raise ValueError(f"order: expected auto, source or content, got {order!r}")
        self.order = order

    @abstractmethod
    def deal(
        self, labels_N: np.ndarray, num_classes: int, rng: np.random.RandomState
    ) -> list[np.ndarray]:
        """Return the clients' shares in the order in which they are dealt."""

    def split(self, labels_N: Tensor, num_classes: int, seed: int) -> list[np.ndarray]:
        """Divide the samples, in the order in which they come.

        Args:
            labels_N: int64 class indices in ``[0, num_classes)``.
            num_classes: Number of classes, K.
            seed: Changes nothing.

        Returns:
            M sorted int64 index arrays, disjoint, that cover all samples.

        Raises:
            ValueError: If these labels cannot be divided this way.
        """
        rng = np.random.RandomState(self.seed)
        return [np.sort(share) for share in self.deal(labels_N.cpu().numpy(), num_classes, rng)]

    def train_test(
        self, data: ImageData, *, seed: int, train_fraction: float
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Divide the samples in the chosen order, then each share, from one generator.

        Args:
            data: The data set.
            seed: Changes nothing.
            train_fraction: Share of a client's samples for training, in (0, 1).

        Returns:
            For each client its sorted train and test indices.

        Raises:
            ValueError: If these data cannot be divided this way, or the source does not declare an
                order that was asked for.
        """
        rng = np.random.RandomState(self.seed)
        labels_N = data.labels_N.cpu().numpy()
        if (order := self._source_order(data)) is not None:
            canonical_N = order.indices_N.numpy()
            shares = self.deal(labels_N[canonical_N], data.num_classes, rng)
            shares = [canonical_N[share] for share in shares]
        else:
            shares = self.deal(labels_N, data.num_classes, rng)
        return [released.train_test_split(share, train_fraction, rng) for share in shares]

    def origin(self, data: ImageData) -> Origin:
        """Return the partitioner, its seed and the order that was used."""
        order = self._source_order(data)
        return {
            "partitioner": type(self).__name__,
            "seed": self.seed,
            "order": f"source: {order.name}" if order else CONTENT,
        }

    def _source_order(self, data: ImageData) -> SourceOrder | None:
        # A source that comes divided stands client by client, not as it was published.
        whole = data.source_order if data.source_order and not data.source_order.sizes else None
        if self.order == "source" and whole is None:
            raise ValueError(
                f"order: expected a source that declares an order, such as {data.name}'s published "
                f"files, got one that declares none; take content or auto"
            )
        return None if self.order == "content" else whole


class ReleasedDirichlet(Released):
    """The published practical setting, as the released code draws it.

    Args:
        num_clients: Number of clients M.
        alpha: Concentration α of the Dirichlet distribution, > 0; the smaller, the more skewed.
        seed: Seed of NumPy's legacy generator, in [0, 2**32). The run's seed changes nothing.
        order: ``"source"``: as the samples stand in the published files, known where these are
            read; ``"content"``: by label, then by the SHA-256 of each image; ``"auto"``: the
            source's where it is known. Class counts are the same.

    Raises:
        ValueError: If an argument is out of range.

    Example:
        >>> import torch
        >>> labels_N = torch.arange(120) % 3
        >>> shares = ReleasedDirichlet(num_clients=2, alpha=5.0).split(labels_N, 3, seed=0)
        >>> others = ReleasedDirichlet(num_clients=2, alpha=5.0).split(labels_N, 3, seed=9)
        >>> sum(map(len, shares)), all((a == b).all() for a, b in zip(shares, others, strict=True))
        (120, True)
    """

    def __init__(
        self, num_clients: int = 20, alpha: float = 0.1, seed: int = 1, order: Order = "auto"
    ) -> None:
        super().__init__(num_clients, seed, order)
        if isinstance(alpha, bool) or not (math.isfinite(alpha) and alpha > 0):
            raise ValueError(f"alpha: expected a finite number > 0, got {alpha}")
        self.alpha = alpha

    def deal(
        self, labels_N: np.ndarray, num_classes: int, rng: np.random.RandomState
    ) -> list[np.ndarray]:
        """Return the clients' shares; see `cwfed.functional.released.dirichlet`."""
        return released.dirichlet(labels_N, num_classes, self.num_clients, self.alpha, rng)


class ReleasedPathological(Released):
    """The published pathological setting, as the released code draws it.

    Args:
        num_clients: Number of clients M.
        classes_per_client: Number of classes c that each client holds. The paper takes 2 for MNIST
            and CIFAR-10, 10 for CIFAR-100 and 20 for Tiny ImageNet.
        seed: Seed of NumPy's legacy generator, in [0, 2**32). The run's seed changes nothing.
        order: ``"source"``: as the samples stand in the published files, known where these are
            read; ``"content"``: by label, then by the SHA-256 of each image; ``"auto"``: the
            source's where it is known. Class counts are the same.

    Raises:
        ValueError: If an argument is out of range.

    Example:
        >>> import torch
        >>> labels_N = torch.arange(120) % 3
        >>> partitioner = ReleasedPathological(num_clients=3, classes_per_client=1)
        >>> shares = partitioner.split(labels_N, 3, seed=0)
        >>> [labels_N[share].unique().tolist() for share in shares]
        [[0], [1], [2]]
    """

    def __init__(
        self,
        num_clients: int = 20,
        classes_per_client: int = 2,
        seed: int = 1,
        order: Order = "auto",
    ) -> None:
        super().__init__(num_clients, seed, order)
        self.classes_per_client = require_integer("classes_per_client", classes_per_client, 1)

    def deal(
        self, labels_N: np.ndarray, num_classes: int, rng: np.random.RandomState
    ) -> list[np.ndarray]:
        """Return the clients' shares; see `cwfed.functional.released.pathological`."""
        return released.pathological(
            labels_N, num_classes, self.num_clients, self.classes_per_client, rng
        )


def published_counterpart(choice: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the published partition of the kind and size of one of the suite's own.

    Args:
        choice: ``class_path`` and ``init_args`` of a partitioner, as a configuration holds them.

    Returns:
        The same for `ReleasedDirichlet` or `ReleasedPathological`; None where nothing of this kind
        is published.
    """
    package = __name__.rpartition(".")[0]
    arguments = dict(choice.get("init_args") or {})
    own = {
        f"{package}.Dirichlet": ReleasedDirichlet,
        f"{package}.Pathological": ReleasedPathological,
    }
    kind = own.get(str(choice["class_path"]))
    if kind is None or arguments.pop("min_samples", None) is not None:
        return None
    return {"class_path": f"{package}.{kind.__name__}", "init_args": arguments}

"""Federated averaging as it is often written: what the engines are measured against.

Both loops train every client in turn on the CPU, score each client's test set with what it
trained, average, and score it with the average: what a round of the suite does. Data, model and
optimiser are those of the run they stand beside.
"""

from collections.abc import Iterable
from copy import deepcopy
from time import perf_counter

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

from cwfed.data.federated import FederatedData
from cwfed.data.images import normalise

Batches = Iterable[tuple[Tensor, Tensor]]


class TensorLoop:
    """Each client's images in one tensor, served by a DataLoader; evaluation in large batches.

    Args:
        data: The clients' data.
        model: The common initialisation.
    """

    evaluation_batch = 500

    def __init__(self, data: FederatedData, model: nn.Module) -> None:
        self.data = data
        self.models = [deepcopy(model) for _ in range(data.num_clients)]
        self.train = [self.dataset(data.indices(i, "train")) for i in range(data.num_clients)]
        self.test = [self.dataset(data.indices(i, "test")) for i in range(data.num_clients)]

    def dataset(self, indices: Tensor) -> Dataset[tuple[Tensor, ...]]:
        """Return a client's samples, normalised once."""
        images = normalise(self.data.images.images_NCHW[indices], torch.float32)
        return TensorDataset(images, self.data.images.labels_N[indices])

    def round(self) -> dict[str, float]:
        """Train, average and score; return seconds by phase."""
        start = perf_counter()
        for model, samples in zip(self.models, self.train, strict=True):
            train(model, DataLoader(samples, self.data.batch_size, shuffle=True, drop_last=True))
        fitted = perf_counter()
        self.score()
        scored = perf_counter()
        self.average()
        averaged = perf_counter()
        self.score()
        return {
            "fit": fitted - start,
            "evaluate_post_local": scored - fitted,
            "aggregate": averaged - scored,
            "evaluate_received": perf_counter() - averaged,
        }

    def score(self) -> None:
        """Score each client's model on its test set."""
        for model, samples in zip(self.models, self.test, strict=True):
            evaluate(model, DataLoader(samples, self.evaluation_batch))

    def average(self) -> None:
        """Give every client the mean model, weighted by samples."""
        sizes = torch.tensor([float(len(samples)) for samples in self.train])  # type: ignore[arg-type]
        with torch.no_grad():
            for parameters in zip(*(m.parameters() for m in self.models), strict=True):
                mean = sum(w * p for w, p in zip(sizes / sizes.sum(), parameters, strict=True))
                for parameter in parameters:
                    parameter.copy_(mean)


class TupleLoop(TensorLoop):
    """Each client's samples as a list of (image, label) tuples; evaluation in batches of ten."""

    evaluation_batch = 10

    def dataset(self, indices: Tensor) -> Dataset[tuple[Tensor, ...]]:
        """Return a client's samples as a list."""
        samples = super().dataset(indices)
        return [samples[i] for i in range(len(indices))]  # type: ignore[return-value]


def train(model: nn.Module, batches: Batches) -> None:
    """Train on all batches once."""
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.005)
    for images, targets in batches:
        optimizer.zero_grad()
        F.cross_entropy(model(images), targets).backward()
        optimizer.step()


def evaluate(model: nn.Module, batches: Batches) -> int:
    """Return the number of correct predictions."""
    model.eval()
    correct = 0
    with torch.no_grad():
        for images, targets in batches:
            correct += int((model(images).argmax(1) == targets).sum())
    return correct

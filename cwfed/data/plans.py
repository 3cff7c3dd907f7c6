"""Batch plans: which samples a client trains on, step by step, and loaders that follow them.

Legend: N samples of the data set, B samples of a batch.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cwfed.data.images import ImageData


def batch_plan(
    indices: Tensor, batch_size: int, epochs: int, generator: torch.Generator, *, skip_small: bool
) -> list[Tensor]:
    """Return the batches of a client's local training, shuffled anew each epoch.

    The last incomplete batch of an epoch is dropped. A client with fewer samples than a batch
    trains on what it has, one batch an epoch.

    Args:
        indices: The client's training samples, int64.
        batch_size: B.
        epochs: Passes over the samples.
        generator: Source of the shuffling.
        skip_small: Give a client with fewer samples than a batch no batch at all, as the released
            code does.

    Returns:
        Index tensors of at most B samples each.

    Example:
        >>> plan = batch_plan(torch.arange(5), 2, 1, torch.Generator(), skip_small=False)
        >>> [len(batch) for batch in plan]
        [2, 2]
    """
    size = len(indices)
    if size == 0 or (skip_small and size < batch_size):
        return []
    used = size - size % batch_size or size
    plan: list[Tensor] = []
    for _ in range(epochs):
        order = indices[torch.randperm(size, generator=generator)]
        plan.extend(order[:used].split(batch_size))
    return plan


@dataclass(frozen=True)
class PlanLoader:
    """Iterable over the batches of a plan, in the form Lightning's trainer takes.

    Attributes:
        data: The whole data set.
        plan: Index tensors, one a batch.
        dtype: Floating-point type of the images that come out.
    """

    data: ImageData
    plan: Sequence[Tensor]
    dtype: torch.dtype

    def __len__(self) -> int:
        """Return the number of batches."""
        return len(self.plan)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield ``(samples [B, ...], labels [B])``."""
        for batch in self.plan:
            samples = self.data.images_NCHW[batch]
            yield self.data.served(samples, self.dtype), self.data.labels_N[batch]

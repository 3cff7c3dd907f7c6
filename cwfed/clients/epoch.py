"""The client whose local training is one call from Lightning."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cwfed.clients.module import Batch, ClientModule


@dataclass(frozen=True)
class _Whole:
    """A loader of one item, an iterator: Lightning takes lists apart and copies dataclasses."""

    batches: Iterable[Batch]

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[Iterator[Batch]]:
        yield iter(self.batches)


class WholeTrainingClient(ClientModule):
    """A client that takes all its batches in one training step, on the CPU.

    The same loss, gradients and updates as `ClientModule`, to the bit, without Lightning's cost
    of each step, which is a fifth of a step of the CNN on ten images.

    Args:
        *args: As for `ClientModule`.
        **kwargs: As for `ClientModule`.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.automatic_optimization = False

    def feed(self, batches: Iterable[Batch]) -> Iterable[Any]:
        """Return a loader whose only item is all batches."""
        return _Whole(batches)

    def training_step(self, batch: Iterator[Batch], batch_idx: int) -> None:  # type: ignore[override]
        """Train on all batches."""
        optimizer = self.optimizers(use_pl_optimizer=False)
        assert isinstance(optimizer, torch.optim.Optimizer)
        for one in batch:

            def closure(one: Batch = one) -> Tensor:
                loss = super(WholeTrainingClient, self).training_step(one, 0)
                optimizer.zero_grad()
                loss.backward()
                return loss

            optimizer.step(closure)  # type: ignore[arg-type]

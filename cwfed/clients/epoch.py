"""The client whose local training is one call from Lightning."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from cwfed.clients.module import Batch, ClientModule


class WholeTrainingClient(ClientModule):
    """A client that takes all its batches in one training step.

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
        """Return all batches as a single one."""
        return [batches]

    def transfer_batch_to_device(self, batch: Any, device: Any, dataloader_idx: int) -> Any:
        """Leave the batches where they are until their turn comes, and move those of scoring."""
        if isinstance(batch, tuple | list):
            return super().transfer_batch_to_device(batch, device, dataloader_idx)
        return batch

    def training_step(self, batch: Iterable[Batch], batch_idx: int) -> None:  # type: ignore[override]
        """Train on all batches."""
        optimizer = self.optimizers(use_pl_optimizer=False)
        assert isinstance(optimizer, torch.optim.Optimizer)
        for images, targets in batch:
            one = images.to(self.device), targets.to(self.device)

            def closure(one: Batch = one) -> Tensor:
                loss = super(WholeTrainingClient, self).training_step(one, 0)
                optimizer.zero_grad()
                self.manual_backward(loss)
                return loss

            optimizer.step(closure)  # type: ignore[arg-type]

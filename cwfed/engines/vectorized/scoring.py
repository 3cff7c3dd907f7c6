"""Passes without gradients over clients' data, client by client, on the device.

Legend: m clients of a cohort, B samples of a batch, K classes, F features.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional as F

from cwfed.contract.inspection import evaluating
from cwfed.data.federated import Part
from cwfed.engines.base import MEMORY_FORMATS, Workload
from cwfed.engines.vectorized.kernels import features_of
from cwfed.engines.vectorized.resident import ResidentData, rows_on
from cwfed.functional.stacking import Bank, row

_MOVED_AT_ONCE = 64


class Scorer:
    """Scores clients' models; what is found stays on the device until all is done.

    Args:
        workload: The model and the data.
        data: The data set on the device.
        device: Where to compute.
    """

    def __init__(self, workload: Workload, data: ResidentData, device: torch.device) -> None:
        self.workload = workload
        self.data = data
        self.device = device

    def scores(self, clients: Sequence[int], models: Bank, part: Part) -> Tensor:
        """See `cwfed.engines.base.Engine.evaluate`."""
        scores = torch.zeros(len(clients), 3, dtype=torch.float64, device=self.device)
        with self._evaluating():
            for position, state, index in self._batches(clients, models, part):
                images, targets = self._batch(index)
                logits = functional_call(self.workload.model, state, (images,))
                scores[position, 0] += (logits.argmax(1) == targets).sum()
                scores[position, 1] += len(targets)
                scores[position, 2] += F.cross_entropy(logits, targets, reduction="sum")
        return scores.cpu()

    def class_means(self, clients: Sequence[int], models: Bank) -> tuple[Tensor, Tensor]:
        """See `cwfed.engines.base.Engine.class_means`."""
        contract, classes = self.workload.contract, self.workload.data.images.num_classes
        shape = (len(clients), classes, models[contract.head_weight].shape[-1])
        sums = torch.zeros(shape, dtype=torch.float64, device=self.device)
        with self._evaluating(), features_of(self.workload.model, contract) as kept:
            for position, state, index in self._batches(clients, models, "train"):
                images, targets = self._batch(index)
                functional_call(self.workload.model, state, (images,))
                unit_BF = F.normalize(kept.pop().to(torch.float64), dim=1)
                # A product, since adding by index has no fixed order on a GPU.
                member_KB = torch.arange(classes, device=self.device)[:, None] == targets
                sums[position] += member_KB.to(torch.float64) @ unit_BF
        counts = self.workload.data.label_counts_MK("train")[list(clients)]
        return sums.cpu() / counts[..., None].clamp_min(1), counts

    def _batches(
        self, clients: Sequence[int], models: Bank, part: Part
    ) -> Iterator[tuple[int, dict[str, Tensor], Tensor]]:
        """Yield each batch: the client's position, its model and the samples."""
        plans = [self.workload.data.evaluation_loader(client, part).plan for client in clients]
        flat = [batch for plan in plans for batch in plan]
        if not flat:
            return
        on_device = iter(torch.cat(flat).to(self.device).split([len(batch) for batch in flat]))
        for position, state in enumerate(self._models(clients, models)):
            for _ in plans[position]:
                yield position, state, next(on_device)

    def _models(self, clients: Sequence[int], models: Bank) -> Iterator[dict[str, Tensor]]:
        memory_format = MEMORY_FORMATS[self.workload.memory_format]
        for first in range(0, len(clients), _MOVED_AT_ONCE):
            some = range(len(clients))[first : first + _MOVED_AT_ONCE]
            moved = {name: rows_on(value, some, self.device) for name, value in models.items()}
            for position in range(len(some)):
                yield {
                    name: value.contiguous(memory_format=memory_format)
                    if value.ndim == 4
                    else value
                    for name, value in row(moved, position).items()
                }

    def _batch(self, index: Tensor) -> tuple[Tensor, Tensor]:
        images, targets = self.data.batch(index)
        memory_format = MEMORY_FORMATS[self.workload.memory_format]
        return images.contiguous(memory_format=memory_format), targets

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        with evaluating(self.workload.model), torch.no_grad():
            yield

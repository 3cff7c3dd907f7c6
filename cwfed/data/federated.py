"""The clients' data: one decoded data set, divided by a manifest, served in batches."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from cwfed.data.images import ImageData
from cwfed.data.manifest import Manifest
from cwfed.data.plans import PlanLoader, batch_plan
from cwfed.functional.seeding import torch_generator

Part = Literal["train", "val", "test"]


@dataclass(frozen=True)
class FederatedData:
    """Training, validation and test parts of every client.

    Attributes:
        images: The decoded data set.
        manifest: Who holds what.
        seed: The run's seed; batches are a function of (seed, round, client).
        batch_size: Samples of a training batch.
        local_epochs: Passes over the training part in a round.
        eval_batch_size: Samples of an evaluation batch.
        skip_small: See `batch_plan`.
        dtype: Floating-point type of the images served.
    """

    images: ImageData
    manifest: Manifest
    seed: int
    batch_size: int
    local_epochs: int
    eval_batch_size: int = 500
    skip_small: bool = False
    dtype: torch.dtype = torch.float32

    @property
    def num_clients(self) -> int:
        """Return M."""
        return len(self.manifest.clients)

    @cached_property
    def _indices(self) -> dict[str, list[Tensor]]:
        return {
            part: [torch.from_numpy(getattr(client, part)) for client in self.manifest.clients]
            for part in ("train", "val", "test")
        }

    def indices(self, client: int, part: Part) -> Tensor:
        """Return a client's sample indices in one part, int64, ascending."""
        return self._indices[part][client]

    def label_counts_MK(self, *parts: Part) -> Tensor:
        """Return label counts n_ij over the named parts, int64 ``[M, K]``."""
        return self.manifest.label_counts(self.images.labels_N, parts)

    def training_loader(self, client: int, round_: int) -> PlanLoader:
        """Return the batches of one client's local training in one round."""
        generator = torch_generator(self.seed, "batches", round_=round_, client=client)
        plan = batch_plan(
            self.indices(client, "train"),
            self.batch_size,
            self.local_epochs,
            generator,
            skip_small=self.skip_small,
        )
        return self._loader(plan)

    def evaluation_loader(self, client: int, part: Part) -> PlanLoader:
        """Return all samples of one part in large batches, in ascending order."""
        indices = self.indices(client, part)
        return self._loader(indices.split(self.eval_batch_size) if len(indices) else ())

    def _loader(self, plan: Sequence[Tensor]) -> PlanLoader:
        return PlanLoader(self.images.images_NCHW, self.images.labels_N, plan, self.dtype)

"""The clients' data: one decoded data set, divided by a manifest, served in batches."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from cwfed.data.images import ImageData
from cwfed.data.plans import PlanLoader, batch_plan
from cwfed.functional.partition import holdout
from cwfed.functional.seeding import numpy_generator, torch_generator
from cwfed.records.manifest import Manifest

Part = Literal["train", "val", "test", "holdout"]
"""``holdout`` is cut from the training part for decisions of the method, not for selection."""


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
        holdout_fraction: Fraction of each client's training part that the method keeps from
            training.
    """

    images: ImageData
    manifest: Manifest
    seed: int
    batch_size: int
    local_epochs: int
    eval_batch_size: int = 500
    skip_small: bool = False
    dtype: torch.dtype = torch.float32
    holdout_fraction: float = 0.0

    @property
    def num_clients(self) -> int:
        """Return M."""
        return len(self.manifest.clients)

    @cached_property
    def _indices(self) -> dict[str, list[Tensor]]:
        parts: dict[str, list[Tensor]] = {"train": [], "val": [], "test": [], "holdout": []}
        for client, split in enumerate(self.manifest.clients):
            train, kept = split.train, split.train[:0]
            if self.holdout_fraction:
                generator = numpy_generator(self.seed, "holdout", client=client)
                train, kept = holdout(train, self.holdout_fraction, generator)
            arrays = {"train": train, "val": split.val, "test": split.test, "holdout": kept}
            for part, array in arrays.items():
                parts[part].append(torch.from_numpy(array))
        return parts

    def indices(self, client: int, part: Part) -> Tensor:
        """Return a client's sample indices in one part, int64, ascending."""
        return self._indices[part][client]

    def label_counts_MK(self, *parts: Part) -> Tensor:
        """Return label counts n_ij over the named parts, int64 ``[M, K]``."""
        labels, classes = self.images.labels_N, self.images.num_classes
        counts = torch.zeros(self.num_clients, classes, dtype=torch.int64)
        for client in range(self.num_clients):
            for part in parts:
                counts[client] += torch.bincount(
                    labels[self.indices(client, part)], minlength=classes
                )
        return counts

    def training_loader(
        self, client: int, round_: int, epochs: int | None = None, plan: int = 0
    ) -> PlanLoader:
        """Return the batches of one client's local training in one round.

        Args:
            client: Id.
            round_: Round number.
            epochs: Passes over the training part; by default `local_epochs`.
            plan: Number of the plan; the same numbers give the same batches.
        """
        purpose = f"batches/{plan}" if plan else "batches"
        generator = torch_generator(self.seed, purpose, round_=round_, client=client)
        batches = batch_plan(
            self.indices(client, "train"),
            self.batch_size,
            epochs or self.local_epochs,
            generator,
            skip_small=self.skip_small,
        )
        return self._loader(batches)

    def evaluation_loader(self, client: int, part: Part) -> PlanLoader:
        """Return all samples of one part in large batches, in ascending order."""
        indices = self.indices(client, part)
        return self._loader(indices.split(self.eval_batch_size) if len(indices) else ())

    def _loader(self, plan: Sequence[Tensor]) -> PlanLoader:
        return PlanLoader(self.images, plan, self.dtype)

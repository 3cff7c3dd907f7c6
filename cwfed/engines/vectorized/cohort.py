"""Clients that train side by side, their steps, and the Lightning module that runs them.

Clients whose batches have the same size can be stacked. Sorted by their number of steps,
descending, those that still have batches are always a prefix of the stack.

Legend: C clients of a chunk, S steps of the longest, B samples of a batch.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn

Widths = Callable[[int], int]
"""The rows that a step computes, given how many clients still have batches."""


class Chunk:
    """Clients that train side by side. No dataclass: Lightning would copy what is in one.

    Args:
        positions: Their places in the cohort, by steps, descending.
        plans: Their batches, all of one size, at least one a client.

    Attributes:
        steps: Their numbers of steps.
        plan_SCB: Samples of each step, int64; sample 0 where a client has no batch left.
    """

    def __init__(self, positions: Sequence[int], plans: Sequence[Sequence[Tensor]]) -> None:
        self.positions = tuple(positions)
        self.steps = tuple(len(plan) for plan in plans)
        shape = (self.steps[0], len(plans), len(plans[0][0]))
        self.plan_SCB = torch.zeros(shape, dtype=torch.int64)
        for place, plan in enumerate(plans):
            self.plan_SCB[: len(plan), place] = torch.stack(list(plan))

    @property
    def batch_size(self) -> int:
        """Return B."""
        return self.plan_SCB.shape[2]


def make_chunks(plans: Sequence[Sequence[Tensor]], size: int) -> list[Chunk]:
    """Divide a cohort into chunks of at most `size` clients with batches of one size.

    Args:
        plans: Each client's batches, all of one size within a client; see
            `cwfed.data.plans.batch_plan`.
        size: Most clients of a chunk.

    Returns:
        Chunks; clients without batches are in none.
    """
    groups = defaultdict(list)
    for position, plan in enumerate(plans):
        if len(plan):
            groups[len(plan[0])].append(position)
    chunks = []
    for _, members in sorted(groups.items(), reverse=True):
        members.sort(key=lambda position: -len(plans[position]))
        for first in range(0, len(members), size):
            some = members[first : first + size]
            chunks.append(Chunk(some, [plans[position] for position in some]))
    return chunks


@dataclass(frozen=True)
class Segment:
    """Steps between two finishes.

    Attributes:
        width: Rows that are computed.
        steps: How many steps.
        finished: Rows of the clients that have no batch left afterwards.
    """

    width: int
    steps: int
    finished: slice


def schedule(steps: Sequence[int], widths: Widths) -> list[Segment]:
    """Return the segments of a chunk.

    Args:
        steps: Each client's number of steps, descending, all >= 1.
        widths: Rows to compute for a number of clients that still have batches.
    """
    segments, active, done = [], len(steps), 0
    while active:
        width, last = active, steps[active - 1]
        while active and steps[active - 1] == last:
            active -= 1
        segments.append(Segment(widths(width), last - done, slice(active, width)))
        done = last
    return segments


def exact(active: int) -> int:
    """Compute the clients that still have batches and no more."""
    return active


def bucketed(rows: int) -> Widths:
    """Return a policy with few widths: what is captured for each is worth keeping.

    Args:
        rows: The largest width.
    """
    buckets = sorted({ceil(rows * part) for part in (1 / 8, 1 / 4, 1 / 2, 3 / 4, 1)})

    def width(active: int) -> int:
        return next(bucket for bucket in buckets if bucket >= active)

    return width


@dataclass(frozen=True)
class ChunkLoader:
    """Iterable over chunks, in the form Lightning's trainer takes."""

    chunks: Sequence[Chunk]

    def __len__(self) -> int:
        """Return the number of chunks."""
        return len(self.chunks)

    def __iter__(self) -> Iterator[Chunk]:
        """Yield the chunks."""
        return iter(self.chunks)


class CohortModule(LightningModule):
    """A cohort as Lightning sees it: a batch is a chunk, a training step its local training.

    Lightning's cost falls once a chunk, and its precision plugin surrounds the whole.

    Args:
        model: The network; its own weights are not used.

    Attributes:
        train_chunk: Runs a chunk's local training.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.model = model
        self.train_chunk: Callable[[Chunk], None]

    def training_step(self, batch: Chunk, batch_idx: int) -> None:
        """Run the local training of a chunk."""
        self.train_chunk(batch)

    def configure_optimizers(self) -> Any:
        """Return none: the stacked optimiser is made for each chunk."""

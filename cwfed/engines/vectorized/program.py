"""A local training step of stacked clients, and its plain execution.

Legend: S most steps, C rows, w rows that are computed, B samples of a batch.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch

from cwfed.clients.module import OptimizerFactory
from cwfed.engines.vectorized.cohort import Chunk, Widths, exact, schedule
from cwfed.engines.vectorized.kernels import Gradients, LocalLoss
from cwfed.engines.vectorized.resident import ResidentData
from cwfed.engines.vectorized.stack import Stack
from cwfed.engines.vectorized.stacked_optimizer import StackedOptimizer


class Program:
    """Local training of one phase with batches of one size.

    A step reads and writes memory that stays where it is, and needs nothing from the host.

    Args:
        stack: The clients' tensors.
        data: The data set.
        loss: The local objective of one client.
        gradients: The kernel.
        factory: Makes the optimiser.
        trainable: Names of the parameters that are trained.
        shape: (S, C, B), with C at most the size of the stack.
    """

    def __init__(
        self,
        stack: Stack,
        data: ResidentData,
        loss: LocalLoss,
        gradients: Gradients,
        factory: OptimizerFactory,
        trainable: Sequence[str],
        shape: tuple[int, int, int],
    ) -> None:
        self.stack = stack
        self.data = data
        self.loss = loss
        self.gradients = gradients
        self.factory = factory
        self.trainable = tuple(trainable)
        self.plan_SCB = torch.zeros(shape, dtype=torch.int64, device=stack.device)

    @property
    def rows(self) -> int:
        """Return C."""
        return self.plan_SCB.shape[1]

    def load_plan(self, chunk: Chunk) -> None:
        """Copy a chunk's plan; elsewhere stay samples of earlier ones, as good as any."""
        steps, clients, _ = chunk.plan_SCB.shape
        self.plan_SCB[:steps, :clients].copy_(chunk.plan_SCB)

    def optimizer(self, width: int, *, capturable: bool = False) -> StackedOptimizer:
        """Return a fresh optimiser of the first w clients' leaves."""
        values = {name: self.stack.values[name][:width] for name in self.trainable}
        return StackedOptimizer(self.factory, values, capturable=capturable)

    def stepper(self, optimizer: StackedOptimizer) -> Callable[[], None]:
        """Return a function that takes one step of all clients of an optimiser."""
        width, stack = optimizer.width, self.stack
        rows = stack.rows(optimizer.leaves)
        losses_w = stack.losses_C[:width]

        def step() -> None:
            index_wB = self.plan_SCB.index_select(0, stack.step)[0, :width]
            images, targets = self.data.batch(index_wB)
            losses, gradients = self.gradients(self.loss, rows, images, targets)
            with torch.autocast(stack.device.type, enabled=False):
                optimizer.step(gradients)
            # Autocast remembers weights that the step has just changed.
            torch.clear_autocast_cache()
            losses_w.add_(losses)
            stack.step.add_(1)

        return step


class Runner(Protocol):
    """Execution of a program's steps.

    Attributes:
        program: The step.
        widths: Rows to compute for a number of clients that still have batches.
    """

    program: Program
    widths: Widths

    def prepare(self, widths: Sequence[int]) -> None:
        """Get ready for a local training with steps of these widths, descending.

        May write to the program's memory, so the clients are loaded afterwards.
        """

    def step(self, width: int) -> None:
        """Take one step of the first w rows."""


class Eager:
    """Runs each step as it comes.

    Args:
        program: The step.
        widths: Rows to compute; those of the clients that still have batches by default.
    """

    def __init__(self, program: Program, widths: Widths = exact) -> None:
        self.program = program
        self.widths = widths
        self.optimizer: StackedOptimizer
        self.run: Callable[[], None]

    def prepare(self, widths: Sequence[int]) -> None:
        """See `Runner.prepare`."""
        self._use(self.program.optimizer(widths[0]))

    def step(self, width: int) -> None:
        """See `Runner.step`."""
        if width != self.optimizer.width:
            self._use(self.optimizer.prefix(width))
        self.run()

    def _use(self, optimizer: StackedOptimizer) -> None:
        self.optimizer = optimizer
        self.run = self.program.stepper(optimizer)


def train_chunk(runner: Runner, chunk: Chunk) -> None:
    """Run a chunk's local training; its outcome is in the stack's results.

    Args:
        runner: Prepared for the chunk, which has been loaded.
        chunk: The clients.
    """
    for segment in schedule(chunk.steps, runner.widths):
        for _ in range(segment.steps):
            runner.step(segment.width)
        runner.program.stack.finish(segment.finished)

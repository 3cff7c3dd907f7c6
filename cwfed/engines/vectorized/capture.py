"""Steps that are captured once and replayed: on a GPU, as CUDA graphs."""

import warnings
from collections.abc import Callable, Sequence
from typing import Protocol

import torch

from cwfed.engines.vectorized.cohort import bucketed
from cwfed.engines.vectorized.program import Program
from cwfed.engines.vectorized.stacked_optimizer import reason_against_capture

WARM_UP_STEPS = 3


class Capture(Protocol):
    """Turns a step into one that repeats the same work on the same memory."""

    def warm_up(self, step: Callable[[], None]) -> None:
        """Take a step, so that lazily made tensors exist outside the captured memory."""

    def capture(self, step: Callable[[], None]) -> Callable[[], None]:
        """Return what repeats the step."""

    def forget(self) -> None:
        """Share no memory with steps captured so far: nobody repeats them any more."""


class CannotCapture(RuntimeError):
    """A step that would not be the same when it is repeated."""


class CudaGraphs:
    """Captures CUDA graphs, which share their memory since they run one after the other."""

    def __init__(self) -> None:
        self.pool = torch.cuda.graph_pool_handle()
        # One for all: freed memory is kept stream by stream.
        self.side = torch.cuda.Stream()

    def warm_up(self, step: Callable[[], None]) -> None:
        """See `Capture.warm_up`."""
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            step()
        torch.cuda.current_stream().wait_stream(self.side)

    def capture(self, step: Callable[[], None]) -> Callable[[], None]:
        """See `Capture.capture`."""
        graph = torch.cuda.CUDAGraph()
        # A graph keeps the address of cuBLAS's workspace on each of its streams. One made in a
        # warm-up would be freed when Lightning's fit ends; one made in the capture is the graph's.
        _let_go_of_workspaces()
        # The outer block gives the stream back where a capture fails, which the inner one does not.
        with (
            torch.cuda.stream(torch.cuda.current_stream()),
            torch.cuda.graph(graph, pool=self.pool),
        ):
            step()
        _let_go_of_workspaces()
        return graph.replay

    def forget(self) -> None:
        """See `Capture.forget`."""
        # A pool whose graphs are gone cannot be joined.
        self.pool = torch.cuda.graph_pool_handle()


def _let_go_of_workspaces() -> None:
    torch.cuda.synchronize()
    torch._C._cuda_clearCublasWorkspaces()


class Replay:
    """Replays a program's step, captured at each of a few widths.

    The optimiser's state stays in place from training to training and is zeroed before each, so
    this is only for optimisers for which that is as good as a new one.

    Args:
        program: The step.
        capture: How it is captured.
    """

    def __init__(self, program: Program, capture: Capture) -> None:
        self.program = program
        self.capture = capture
        self.widths = bucketed(program.rows)
        self.optimizer = program.optimizer(program.rows, capturable=True)
        self.replays: dict[int, Callable[[], None]] = {}

    def prepare(self, widths: Sequence[int]) -> None:
        """Capture what is missing, on whatever values are there, and reset the optimiser.

        Raises:
            CannotCapture: The optimiser does something that a replay would not repeat.
        """
        for width in widths:
            if width not in self.replays:
                self.replays[width] = self._captured(width)
        self.optimizer.reset()

    def step(self, width: int) -> None:
        """See `cwfed.engines.vectorized.program.Runner.step`."""
        self.replays[width]()

    def _captured(self, width: int) -> Callable[[], None]:
        if not self.replays:
            self._make_state()
        step = self.program.stepper(self.optimizer.prefix(width))
        for _ in range(WARM_UP_STEPS):
            self._warm_up(step)
        self.program.stack.step.zero_()
        return self.capture.capture(step)

    def _make_state(self) -> None:
        """Let the optimiser make its state, and check that it can be captured."""
        whole = self.program.stepper(self.optimizer)
        self._warm_up(whole)
        reason = reason_against_capture(self.optimizer, lambda: self._warm_up(whole))
        if reason:
            raise CannotCapture(reason)

    def _warm_up(self, step: Callable[[], None]) -> None:
        # The plan may have a single step.
        self.program.stack.step.zero_()
        with warnings.catch_warnings():
            # What is warned of is what a warm-up does.
            warnings.filterwarnings("ignore", message=".*capturable=True")
            self.capture.warm_up(step)

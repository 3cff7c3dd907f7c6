"""A torch.optim optimiser over stacked parameters, and what has to hold for that to be exact.

Legend: w clients side by side.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from cwfed.clients.module import OptimizerFactory
from cwfed.messages.shortage import shortage

_SHAPES = ((2, 3, 4), (2, 4), (2,))
_STEPS = 3


class StackedOptimizer:
    """The optimiser of w clients' leaves ``[w, ...]``.

    Args:
        factory: Makes the optimiser.
        values: Tensors ``[w, ...]`` by name, whose memory the leaves share.
        capturable: Ask the optimiser to keep its step counter on the device, where it can.
    """

    def __init__(
        self, factory: OptimizerFactory, values: Mapping[str, Tensor], *, capturable: bool = False
    ) -> None:
        self.factory = factory
        self.leaves: dict[str, Tensor] = {n: nn.Parameter(v) for n, v in values.items()}
        self.width = len(next(iter(values.values())))
        self.optimizer = factory(list(self.leaves.values()))  # type: ignore[arg-type]
        for group in self.optimizer.param_groups:
            if capturable and "capturable" in group:
                group["capturable"] = True

    def step(self, gradients: Mapping[str, Tensor | None]) -> None:
        """Take a step; a leaf that no gradient reaches has None."""
        for name, leaf in self.leaves.items():
            leaf.grad = gradients[name]
        self.optimizer.step()
        for leaf in self.leaves.values():
            leaf.grad = None

    def prefix(self, width: int) -> "StackedOptimizer":
        """Return the optimiser of the first clients, which shares this one's memory and state."""
        values = {name: leaf.detach()[:width] for name, leaf in self.leaves.items()}
        part = StackedOptimizer(self.factory, values)
        for group, whole in zip(
            part.optimizer.param_groups, self.optimizer.param_groups, strict=True
        ):
            group.update({key: value for key, value in whole.items() if key != "params"})
        for name, leaf in part.leaves.items():
            state = self.optimizer.state.get(self.leaves[name], {})
            part.optimizer.state[leaf] = {k: self._first(v, width) for k, v in state.items()}
        return part

    def reset(self) -> None:
        """Zero the state in place; see `zeroed_is_fresh`."""
        with torch.no_grad():
            for value in self.state_values():
                value.zero_()

    def state_values(self) -> list[Any]:
        """Return all values of the state."""
        return [value for state in self.optimizer.state.values() for value in state.values()]

    def options(self) -> list[dict[str, Any]]:
        """Return the groups' options without their parameters."""
        return [
            {key: value for key, value in group.items() if key != "params"}
            for group in self.optimizer.param_groups
        ]

    def _first(self, value: Any, width: int) -> Any:
        rows = isinstance(value, Tensor) and value.ndim and len(value) == self.width
        return value[:width] if rows else value


def reason_against_stacking(factory: OptimizerFactory) -> str | None:
    """Return why an optimiser over stacked rows is not each row's own, None if it is.

    Measured: some steps on two stacked rows of different size against each row alone.
    """
    try:
        stacked = _run(factory, _problem())
        alone = [_run(factory, [(v[i], g[:, i]) for v, g in _problem()]) for i in range(2)]
    except Exception as error:  # every optimiser has its own ways to refuse
        if shortage(error):
            raise
        return f"the optimiser cannot be stacked ({type(error).__name__}: {error})"
    rows = [torch.stack(pair) for pair in zip(*alone, strict=True)]
    if all(torch.allclose(a, b, rtol=1e-12, atol=0) for a, b in zip(stacked, rows, strict=True)):
        return None
    return "the optimiser does not treat stacked clients one by one"


def zeroed_is_fresh(factory: OptimizerFactory) -> bool:
    """Return whether an optimiser with its state zeroed in place is as good as a new one.

    Measured. Dampening, for one, spares the very first step and no other.
    """
    problem = _problem()
    used = StackedOptimizer(factory, {str(i): v.clone() for i, (v, _) in enumerate(problem)})
    _steps(used, problem)
    try:
        used.reset()
    except AttributeError:  # a number of Python's
        return False
    with torch.no_grad():
        for leaf, (value, _) in zip(used.leaves.values(), problem, strict=True):
            leaf.copy_(value)
    again = _steps(used, problem)
    return all(map(torch.equal, again, _run(factory, problem)))


def reason_against_capture(optimizer: StackedOptimizer, step: Callable[[], None]) -> str | None:
    """Return why a captured step would not repeat what the optimiser does, None if it would.

    A captured step repeats work on the device's memory, and nothing that happens outside it.

    Args:
        optimizer: One that has taken a step before.
        step: Takes another.
    """
    before, options = optimizer.state_values(), optimizer.options()
    device = next(iter(optimizer.leaves.values())).device
    if any(not isinstance(value, Tensor) or value.device != device for value in before):
        return "the optimiser keeps its state outside the device"
    step()
    if any(a is not b for a, b in zip(before, optimizer.state_values(), strict=True)):
        return "the optimiser replaces its state instead of writing to it"
    if options != optimizer.options():
        return "the optimiser changes its options from step to step"
    return None


def _problem() -> list[tuple[Tensor, Tensor]]:
    """Return values and gradients ``[steps, ...]``; the second row's are larger."""
    generator = torch.Generator().manual_seed(0)
    options: dict[str, Any] = {"generator": generator, "dtype": torch.float64}
    problem = []
    for shape in _SHAPES:
        scale = torch.tensor([1.0, 30.0], dtype=torch.float64).view(2, *[1] * (len(shape) - 1))
        value = torch.randn(shape, **options) * scale
        problem.append((value, torch.randn(_STEPS, *shape, **options) * scale))
    return problem


def _run(factory: OptimizerFactory, problem: Sequence[tuple[Tensor, Tensor]]) -> list[Tensor]:
    leaves = [nn.Parameter(value.clone()) for value, _ in problem]
    optimizer = factory(leaves)
    for step in range(_STEPS):
        for leaf, (_, gradients) in zip(leaves, problem, strict=True):
            leaf.grad = gradients[step].clone()
        optimizer.step()
    return [leaf.detach() for leaf in leaves]


def _steps(optimizer: StackedOptimizer, problem: Sequence[tuple[Tensor, Tensor]]) -> list[Tensor]:
    for step in range(_STEPS):
        optimizer.step({str(i): g[step].clone() for i, (_, g) in enumerate(problem)})
    return [leaf.detach().clone() for leaf in optimizer.leaves.values()]

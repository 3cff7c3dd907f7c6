"""Least work of a training step, and the most a device can do.

The bytes are a lower bound: of weights, gradients and saved activations, each once for every pass
that needs it, as if caches were perfect within an operation and useless between operations.
"""

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode


@dataclass(frozen=True)
class Cost:
    """Least work of one client's training step.

    Attributes:
        flops: Floating-point operations of products and convolutions, forward and backward.
        bytes: Bytes to and from the device's memory.
    """

    flops: int
    bytes: int


@dataclass(frozen=True)
class Peak:
    """Rates that the device reaches on one large operation.

    Attributes:
        flops: Operations a second of a product of two square matrices.
        bandwidth: Bytes a second, read and written, of a copy.
    """

    flops: float
    bandwidth: float


def step_cost(model: nn.Module, images: Tensor, targets: Tensor) -> Cost:
    """Return the least work of a step of plain SGD, counted on one step.

    Bytes: the weights are read in the forward and in the backward pass, their gradient is written
    and read, and the update reads and writes them: six times their size. What autograd saves
    beside them is written and read.

    Args:
        model: The network.
        images: ``[B, C, H, W]``.
        targets: ``[B]``.
    """
    weights = {p.untyped_storage().data_ptr(): p.nbytes for p in model.parameters()}
    saved: dict[int, int] = {}

    def keep(value: Tensor) -> Tensor:
        saved[value.untyped_storage().data_ptr()] = value.untyped_storage().nbytes()
        return value

    counter = FlopCounterMode(display=False)
    with counter:
        with saved_tensors_hooks(keep, lambda value: value):
            loss = F.cross_entropy(model(images), targets)
        loss.backward()
    activations = sum(size for address, size in saved.items() if address not in weights)
    model.zero_grad()
    return Cost(counter.get_total_flops(), 6 * sum(weights.values()) + 2 * activations)


def measure_peak(device: torch.device, *, toy: bool) -> Peak:
    """Measure the device at the precision of products that is set now."""
    small = toy or device.type != "cuda"
    side, numbers = (512, 2**20) if small else (8192, 2**28)
    left, right = (torch.randn(side, side, device=device) for _ in range(2))
    out = torch.empty_like(left)
    seconds = seconds_of(lambda: torch.matmul(left, right, out=out), device)
    source = torch.zeros(numbers, device=device)
    target = torch.empty_like(source)
    copying = seconds_of(lambda: target.copy_(source), device)
    return Peak(2 * side**3 / seconds, 2 * source.nbytes / copying)


def seconds_of(call: Callable[[], object], device: torch.device, times: int = 10) -> float:
    """Return the seconds of a call: the mean of some in a row, after two untimed ones."""
    for _ in range(2):
        call()
    start = now(device)
    for _ in range(times):
        call()
    return (now(device) - start) / times


def now(device: torch.device) -> float:
    """Return the time when the device has done what it was asked for."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return perf_counter()

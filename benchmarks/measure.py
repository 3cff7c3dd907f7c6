"""Shared parts of the benchmarks: problems of the right size, and memory as the kernel counts it.

Legend: M clients, m participants, K classes.
"""

import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cwfed.aggregators import ServerContext
from cwfed.engines.sequential import model_state
from cwfed.functional.stacking import Bank
from cwfed.models import CNN4, ResNet18, describe_model

MODELS: dict[str, tuple[int, Callable[[], nn.Module]]] = {
    "cnn4_cifar10": (10, lambda: CNN4(10, 3, 32)),
    "resnet18_tiny_imagenet": (200, lambda: ResNet18(200)),
}
"""Number of classes and the network, by name."""


def cohort(name: str, clients: int) -> tuple[Bank, ServerContext]:
    """Return random uploads of one of `MODELS` and what the server knows of M clients."""
    classes, make = MODELS[name]
    model = make()
    state = model_state(model)
    counts_MK = torch.randint(0, 50, (clients, classes)) + 1
    sizes = {n: v.numel() * v.element_size() for n, v in state.items()}
    server = ServerContext(counts_MK.sum(1), counts_MK, describe_model(model, classes), sizes)
    return random_bank(state, clients), server


def random_bank(state: Bank, clients: int) -> dict[str, Tensor]:
    """Return a bank of M different models; counters are zeros."""
    return {
        name: torch.rand(clients, *value.shape, dtype=value.dtype).sub_(0.5)
        if value.is_floating_point()
        else torch.zeros(clients, *value.shape, dtype=value.dtype)
        for name, value in state.items()
    }


class RandomClients:
    """Clients whose answers are random and cost nothing: see `cwfed.aggregators.base.Clients`.

    Args:
        server: What the server knows.
    """

    def __init__(self, server: ServerContext) -> None:
        self.server = server

    def loss(self, clients: Tensor, models: Bank, part: str) -> Tensor:
        """Return random numbers, ``[m]``."""
        return torch.rand(len(clients), dtype=torch.float64)

    def class_means(self, clients: Tensor, models: Bank) -> tuple[Tensor, Tensor]:
        """Return random means ``[m, K, F]`` and the label counts ``[m, K]``."""
        shape = models[self.server.model.head_weight].shape[1:]
        means_mKF = torch.rand(len(clients), *shape, dtype=torch.float64)
        return means_mKF, self.server.label_counts_MK[clients]


def bytes_of(bank: Bank) -> int:
    """Return the bytes of a bank whose rows are stored."""
    return sum(value.numel() * value.element_size() for value in bank.values())


def resident(*, peak: bool = False) -> int:
    """Return the bytes of physical memory that this process holds, or held at most (Linux)."""
    key = "VmHWM:" if peak else "VmRSS:"
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(key))


def reset_peak() -> None:
    """Let the peak of physical memory start from what is held now (Linux)."""
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")


def in_new_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function returns in a process of its own, whose memory nothing else touched."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)

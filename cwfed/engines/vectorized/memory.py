"""Counts the clients that fit on the device side by side."""

import os
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from cwfed.engines.vectorized.program import Program

# The rest is for temporary tensors, captured steps, scoring and whoever else is there.
_FRACTION = 0.6

# A CPU gains nothing from more clients side by side, and the banks are in the same memory.
_MOST_ON_A_CPU = 4 << 30


def find_chunk(make: Callable[[int], Program], most: int, free: int) -> int:
    """Return the number of clients to stack.

    An estimate from one client's step, tried out once and halved while memory runs out.

    Args:
        make: Returns the program of a number of clients.
        most: As many as there are.
        free: Bytes at hand, see `free_memory`.

    Raises:
        torch.OutOfMemoryError: Not even one client fits.
    """
    chunk = max(1, min(most, int(_FRACTION * free / bytes_each(make(1)))))
    while True:
        try:
            _try_out(make, chunk)
            return chunk
        except torch.OutOfMemoryError:
            if chunk == 1:
                raise
            chunk //= 2


def _try_out(make: Callable[[int], Program], chunk: int) -> None:
    # A function of its own: what did not fit is gone before less is tried.
    program = make(chunk)
    program.stepper(program.optimizer(chunk))()


def bytes_each(program: Program) -> int:
    """Return the bytes that a client takes, measured by one step of a single one.

    Model, result, anchor, gradient, the optimiser's state, and what the backward pass keeps.

    Args:
        program: The step of one client.
    """
    optimizer = program.optimizer(1)
    kept: dict[int, int] = {}

    def keep(value: Tensor) -> Tensor:
        kept[value.untyped_storage().data_ptr()] = value.untyped_storage().nbytes()
        return value

    with saved_tensors_hooks(keep, lambda value: value):
        program.stepper(optimizer)()
    stack = program.stack
    tensors = [*stack.values.values(), *stack.results.values(), *stack.anchors.values()]
    state = [value for value in optimizer.state_values() if isinstance(value, Tensor)]
    return sum(kept.values()) + sum(
        value.nbytes for value in (*tensors, *optimizer.leaves.values(), *state)
    )


def free_memory(device: torch.device) -> int:
    """Return the bytes that are free on a device: a GPU's, or this machine's."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    free = min(_MOST_ON_A_CPU, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    known = Path("/proc/meminfo")
    if known.exists():
        lines = dict(line.split(":", 1) for line in known.read_text().splitlines())
        free = int(lines["MemAvailable"].split()[0]) * 1024
    return min(free, _left_to_container(Path("/sys/fs/cgroup")))


def _left_to_container(folder: Path) -> int:
    """Return what a control group leaves; a lot where there is no limit."""
    try:
        limit, used = ((folder / f"memory.{name}").read_text() for name in ("max", "current"))
        return max(int(limit) - int(used), 0)
    except (OSError, ValueError):
        return 2**62

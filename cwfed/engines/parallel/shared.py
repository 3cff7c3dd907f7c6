"""One model in memory that two processes share."""

import ctypes
from collections.abc import Mapping
from math import prod
from multiprocessing.context import BaseContext
from typing import Any

import torch
from torch import Tensor

_ALIGNED = 64


class SharedModel:
    """Room for one client's model, which another process sees too.

    Plain shared arrays of the standard library: inherited by a forked process, sent to a spawned
    one, and not bound to the size of ``/dev/shm``.

    Args:
        context: How processes are started.
        like: Tensors whose names, shapes and dtypes the room is for.
    """

    def __init__(self, context: BaseContext, like: Mapping[str, Tensor]) -> None:
        self.layout: dict[str, tuple[int, torch.Size, torch.dtype]] = {}
        end = 0
        for name, value in like.items():
            self.layout[name] = (end, value.shape, value.dtype)
            size = value.numel() * value.element_size()
            end += -(-size // _ALIGNED) * _ALIGNED
        self.memory: Any = context.RawArray(ctypes.c_byte, max(end, 1))

    def tensors(self) -> dict[str, Tensor]:
        """Return the model by name, as views into the shared memory."""
        return {
            name: torch.frombuffer(
                self.memory, dtype=dtype, count=prod(shape), offset=offset
            ).reshape(shape)
            if prod(shape)
            else torch.empty(shape, dtype=dtype)
            for name, (offset, shape, dtype) in self.layout.items()
        }

"""Clients' tensors stacked along a first dimension, on the device, in memory that stays.

Legend: C rows, w rows that are computed, K classes.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from cwfed.contract.spec import ModelSpec
from cwfed.engines.vectorized.resident import rows_on
from cwfed.functional.stacking import Bank, origin

Tensors = dict[str, Tensor]


class Rows(NamedTuple):
    """Values that the local objective needs of some clients (``[w, ...]``) or of one (``[...]``).

    Attributes:
        leaves: Parameters that are trained.
        fixed: Other parameters.
        buffers: Buffers, written to in place.
        anchors: What proximal terms pull towards.
        p: Class distributions.
    """

    leaves: Tensors
    fixed: Tensors
    buffers: Tensors
    anchors: Tensors
    p: Tensor

    def map(self, function: Callable[[Tensor], Tensor]) -> "Rows":
        """Return the same with a function applied to each tensor."""

        def each(tensors: Tensors) -> Tensors:
            return {name: function(value) for name, value in tensors.items()}

        return Rows(
            each(self.leaves),
            each(self.fixed),
            each(self.buffers),
            each(self.anchors),
            function(self.p),
        )


class Stack:
    """Models, anchors, class distributions, losses and results of up to C clients.

    Args:
        state: A model's parameters and buffers.
        parameters: Names of those that are parameters, frozen ones among them.
        contract: Its names.
        num_classes: K.
        size: C.
        device: Where to.
        memory_format: Layout of each row of a convolution's weight.
    """

    def __init__(
        self,
        state: Mapping[str, Tensor],
        parameters: Sequence[str],
        contract: ModelSpec,
        num_classes: int,
        size: int,
        device: torch.device,
        memory_format: torch.memory_format = torch.contiguous_format,
    ) -> None:
        self.size = size
        self.device = device
        self.parameters = tuple(parameters)
        self.values = {n: _rows(v, size, device, memory_format) for n, v in state.items()}
        self.results = {n: torch.zeros_like(v) for n, v in self.values.items()}
        self.anchors = {n: torch.zeros_like(self.values[n]) for n in contract.parameters}
        dtype = state[contract.head_weight].dtype
        self.p_CK = torch.zeros(size, num_classes, dtype=dtype, device=device)
        self.losses_C = torch.zeros(size, dtype=torch.float64, device=device)
        self.loss_results_C = torch.zeros_like(self.losses_C)
        self.step = torch.zeros(1, dtype=torch.int64, device=device)

    def load(self, rows: Sequence[int], start: Bank, anchors: Bank, p_wK: Tensor) -> None:
        """Copy rows of a cohort's banks into the first rows, and start counting afresh.

        Args:
            rows: Which rows of the banks, at most C.
            start: Models of the cohort, ``[m, ...]`` by name.
            anchors: What proximal terms pull towards, ``[m, ...]`` by name.
            p_wK: Class distributions of the clients that the rows belong to.
        """
        size = len(rows)
        with torch.no_grad():
            for name, target in self.values.items():
                target[:size].copy_(rows_on(start[name], rows, self.device))
            bank, at = origin(anchors, rows)
            for name, target in self.anchors.items():
                same = bank[name] is start[name]
                source = self.values[name] if same else rows_on(bank[name], at, self.device)
                target[:size].copy_(source[:size])
            self.p_CK[:size].copy_(p_wK)
        self.losses_C.zero_()
        self.step.zero_()

    def rows(self, leaves: Tensors) -> Rows:
        """Return the first w rows, with the given leaves ``[w, ...]`` as what is trained."""
        width = len(next(iter(leaves.values())))
        first = {name: value[:width] for name, value in self.values.items()}
        return Rows(
            leaves,
            {name: first[name] for name in self.parameters if name not in leaves},
            {name: value for name, value in first.items() if name not in self.parameters},
            {name: value[:width] for name, value in self.anchors.items()},
            self.p_CK[:width],
        )

    def finish(self, rows: slice) -> None:
        """Put clients' models and losses aside; their rows may run on afterwards."""
        with torch.no_grad():
            for name, value in self.values.items():
                self.results[name][rows].copy_(value[rows])
            self.loss_results_C[rows].copy_(self.losses_C[rows])


def _rows(
    value: Tensor, size: int, device: torch.device, memory_format: torch.memory_format
) -> Tensor:
    rows = torch.zeros((size, *value.shape), dtype=value.dtype, device=device)
    if value.ndim == 4 and memory_format is torch.channels_last:
        return rows.permute(0, 1, 3, 4, 2).contiguous().permute(0, 1, 4, 2, 3)
    return rows

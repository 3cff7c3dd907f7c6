"""Banks: the same parameter of all clients stacked along a first dimension, by name.

A bank is a ``dict[str, Tensor]`` whose tensors are ``[M, ...]``; row i belongs to client i.
Floating-point buffers and integer counters travel in it beside the parameters.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

Bank = Mapping[str, Tensor]


def replicate(state: Mapping[str, Tensor], size: int) -> dict[str, Tensor]:
    """Return a bank whose `size` rows all show one model, sharing its memory.

    Example:
        >>> replicate({"w": torch.ones(3)}, 2)["w"].shape
        torch.Size([2, 3])
    """
    return {
        name: value.detach().clone().expand(size, *value.shape) for name, value in state.items()
    }


def row(bank: Bank, index: int) -> dict[str, Tensor]:
    """Return one client's model as views into the bank."""
    return {name: value[index] for name, value in bank.items()}


def replace_rows(bank: Bank, rows: Sequence[int], fresh: Bank) -> dict[str, Tensor]:
    """Return a bank in which the named rows are replaced; the given bank stays as it was.

    Args:
        bank: ``[M, ...]`` by name.
        rows: Client ids, in the order of `fresh`.
        fresh: ``[len(rows), ...]`` by name.

    Returns:
        A new bank; `fresh` itself where it replaces every row in order.
    """
    size = next(iter(bank.values())).shape[0]
    if list(rows) == list(range(size)):
        return dict(fresh)
    index = torch.as_tensor(list(rows), dtype=torch.int64)
    return {name: value.clone().index_copy_(0, index, fresh[name]) for name, value in bank.items()}

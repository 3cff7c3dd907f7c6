"""Banks: the same parameter of all clients stacked along a first dimension, by name.

A bank is a ``dict[str, Tensor]`` whose tensors are ``[M, ...]``; row i belongs to client i.
Floating-point buffers and integer counters travel in it beside the parameters.
"""

import mmap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from math import prod

import torch
from torch import Tensor

Bank = Mapping[str, Tensor]

_REUSED_BYTES = 32 << 20  # up to here malloc hands out memory again; beyond, always fresh pages


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
    return {
        name: empty_rows(size, value).copy_(value).index_copy_(0, index, fresh[name])
        for name, value in bank.items()
    }


def finite_rows(theta_M: Tensor) -> Tensor:
    """Return which rows hold finite numbers only, from sums and so without a copy.

    Args:
        theta_M: ``[M, ...]``; rows that share their memory are read once.

    Returns:
        bool ``[M]``.

    Example:
        >>> finite_rows(torch.tensor([[1.0, torch.inf], [3e38, 3e38], [torch.nan, 0.0]]))
        tensor([False,  True, False])
    """
    if len(theta_M) > 1 and theta_M.stride(0) == 0:
        return finite_rows(theta_M[:1]).expand(len(theta_M))
    flat_M = theta_M.reshape(len(theta_M), prod(theta_M.shape[1:]))
    finite_M = flat_M.sum(1).isfinite()
    # A sum may also overflow.
    for index in (~finite_M).nonzero()[:, 0].tolist():
        finite_M[index] = flat_M[index].isfinite().all()
    return finite_M


def empty_rows(rows: int, like: Tensor) -> Tensor:
    """Return memory for a tensor of a bank, with arbitrary content.

    A fresh bank costs as much as filling it: the kernel hands it out in pages of 4 KiB, each with
    a fault. Where the system has huge pages (Linux), large tensors ask for them.

    Args:
        rows: Number of rows.
        like: ``[M, ...]``: shape of a row, dtype and device.

    Returns:
        ``[rows, ...]``, contiguous.

    Example:
        >>> empty_rows(3, torch.zeros(2, 5)).shape
        torch.Size([3, 5])
    """
    shape = (rows, *like.shape[1:])
    size = prod(shape) * like.element_size()
    advice = getattr(mmap, "MADV_HUGEPAGE", None)
    if advice is None or like.device.type != "cpu" or size <= _REUSED_BYTES:
        return torch.empty(shape, dtype=like.dtype, device=like.device)
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a kernel without huge pages
        pages.madvise(advice)
    return torch.frombuffer(pages, dtype=like.dtype).view(shape)


def column_blocks(size: int, like: Tensor, elements: int) -> Iterator[slice]:
    """Yield slices over a bank's flattened columns, for temporaries of bounded size.

    Args:
        size: Rows of the temporaries.
        like: ``[M, ...]``.
        elements: Upper bound of rows times columns, where a column has no more.

    Example:
        >>> list(column_blocks(2, torch.zeros(2, 3), 4))
        [slice(0, 2, None), slice(2, 4, None)]
    """
    width = max(1, elements // size)
    for first in range(0, prod(like.shape[1:]), width):
        yield slice(first, first + width)

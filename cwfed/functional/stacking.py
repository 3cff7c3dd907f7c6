"""Banks: the same parameter of all clients stacked along a first dimension, by name.

A bank is a ``dict[str, Tensor]`` whose tensors are ``[M, ...]``; row i belongs to client i.
Floating-point buffers and integer counters travel in it beside the parameters.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod

import torch
from torch import Tensor

Bank = Mapping[str, Tensor]

NewRows = Callable[[int, Tensor], Tensor]
"""Returns memory for so many rows like those of a tensor, with arbitrary content."""


def empty_rows(rows: int, like: Tensor) -> Tensor:
    """Return memory for a tensor of a bank, with arbitrary content.

    Args:
        rows: Number of rows.
        like: ``[M, ...]``: shape of a row, dtype and device.

    Returns:
        ``[rows, ...]``, contiguous.

    Example:
        >>> empty_rows(3, torch.zeros(2, 5)).shape
        torch.Size([3, 5])
    """
    return torch.empty((rows, *like.shape[1:]), dtype=like.dtype, device=like.device)


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
    bank, (index,) = origin(bank, [index])
    return {name: value[index] for name, value in bank.items()}


class ScatteredRows(Mapping[str, Tensor]):
    """Some rows of a bank, ``[m, ...]`` by name, that stay where they are.

    A tensor of them is copied each time that it is asked for; `row` gives views, `origin` says
    where they lie.

    Args:
        bank: ``[M, ...]`` by name.
        rows: Which rows.
    """

    def __init__(self, bank: Bank, rows: Sequence[int]) -> None:
        self.bank = bank
        self.rows = tuple(rows)

    def __getitem__(self, name: str) -> Tensor:
        """Return the rows of one tensor, copied."""
        return self.bank[name][list(self.rows)]

    def __iter__(self) -> Iterator[str]:
        """Yield the names."""
        return iter(self.bank)

    def __len__(self) -> int:
        """Return the number of names."""
        return len(self.bank)


def origin(bank: Bank, rows: Sequence[int]) -> tuple[Bank, Sequence[int]]:
    """Return the bank in whose memory rows of a bank lie, and which they are there.

    Example:
        >>> scattered = ScatteredRows({"w": torch.zeros(9, 2)}, [3, 7, 8])
        >>> origin(scattered, [0, 2])[1]
        [3, 8]
    """
    if not isinstance(bank, ScatteredRows):
        return bank, rows
    return bank.bank, [bank.rows[row] for row in rows]


def take_rows(bank: Bank, rows: Sequence[int], new_rows: NewRows = empty_rows) -> Bank:
    """Return the named rows of a bank, with as few copies as there can be.

    Args:
        bank: ``[M, ...]`` by name.
        rows: Client ids.
        new_rows: Where rows are put that have to be copied.

    Returns:
        ``[len(rows), ...]`` by name: the bank itself where these are all its rows in order, views
        where they follow each other or a tensor's rows share their memory. Do not write into it.

    Example:
        >>> take_rows({"w": torch.tensor([[1.0], [2.0], [3.0]])}, [0, 2])["w"]
        tensor([[1.],
                [3.]])
    """
    size = next(iter(bank.values())).shape[0]
    index = list(rows)
    if index == list(range(size)):
        return bank
    return {name: _taken(value, index, new_rows) for name, value in bank.items()}


def _taken(theta_M: Tensor, index: list[int], new_rows: NewRows) -> Tensor:
    if theta_M.stride(0) == 0:
        return theta_M[:1].expand(len(index), *theta_M.shape[1:])
    first = index[0] if index else 0
    if index == list(range(first, first + len(index))):
        return theta_M[first : first + len(index)]
    at = torch.as_tensor(index, dtype=torch.int64, device=theta_M.device)
    return torch.index_select(theta_M, 0, at, out=new_rows(len(index), theta_M))


def replace_rows(
    bank: Bank, rows: Sequence[int], fresh: Bank, new_rows: NewRows = empty_rows
) -> dict[str, Tensor]:
    """Return a bank in which the named rows are replaced; the given bank stays as it was.

    Args:
        bank: ``[M, ...]`` by name.
        rows: Client ids, in the order of `fresh`.
        fresh: ``[len(rows), ...]`` by name.
        new_rows: Where the new bank is put.

    Returns:
        A new bank; `fresh` itself where it replaces every row in order.
    """
    size = next(iter(bank.values())).shape[0]
    if list(rows) == list(range(size)):
        return dict(fresh)
    index = torch.as_tensor(list(rows), dtype=torch.int64)
    return {
        name: new_rows(size, value).copy_(value).index_copy_(0, index, fresh[name])
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

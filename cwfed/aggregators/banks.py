"""The mathematics of banks on this machine: memory in huge pages, products in full precision.

`cwfed.functional` has the equations, for tensors wherever they are. Here is what the machine has to
do with them; aggregators and the loop take these.
"""

import mmap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from math import prod

import torch
from torch import Tensor

from cwfed.functional import aggregation, fedamp, stacking
from cwfed.functional.stacking import Bank

# Newer PyTorch has a precision for each backend, and tells no common one once they differ.
_BACKENDS = [
    module.matmul
    for module in (torch.backends.cuda, torch.backends.mkldnn)
    if hasattr(getattr(module, "matmul", None), "fp32_precision")
]
_REUSED_BYTES = 32 << 20  # up to here malloc hands out memory again; beyond, always fresh pages


def mix(weights_RM: Tensor, theta_M: Tensor, rows: Tensor | None = None) -> Tensor:
    """Return `cwfed.functional.aggregation.mix`, never in TF32, in memory of `large_rows`."""
    with exact_products():
        return aggregation.mix(weights_RM, theta_M, rows, large_rows)


def attentive_mixture(attention_MM: Tensor, theta_M: Tensor) -> Tensor:
    """Return `cwfed.functional.fedamp.attentive_mixture`, in memory of `large_rows`."""
    return fedamp.attentive_mixture(attention_MM, theta_M, large_rows)


def take_rows(bank: Bank, rows: Sequence[int]) -> Bank:
    """Return `cwfed.functional.stacking.take_rows`, in memory of `large_rows`."""
    return stacking.take_rows(bank, rows, large_rows)


def replace_rows(bank: Bank, rows: Sequence[int], fresh: Bank) -> dict[str, Tensor]:
    """Return `cwfed.functional.stacking.replace_rows`, in memory of `large_rows`."""
    return stacking.replace_rows(bank, rows, fresh, large_rows)


def large_rows(rows: int, like: Tensor) -> Tensor:
    """Return memory for a tensor of a bank, with arbitrary content.

    A fresh bank costs as much as filling it: the kernel hands it out in pages of 4 KiB, each with
    a fault. Where the system has huge pages (Linux), large tensors ask for them.

    Args:
        rows: Number of rows.
        like: ``[M, ...]``: shape of a row, dtype and device.

    Returns:
        ``[rows, ...]``, contiguous.

    Example:
        >>> large_rows(3, torch.zeros(2, 5)).shape
        torch.Size([3, 5])
    """
    shape = (rows, *like.shape[1:])
    size = prod(shape) * like.element_size()
    advice = getattr(mmap, "MADV_HUGEPAGE", None)
    if advice is None or like.device.type != "cpu" or size <= _REUSED_BYTES:
        return stacking.empty_rows(rows, like)
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a kernel without huge pages
        pages.madvise(advice)
    return torch.frombuffer(pages, dtype=like.dtype).view(shape)


@contextmanager
def exact_products() -> Iterator[None]:
    """Multiply float32 matrices in float32 for a block, whatever precision training has asked for.

    Changes PyTorch's setting for the whole process and restores it.
    """
    before = _precision()
    _set_precision(["ieee"] * len(_BACKENDS) or "highest")
    try:
        yield
    finally:
        _set_precision(before)


def _precision() -> list[str] | str:
    """Return the precision of float32 products by backend, or the common one."""
    return [b.fp32_precision for b in _BACKENDS] or torch.get_float32_matmul_precision()


def _set_precision(precision: list[str] | str) -> None:
    if isinstance(precision, str):
        torch.set_float32_matmul_precision(precision)
        return
    for backend, value in zip(_BACKENDS, precision, strict=True):
        backend.fp32_precision = value

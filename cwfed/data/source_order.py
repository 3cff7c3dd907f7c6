"""The order in which a source declares its samples, beside the canonical one.

Legend: N samples.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cwfed.data.npy import write_npy
from cwfed.records.reading import require_regular

ORDER = "order.npy"
Sizes = tuple[tuple[int, int], ...]
"""Sizes of each client's training and test part."""


@dataclass(frozen=True)
class SourceOrder:
    """The order in which a source declares its samples, such as that of its published files.

    Attributes:
        name: What the order is, for people.
        indices_N: int64, a permutation: the canonical index of the source's first sample, of its
            second, and so on.
        sizes: Where the source comes divided among clients: sizes of each client's training and
            test part, which stand one after the other in this order.
    """

    name: str
    indices_N: Tensor
    sizes: Sizes | None = None


def source_order(name: str, canonical: np.ndarray, sizes: Sizes | None = None) -> SourceOrder:
    """Return the order in which samples were read.

    Args:
        name: Name of that order.
        canonical: Permutation that puts what was read into canonical order.
        sizes: See `SourceOrder`.
    """
    indices_N = np.empty(len(canonical), dtype=np.int64)
    indices_N[canonical] = np.arange(len(canonical))
    return SourceOrder(name, torch.from_numpy(indices_N), sizes)


def save_order(folder: Path, order: SourceOrder) -> dict[str, Any]:
    """Write an order into a cache entry and return what its ``meta.json`` says of it."""
    indices_N = order.indices_N.numpy()
    write_npy(folder / ORDER, indices_N, np.arange(len(indices_N)))
    sizes = {"sizes": [list(pair) for pair in order.sizes]} if order.sizes else {}
    return {"name": order.name, "sha256": _sha256(indices_N), **sizes}


def load_order(folder: Path, said: Mapping[str, Any], count: int) -> SourceOrder:
    """Read what `save_order` wrote.

    Args:
        folder: The cache entry.
        said: What `save_order` returned.
        count: N.

    Raises:
        ValueError: It is something else.
        OSError: It cannot be read.
        KeyError: A name is missing.
    """
    require_regular(folder / ORDER)
    indices_N = np.load(folder / ORDER, allow_pickle=False)
    found = (type(said["name"]), str(indices_N.dtype), indices_N.shape, _sha256(indices_N))
    expected = (str, "int64", (count,), said["sha256"])
    if found != expected:
        raise ValueError(f"{ORDER}: expected {expected}, found {found}")
    if not np.array_equal(np.sort(indices_N), np.arange(count)):
        raise ValueError(f"{ORDER}: expected every sample once")
    return SourceOrder(said["name"], torch.from_numpy(indices_N), _sizes(said, count))


def _sizes(said: Mapping[str, Any], count: int) -> Sizes | None:
    if "sizes" not in said:
        return None
    sizes = tuple((train, test) for train, test in said["sizes"])
    every = [size for pair in sizes for size in pair]
    if not all(type(size) is int and size >= 0 for size in every) or sum(every) != count:
        raise ValueError(f"sizes: expected integers with the sum {count}")
    return sizes


def _sha256(indices_N: np.ndarray) -> str:
    return hashlib.sha256(indices_N.tobytes()).hexdigest()

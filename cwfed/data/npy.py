"""Arrays on disk, written without a second copy in memory."""

import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np


def write_npy(
    path: Path, dtype: np.dtype, shape: tuple[int, ...], chunks: Iterable[np.ndarray]
) -> None:
    """Write an array, chunk by chunk, and make sure that it is on the disk.

    Args:
        path: The file.
        dtype: Type of the values.
        shape: Of the whole array.
        chunks: Its rows, in order.
    """
    header = {
        "descr": np.lib.format.dtype_to_descr(dtype),
        "fortran_order": False,
        "shape": shape,
    }
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for chunk in chunks:
            file.write(np.ascontiguousarray(chunk).data)
        file.flush()
        os.fsync(file.fileno())

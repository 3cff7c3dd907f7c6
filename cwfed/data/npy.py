"""Arrays on disk, written without a second copy in memory."""

import os
from pathlib import Path

import numpy as np

_ROWS = 4096


def write_npy(path: Path, values: np.ndarray, order: np.ndarray) -> None:
    """Write an array's rows in an order, and make sure that they are on the disk.

    Args:
        path: The file.
        values: The array.
        order: Indices of its rows: a permutation.

    Raises:
        OSError: It cannot be written.
        ValueError: The values are objects, which only pickles hold.
    """
    if values.dtype.hasobject:
        raise ValueError(f"{path}: expected plain values, got the type {values.dtype}")
    header = np.lib.format.header_data_from_array_1_0(values)
    # Not `open_memmap`: where the disk fills up, a mapped page ends the process with SIGBUS.
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {**header, "fortran_order": False})
        for start in range(0, len(order), _ROWS):
            file.write(np.ascontiguousarray(values[order[start : start + _ROWS]]).data)
        file.flush()
        os.fsync(file.fileno())

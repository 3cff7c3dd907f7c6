"""Arrays in few bytes: each number an integer of 8 or 16 bits between the least and the greatest.

The error of a number is at most half a step, ``(high - low) / (2 * (2**bits - 2))``.
"""

import base64
from typing import Any, Literal

import numpy as np

Bits = Literal[8, 16]


def quantise(values: np.ndarray, bits: Bits = 8) -> dict[str, Any]:
    """Return an array as plain values that JSON holds.

    Args:
        values: Numbers of any shape; NaN and infinities come back as NaN.
        bits: Bits of a number; 16 are stored with the low byte first.

    Returns:
        ``shape``, ``bits``, ``low`` and ``high``, and ``data``, base64; the greatest code stands
        for NaN, the others for ``low`` to ``high`` in equal steps.

    Example:
        >>> packed = quantise(np.array([0.0, 0.5, 1.0]))
        >>> bool(abs(restore(packed) - [0.0, 0.5, 1.0]).max() <= 1 / (2 * 254))
        True
    """
    missing = 2**bits - 1
    array = np.asarray(values, dtype=np.float64)
    good = array[np.isfinite(array)]
    low, high = (float(good.min()), float(good.max())) if good.size else (0.0, 0.0)
    codes = np.full(array.shape, missing, dtype=f"<u{bits // 8}")
    there = np.isfinite(array)
    if high > low:
        # The share first: steps of a range that is almost nothing have no finite inverse.
        codes[there] = np.rint((array[there] - low) / (high - low) * (missing - 1))
    else:
        codes[there] = 0
    return {
        "shape": list(array.shape),
        "bits": bits,
        "low": low,
        "high": high,
        "data": base64.b64encode(codes.tobytes()).decode("ascii"),
    }


def restore(packed: dict[str, Any]) -> np.ndarray:
    """Return what `quantise` packed, float64; the page does the same."""
    bits = packed["bits"]
    codes = np.frombuffer(base64.b64decode(packed["data"]), dtype=f"<u{bits // 8}")
    values = packed["low"] + codes * (packed["high"] - packed["low"]) / (2**bits - 2)
    values[codes == 2**bits - 1] = np.nan
    return np.asarray(values.reshape(packed["shape"]))

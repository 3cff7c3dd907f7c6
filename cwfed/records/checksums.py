"""JSON values that tell whether they still are what was written.

A value carries, as its last field, the first 16 hexadecimal digits of the SHA-256 of what
``json.dumps`` makes of its other fields in their order. How the file is laid out does not enter.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

CHECKSUM = "checksum"


_DIGITS = re.compile("[0-9a-f]{16}")


def checksum(value: Mapping[str, Any]) -> str:
    """Return the checksum of a JSON object.

    Example:
        >>> checksum({"round": 0})
        'a032c79450d3bad8'
    """
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]


def arrays_checksum(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the SHA-256 of names, kinds, shapes and bytes of arrays, uint8 ``[32]``."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        values = np.ascontiguousarray(arrays[name])
        digest.update(f"{name}/{values.dtype.str}/{values.shape}/".encode())
        digest.update(values.tobytes())
    return np.frombuffer(digest.digest(), dtype=np.uint8)


def opened_arrays(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return arrays without their checksum; those without one, as earlier versions wrote them.

    Raises:
        ValueError: The checksum is that of other arrays.
    """
    content = {name: values for name, values in arrays.items() if name != CHECKSUM}
    if CHECKSUM in arrays and not np.array_equal(arrays[CHECKSUM], arrays_checksum(content)):
        raise ValueError(f"{CHECKSUM}: expected that of the arrays, got another")
    return content


def sealed(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object with its checksum, a new one if it has one."""
    content = {name: part for name, part in value.items() if name != CHECKSUM}
    return {**content, CHECKSUM: checksum(content)}


def opened(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object without its checksum; one without a checksum, as earlier versions wrote it.

    Raises:
        ValueError: The checksum is that of another content, or stands last under another name.
    """
    last = next(reversed(list(value)), None)
    if last is not None and CHECKSUM not in value and _DIGITS.fullmatch(str(value[last])):
        raise ValueError(f"{CHECKSUM}: expected that name before {value[last]}, got {last!r:.40}")
    content = {name: part for name, part in value.items() if name != CHECKSUM}
    if CHECKSUM in value and value[CHECKSUM] != (expected := checksum(content)):
        raise ValueError(
            f"{CHECKSUM}: expected {expected}, that of the other fields, got "
            f"{value[CHECKSUM]!r:.40}: something has changed after it was written"
        )
    return content

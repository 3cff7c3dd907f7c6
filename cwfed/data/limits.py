"""Limits on what a file from elsewhere may ask for: a small file can unpack to more than there is.

Legend: N samples, C channels, H x W pixels.
"""

import math
import os

MOST_ENCODED = 1 << 26
"""Bytes of one image file; a large photograph has a tenth of them."""

MOST_PIXELS = 1 << 25
"""Pixels of one image before it is resized, such as 8192 x 4096."""

MOST_IDX = 1 << 27
"""Bytes of one of MNIST's files, unpacked; the largest has 47 million."""

MOST_PFLLIB = 1 << 31
"""Bytes that a client's file may unpack to; half of Tiny ImageNet as floats has as many."""

MOST_PFLLIB_RATIO = 200
"""The most by which floats of images may be packed; those of MNIST are at a thirtieth."""


MOST_CLASSES = 1 << 15
"""Classes of a data set; ImageNet-21k has two thirds of them. A round of them takes minutes."""


def require_classes(what: str, count: int) -> None:
    """Raise ValueError where a data set has more classes than a run can handle.

    Args:
        what: What has them, for the message.
        count: K.
    """
    if count > MOST_CLASSES:
        raise ValueError(
            f"{what}: expected at most {MOST_CLASSES:,} classes, since every client counts its "
            f"samples of each class and a run's files hold these counts, got {count:,}"
        )


def require_memory(what: str, count: int, shape: tuple[int, ...]) -> None:
    """Raise ValueError where decoded images would not fit into the machine's memory.

    Args:
        what: What asks for them, for the message.
        count: N.
        shape: (C, H, W) of one image.
    """
    wanted = count * (math.prod(shape) + 40)  # a label and a digest beside each image
    there = _physical_memory()
    if there is not None and wanted > there:
        raise ValueError(
            f"{what}: {count:,} images of shape {shape} need {wanted / 1e9:.1f} GB, expected at "
            f"most the {there / 1e9:.1f} GB of this machine's memory"
        )


def printable(name: str) -> str:
    r"""Return a name that any terminal and file takes: what cannot be printed becomes ``\x1b``.

    Example:
        >>> printable("Katze"), printable("cat\x1b[2J")
        ('Katze', 'cat\\x1b[2J')
    """
    if name.isprintable():
        return name
    return "".join(
        mark if mark.isprintable() else mark.encode("unicode_escape").decode() for mark in name
    )


def _physical_memory() -> int | None:
    """Return the machine's bytes of memory, where the system says."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None

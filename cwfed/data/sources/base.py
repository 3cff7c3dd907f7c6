"""The contract of sources of images, and the way from files through the cache to `ImageData`."""

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cwfed.data.cache import cache_key, read_entry, resolve_cache_dir, user_cache_dir, write_entry
from cwfed.data.decoding import Samples
from cwfed.data.images import ImageData
from cwfed.data.limits import printable, require_classes
from cwfed.data.source_order import Sizes
from cwfed.records.reading import require_regular

log = logging.getLogger("cwfed")


def default_data_dir() -> Path:
    """Return ``$CWFED_DATA``, else ``data`` in the user's cache folder."""
    given = os.environ.get("CWFED_DATA")
    return Path(given).expanduser() if given else user_cache_dir() / "data"


class Source(ABC):
    """A data set that can be loaded.

    Attributes:
        name: Name of the data set, for people and for finding its files.
    """

    name: str

    @abstractmethod
    def load(self, data_dir: Path | None = None, *, cache_dir: Path | None = None) -> ImageData:
        """Return all images in canonical order.

        Args:
            data_dir: Folder to look for files in and to download to; by default `default_data_dir`.
            cache_dir: Folder of decoded data; by default ``$CWFED_CACHE``, else the user's cache.

        Raises:
            ValueError: The data are damaged or not what they claim to be.
            OSError: The data are missing and cannot be downloaded, or cannot be read.
        """


@dataclass(frozen=True)
class Reading:
    """Samples that a source hands over once its files are read.

    Attributes:
        samples: The decoded samples.
        class_names: Names by class index.
        sizes: Where the samples come divided among clients: sizes of each client's training and
            test part, one after the other.

    Raises:
        ValueError: There are more than a run can handle.
    """

    samples: Samples
    class_names: tuple[str, ...]
    sizes: Sizes | None = None

    def __post_init__(self) -> None:
        """Check the number of classes, before anything is written to the cache."""
        require_classes("classes", len(self.class_names))


@dataclass(frozen=True)
class Found:
    """Files that hold a data set, not read yet.

    Attributes:
        layout: Kind of files, for people.
        files: Every file the result depends on.
        settings: What else it depends on, as JSON values.
        read: Reads and decodes the files.
        most_bytes: How large a file may be.
        order: Name of the order in which the samples are read, where that is one which the data
            set's publishers declare.
    """

    layout: str
    files: tuple[Path, ...]
    settings: Mapping[str, Any]
    read: Callable[[], Reading]
    most_bytes: int | None = None
    order: str | None = None


class FileSource(Source):
    """A source whose images are decoded from files once and cached."""

    def load(self, data_dir: Path | None = None, *, cache_dir: Path | None = None) -> ImageData:
        """Return all images in canonical order, from the cache where it holds them.

        Args:
            data_dir: Folder to look for files in and to download to; by default `default_data_dir`.
            cache_dir: Folder of decoded data; by default ``$CWFED_CACHE``, else the user's cache.
        """
        found = self._find(Path(data_dir).expanduser() if data_dir else default_data_dir())
        for path in found.files:
            require_regular(path, found.most_bytes)
        cache = resolve_cache_dir(cache_dir)
        kind = {"source": type(self).__name__, "name": self.name, "layout": found.layout}
        if found.order:
            kind["order"] = found.order
        key = cache_key({**kind, **found.settings}, found.files)
        if (data := read_entry(cache, key)) is not None:
            log.info("%s: %s, decoded before: %s", self.name, describe(found.files), cache / key)
            return data
        log.info("%s: decoding %s (%s) once", self.name, describe(found.files), found.layout)
        reading = found.read()
        self._check(reading.samples, found.files)
        names = [printable(name) for name in reading.class_names]
        return write_entry(
            cache,
            key,
            reading.samples,
            class_names=names,
            name=self.name,
            order=found.order,
            sizes=reading.sizes,
        )

    @abstractmethod
    def _find(self, data_dir: Path) -> Found:
        """Find the files, downloading them if there is no other way."""

    def _check(self, samples: Samples, files: Sequence[Path]) -> None:
        """Raise ValueError where the samples are not what the data set is known to hold."""


def check_counts(
    name: str, labels_N: np.ndarray, expected: Sequence[int], files: Sequence[Path]
) -> None:
    """Raise ValueError unless each class has its known number of samples.

    Args:
        name: Name of the data set.
        labels_N: int64 class indices below ``len(expected)``.
        expected: Number of samples by class.
        files: The files read, for the message.
    """
    counts = np.bincount(labels_N, minlength=len(expected))
    for label, (wanted, found) in enumerate(zip(expected, counts, strict=True)):
        if wanted != found:
            raise ValueError(
                f"{name}: expected {wanted} samples of class {label}, found {found} in "
                f"{describe(files)}; the files are incomplete, doubled or of another data set"
            )


def check_shape(
    name: str, images_NCHW: np.ndarray, expected: tuple[int, int, int], files: Sequence[Path]
) -> None:
    """Raise ValueError unless the images have the known shape.

    Args:
        name: Name of the data set.
        images_NCHW: The images.
        expected: (C, H, W).
        files: The files read, for the message.
    """
    if images_NCHW.shape[1:] != expected:
        raise ValueError(
            f"{name}: expected images of shape {expected} (channels, height, width), found "
            f"{images_NCHW.shape[1:]} in {describe(files)}"
        )


def describe(files: Sequence[Path]) -> str:
    """Return up to four paths, or the first and the number of the others."""
    if len(files) <= 4:
        return ", ".join(str(path) for path in files)
    return f"{files[0]} and {len(files) - 1} more files"


def require_path(argument: str, value: object) -> str:
    """Return a path argument, or raise ValueError that names it.

    Args:
        argument: Its name.
        value: What came.
    """
    if not isinstance(value, str) or not value:
        raise ValueError(f"{argument}: expected a path, got {value!r}")
    return value

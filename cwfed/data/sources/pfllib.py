"""Folders of PFLlib: images that come divided among clients, as its generators write them.

``config.json`` says how many clients and classes there are; ``train/N.npz`` and ``test/N.npz``
hold client N's images ``x`` (floats ``[n, C, H, W]``, pixels normalised to [-1, 1]) and labels
``y``, in a dictionary that NumPy pickled. Nothing in these files is run; see
`cwfed.data.arrays_unpickler`.
"""

import json
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch

from cwfed.data.arrays_unpickler import unpickle_arrays
from cwfed.data.decoding import Samples
from cwfed.data.images import normalise
from cwfed.data.limits import MOST_PFLLIB, MOST_PFLLIB_RATIO, printable, require_memory
from cwfed.data.sources.base import FileSource, Found, Reading, require_path
from cwfed.records.reading import read_text

CONFIG = "config.json"
PARTS = ("train", "test")
ORDER = "client by client, training part first"
MOST_CLIENTS = 100_000
_MEMBER = "data.npy"
_RATIO_FROM = 1 << 28
_AT_ONCE = 1024
_NEAR = 1e-4
"""The most that a float may differ from that of an 8-bit pixel: far below half a step, 0.0039."""


class PFLlib(FileSource):
    """A data set that PFLlib has generated and divided; `FromSource` gives its partition.

    Args:
        path: The folder with ``config.json``, ``train`` and ``test``.

    Raises:
        ValueError: `path` is not a path.
    """

    def __init__(self, path: str) -> None:
        self.path = require_path("path", path)
        self.name = printable(Path(path).name) or "pfllib"

    def _find(self, data_dir: Path) -> Found:
        folder = Path(self.path).expanduser()
        if not (folder / CONFIG).is_file():
            raise FileNotFoundError(
                f"path: expected a folder with {CONFIG}, train and test, as PFLlib generates it, "
                f"got {folder}"
            )
        clients, classes = _read_config(folder / CONFIG)
        files = [folder / part / f"{n}.npz" for n in range(clients) for part in PARTS]
        _check_files(folder, files, clients)
        every = (folder / CONFIG, *files)

        def read() -> Reading:
            return _read(files, classes)

        return Found("pfllib", every, {"classes": classes}, read, MOST_PFLLIB, order=ORDER)


def _read_config(path: Path) -> tuple[int, int]:
    """Return the numbers of clients and of classes."""
    try:
        config = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: expected JSON: {error!s:.100}") from error
    values = []
    for name, least, most in (("num_clients", 1, MOST_CLIENTS), ("num_classes", 1, MOST_CLIENTS)):
        value = config.get(name) if isinstance(config, dict) else None
        if type(value) is not int or not least <= value <= most:
            raise ValueError(
                f"{path}: {name}: expected an integer from {least} to {most}, got {value!r:.60}"
            )
        values.append(value)
    return values[0], values[1]


def _check_files(folder: Path, files: list[Path], clients: int) -> None:
    for path in files:
        if not path.is_file():
            raise ValueError(
                f"{folder / CONFIG}: num_clients: expected files of {clients} clients, got "
                f"no {path}"
            )
    known = set(files)
    for part in PARTS:
        if others := sorted(set((folder / part).glob("*.npz")) - known):
            raise ValueError(
                f"{folder / CONFIG}: num_clients: expected all clients that have files, got "
                f"{clients} clients and {others[0]}"
            )


def _read(files: list[Path], classes: int) -> Reading:
    # Sizes are looked at first: all images together must fit into memory.
    unpacked = sum(_unpacked_size(path) for path in files)
    require_memory(str(files[0].parent.parent), 1, (unpacked // 4,))
    images, labels, sizes = [], [], []
    for path, (x, y) in _parts(files):
        images.append(_pixels(x, path))
        labels.append(_labels(y, len(x), classes, path))
        sizes.append(len(x))
        if images[-1].shape[1:] != images[0].shape[1:]:
            raise ValueError(
                f"{path}: expected images {images[0].shape[1:]} (channels, height, width) like "
                f"{files[0]}, got {images[-1].shape[1:]}"
            )
    samples = Samples.from_pixels(np.concatenate(images), np.concatenate(labels))
    names = tuple(str(label) for label in range(classes))
    return Reading(samples, names, tuple(zip(sizes[::2], sizes[1::2], strict=True)))


def _parts(files: list[Path]) -> Iterator[tuple[Path, tuple[np.ndarray, np.ndarray]]]:
    for path in files:
        try:
            arrays = unpickle_arrays(_read_member(path))
            if set(arrays) != {"x", "y"}:
                raise ValueError(f"expected the arrays x and y, got {sorted(arrays)!s:.60}")
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
        yield path, (arrays["x"], arrays["y"])


def _unpacked_size(path: Path) -> int:
    """Return how many bytes a file unpacks to, by its own account.

    Raises:
        ValueError: It is no plain zip of one array, or unpacks to more than images do.
    """
    try:
        with zipfile.ZipFile(path) as file:
            return _member(file).file_size
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError) as error:
        raise ValueError(f"{path}: {error}") from error


def _member(file: zipfile.ZipFile) -> zipfile.ZipInfo:
    names = file.namelist()
    if names != [_MEMBER]:
        raise ValueError(f"expected one array called data, got {names!s:.60}")
    info = file.getinfo(_MEMBER)
    plain = info.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
    if info.flag_bits & 0x1 or not plain:
        raise ValueError("expected a stored or deflated array without a password")
    if info.file_size > MOST_PFLLIB:
        raise ValueError(
            f"expected at most {MOST_PFLLIB:,} bytes, it unpacks to {info.file_size:,}"
        )
    ratio = info.file_size / max(info.compress_size, 1)
    if info.file_size > _RATIO_FROM and ratio > MOST_PFLLIB_RATIO:
        raise ValueError(
            f"expected images, which hardly pack; {info.compress_size:,} bytes unpack to "
            f"{info.file_size:,}"
        )
    return info


def _read_member(path: Path) -> bytes:
    """Return the pickle in a file."""
    try:
        with zipfile.ZipFile(path) as file, file.open(_member(file)) as member:
            _check_header(member)
            return member.read()
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError) as error:
        raise ValueError(f"damaged: {error}") from error


def _check_header(member: IO[bytes]) -> None:
    """Raise ValueError unless an npy file holds one object, as a dictionary is saved."""
    try:
        if np.lib.format.read_magic(member) != (1, 0):
            raise ValueError("another version than 1.0")
        header = np.lib.format.read_array_header_1_0(member, max_header_size=1000)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError) as error:
        said = " ".join(str(error).split())
        raise ValueError(f"expected a dictionary in NumPy's format: {said:.80}") from error
    if header != ((), False, np.dtype(object)):
        raise ValueError(f"expected a dictionary, got an array {header!s:.80}")


def _pixels(x: np.ndarray, path: Path) -> np.ndarray:
    """Return normalised floats as the 8-bit pixels that they came from."""
    if x.ndim != 4 or x.dtype.kind != "f" or not x.size > 0:
        raise ValueError(
            f"{path}: x: expected floats [images, channels, height, width], got {x.dtype} {x.shape}"
        )
    if x.shape[1] not in (1, 3):
        raise ValueError(f"{path}: x: expected 1 or 3 channels, got {x.shape[1]}")
    pieces = (x[start : start + _AT_ONCE] for start in range(0, len(x), _AT_ONCE))
    return np.concatenate([_eight_bits(piece, path) for piece in pieces])


def _eight_bits(x: np.ndarray, path: Path) -> np.ndarray:
    with np.errstate(over="ignore"):
        steps = np.rint((x.astype(np.float64) * 0.5 + 0.5) * 255)
    fits = np.isfinite(steps) & (steps >= 0) & (steps <= 255)
    pixels = np.where(fits, steps, 0).astype(np.uint8)
    back = normalise(torch.from_numpy(pixels), torch.float64).numpy()
    with np.errstate(invalid="ignore"):
        wrong = ~(fits & (np.abs(back - x) < _NEAR))
    if wrong.any():
        raise ValueError(
            f"{path}: x: expected 8-bit pixels normalised to [-1, 1], (p / 255 - 0.5) / 0.5, got "
            f"{x[wrong][0]}"
        )
    return pixels


def _labels(y: np.ndarray, count: int, classes: int, path: Path) -> np.ndarray:
    if y.shape != (count,) or y.dtype.kind not in "iu":
        raise ValueError(f"{path}: y: expected {count} integers, got {y.dtype} {y.shape}")
    wrong: Any = y[(y < 0) | (y >= classes)]
    if len(wrong):
        raise ValueError(f"{path}: y: expected labels in 0..{classes - 1}, got {wrong[0]}")
    return y.astype(np.int64)

"""MNIST and CIFAR in the files of their authors, laid out as torchvision lays them out."""

import gzip
import math
import tarfile
import tempfile
import zlib
from pathlib import Path

import numpy as np
from torchvision.datasets import CIFAR10
from torchvision.datasets.utils import check_integrity

from cwfed.data.decoding import Samples
from cwfed.data.limits import MOST_IDX

IDX_STEMS = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def find_idx(folder: Path) -> tuple[Path, ...] | None:
    """Return MNIST's four files, plain or gzipped, if all are in the folder.

    Args:
        folder: The folder, ``MNIST/raw`` of torchvision.
    """
    files = []
    for stem in IDX_STEMS:
        candidates = [folder / stem, folder / f"{stem}.gz"]
        present = [path for path in candidates if path.is_file()]
        if not present:
            return None
        files.append(present[0])
    return tuple(files)


def read_idx_pairs(files: tuple[Path, ...], num_classes: int) -> Samples:
    """Read MNIST's training and test part.

    Args:
        files: What `find_idx` returned.
        num_classes: Number of classes.

    Raises:
        ValueError: A file is damaged, or the parts do not fit together; the message names it.
    """
    parts = []
    for images_file, labels_file in (files[:2], files[2:]):
        images_NHW, labels_N = _read_idx(images_file, 3), _read_idx(labels_file, 1)
        if len(images_NHW) != len(labels_N):
            raise ValueError(
                f"{labels_file}: expected {len(images_NHW)} labels, one for each image in "
                f"{images_file}, found {len(labels_N)}"
            )
        _check_labels(labels_N, num_classes, labels_file)
        parts.append(Samples.from_pixels(images_NHW[:, None], labels_N))
    return Samples.concatenate(parts)


def cifar_files(kind: type[CIFAR10], root: Path) -> tuple[Path, ...]:
    """Return the pickle files torchvision reads.

    Args:
        kind: torchvision's class.
        root: Folder that holds its ``base_folder``.
    """
    names = [name for name, _ in kind.train_list + kind.test_list] + [kind.meta["filename"]]
    return tuple(root / kind.base_folder / name for name in names)


def read_cifar(kind: type[CIFAR10], root: Path, num_classes: int) -> Samples:
    """Read CIFAR's pickles, after their MD5 sums were found right: a pickle can run code.

    Args:
        kind: torchvision's class.
        root: Folder that holds its ``base_folder``.
        num_classes: Number of classes.

    Raises:
        ValueError: A file is missing or not the published one; the message names it.
    """
    sums = [*kind.train_list, *kind.test_list, (kind.meta["filename"], kind.meta["md5"])]
    for name, md5 in sums:
        path = root / kind.base_folder / name
        if not check_integrity(path, md5):
            state = "is not the published file (wrong MD5)" if path.exists() else "is missing"
            raise ValueError(f"{path}: {state}; remove the folder {path.parent} to get it anew")
    parts = []
    for train in (True, False):
        part = kind(root, train=train, download=False)
        labels_N = np.asarray(part.targets)
        _check_labels(labels_N, num_classes, root / kind.base_folder)
        parts.append(Samples.from_pixels(part.data.transpose(0, 3, 1, 2), labels_N))
    return Samples.concatenate(parts)


def read_cifar_archive(kind: type[CIFAR10], archive: Path, num_classes: int) -> Samples:
    """Read CIFAR's published archive without leaving unpacked files behind.

    Args:
        kind: torchvision's class.
        archive: The ``tar.gz`` file, with the published MD5.
        num_classes: Number of classes.
    """
    with tempfile.TemporaryDirectory(prefix="cwfed-") as folder:
        wanted = cifar_files(kind, Path(folder))
        (Path(folder) / kind.base_folder).mkdir()
        with tarfile.open(archive, "r:gz") as tar:
            for path in wanted:
                member = tar.extractfile(f"{kind.base_folder}/{path.name}")
                assert member is not None, f"{archive} has no {path.name}"
                path.write_bytes(member.read())
        return read_cifar(kind, Path(folder), num_classes)


def _read_idx(path: Path, dimensions: int) -> np.ndarray:
    """Read an IDX file of bytes: 0, 0, 8, the number of dimensions, the sizes, the values."""
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rb") as file:
            content = file.read(MOST_IDX + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path}: damaged: {error}") from error
    if len(content) > MOST_IDX:
        raise ValueError(f"{path}: expected at most {MOST_IDX:,} bytes, it unpacks to more")
    start = 4 + 4 * dimensions
    if len(content) < start or content[:4] != bytes((0, 0, 8, dimensions)):
        raise ValueError(
            f"{path}: expected an IDX file of bytes with {dimensions} dimensions, got "
            f"{len(content)} bytes that begin {content[:4]!r}"
        )
    shape = np.frombuffer(content[4:start], dtype=">u4").tolist()
    if len(content) - start != math.prod(shape):
        raise ValueError(
            f"{path}: expected {math.prod(shape)} bytes of values, as {shape} in its header say, "
            f"found {len(content) - start}"
        )
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)


def _check_labels(labels_N: np.ndarray, num_classes: int, path: Path) -> None:
    wrong = np.flatnonzero((labels_N < 0) | (labels_N >= num_classes))
    if len(wrong):
        raise ValueError(
            f"{path}, sample {wrong[0]}: expected a label in 0..{num_classes - 1}, got "
            f"{labels_N[wrong[0]]}"
        )

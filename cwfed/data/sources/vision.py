"""MNIST, CIFAR-10 and CIFAR-100, training and test images together."""

import logging
import re
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from torchvision import datasets
from torchvision.datasets.utils import check_integrity

from cwfed.data.decoding import Mode, Samples
from cwfed.data.images import ImageData
from cwfed.data.limits import MOST_IDX
from cwfed.data.sources.base import (
    FileSource,
    Found,
    Reading,
    check_counts,
    check_shape,
    require_path,
)
from cwfed.data.sources.download import Remote, fetch
from cwfed.data.sources.legacy import (
    cifar_files,
    find_idx,
    read_cifar,
    read_cifar_archive,
    read_idx_pairs,
)
from cwfed.data.sources.parquet import parquet_files

log = logging.getLogger("cwfed")

CIFAR10_NAMES = "airplane automobile bird cat deer dog frog horse ship truck"
CIFAR100_NAMES = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly
camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile
cup dinosaur dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard lamp
lawn_mower leopard lion lizard lobster man maple_tree motorcycle mountain mouse mushroom oak_tree
orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine possum
rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider
squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor train
trout tulip turtle wardrobe whale willow_tree wolf woman worm
"""


PUBLISHED_ORDER = "training files, then test files, as published"


class KnownImages(FileSource):
    """A public data set whose classes, sizes and files are known.

    The files are looked for in this order: `path`; in the data folder Parquet files
    (``name.parquet``, ``name-train.parquet``, …, or any below a folder of that name), then
    torchvision's layout; the network.

    Args:
        path: A Parquet file, or a folder with the data in one of the layouts above.

    Raises:
        ValueError: `path` is not a path.
    """

    class_names: ClassVar[tuple[str, ...]]
    counts: ClassVar[tuple[int, ...]]
    shape: ClassVar[tuple[int, int, int]]
    published_hash: ClassVar[str | None]
    legacy_folder: ClassVar[Path]

    def __init__(self, path: str | None = None) -> None:
        self.path = None if path is None else require_path("path", path)

    def load(self, data_dir: Path | None = None, *, cache_dir: Path | None = None) -> ImageData:
        """Return all images in canonical order; warn if they are not the published pixels.

        Args:
            data_dir: Folder to look for files in and to download to; by default `default_data_dir`.
            cache_dir: Folder of decoded data; by default ``$CWFED_CACHE``, else the user's cache.
        """
        data = super().load(data_dir, cache_dir=cache_dir)
        if self.published_hash not in (None, data.content_hash):
            log.warning(
                "%s: the classes have their known sizes, but pixels or labels differ from the "
                "published ones (content hash %s)",
                self.name,
                data.content_hash,
            )
        return data

    def _find(self, data_dir: Path) -> Found:
        if self.path is not None:
            return self._find_in_path(Path(self.path).expanduser())
        found = self._find_in_folder(data_dir)
        if found is None:
            remotes, looked_for = self._remotes(), f"{self.name}*.parquet or torchvision's files"
            fetch(self.name, remotes, data_dir, looked_for=looked_for)
            found = self._find_in_folder(data_dir)
        assert found is not None, "what was downloaded must be found"
        return found

    def _find_in_path(self, path: Path) -> Found:
        found = self._find_file(path) if path.is_file() else None
        if path.is_dir():
            found = self._find_in_folder(path) or self._legacy(self._root_of(path))
            if found is None and (files := sorted(path.rglob("*.parquet"))):
                found = self._parquet(files)
        if found is None:
            raise FileNotFoundError(
                f"path: expected a Parquet file, or a folder with Parquet files or torchvision's "
                f"files of {self.name}, got {path}"
            )
        return found

    def _find_file(self, path: Path) -> Found | None:
        return self._parquet([path]) if path.suffix == ".parquet" else None

    def _root_of(self, path: Path) -> Path:
        """Return torchvision's root if the path is the folder torchvision keeps below it."""
        depth = len(self.legacy_folder.parts)
        inside = path.absolute().parts[-depth:] == self.legacy_folder.parts
        return path.absolute().parents[depth - 1] if inside else path

    def _find_in_folder(self, folder: Path) -> Found | None:
        files = named_parquet(folder, self.name)
        return self._parquet(files) if files else self._legacy(folder)

    def _parquet(self, files: Sequence[Path]) -> Found:
        mode: Mode = "L" if self.shape[0] == 1 else "RGB"
        return parquet_files(files, mode=mode, class_names=self.class_names)

    def _check(self, samples: Samples, files: Sequence[Path]) -> None:
        check_shape(self.name, samples.images_NCHW, self.shape, files)
        check_counts(self.name, samples.labels_N, self.counts, files)

    @abstractmethod
    def _legacy(self, root: Path) -> Found | None:
        """Find the files of the data set's authors below torchvision's root."""

    @abstractmethod
    def _remotes(self) -> list[Remote]:
        """Return the files to download."""


class MNIST(KnownImages):
    """MNIST: 70,000 handwritten digits, 28 x 28, gray.

    Args:
        path: A Parquet file, or a folder with Parquet files or torchvision's files; by default the
            data folder is searched, then the network.

    Raises:
        ValueError: `path` is not a path.
    """

    name = "mnist"
    class_names = tuple(str(digit) for digit in range(10))
    counts = (6903, 7877, 6990, 7141, 6824, 6313, 6876, 7293, 6825, 6958)
    shape = (1, 28, 28)
    published_hash = "d55f515c1fb35d56c8c9109bec233565a2323682a7ed56de9c9e20b4450662b9"
    legacy_folder = Path("MNIST", "raw")

    def _legacy(self, root: Path) -> Found | None:
        files = find_idx(root / self.legacy_folder)
        if files is None:
            return None
        classes = len(self.class_names)

        def read() -> Reading:
            return Reading(read_idx_pairs(files, classes), self.class_names)

        return Found("idx", files, {}, read, MOST_IDX, order=PUBLISHED_ORDER)

    def _remotes(self) -> list[Remote]:
        return [
            Remote(
                urls=tuple(mirror + name for mirror in datasets.MNIST.mirrors),
                md5=md5,
                target=f"MNIST/raw/{name}",
            )
            for name, md5 in datasets.MNIST.resources
        ]


class _CIFAR(KnownImages):
    """Shared part of both CIFAR data sets."""

    shape = (3, 32, 32)
    torchvision_class: ClassVar[Any]

    def _legacy(self, root: Path) -> Found | None:
        kind, classes = self.torchvision_class, len(self.class_names)
        files = tuple(path for path in cifar_files(kind, root) if path.is_file())
        if not files:
            archive = root / kind.filename
            return self._archive(archive) if archive.is_file() else None

        def read() -> Reading:
            return Reading(read_cifar(kind, root, classes), self.class_names)

        return Found("pickle", files, {}, read, order=PUBLISHED_ORDER)

    def _find_file(self, path: Path) -> Found | None:
        if path.name == self.torchvision_class.filename:
            return self._archive(path)
        return super()._find_file(path)

    def _archive(self, archive: Path) -> Found | None:
        kind, classes = self.torchvision_class, len(self.class_names)
        if not check_integrity(archive, kind.tgz_md5):
            log.warning("%s: not whole (wrong MD5), not used", archive)
            return None

        def read() -> Reading:
            return Reading(read_cifar_archive(kind, archive, classes), self.class_names)

        return Found("archive", (archive,), {}, read, order=PUBLISHED_ORDER)

    def _remotes(self) -> list[Remote]:
        kind = self.torchvision_class
        return [Remote(urls=(kind.url,), md5=kind.tgz_md5, target=kind.filename)]


class CIFAR10(_CIFAR):
    """CIFAR-10: 60,000 images of 10 classes, 32 x 32, colour.

    Args:
        path: A Parquet file, or a folder with Parquet files or torchvision's files; by default the
            data folder is searched, then the network.

    Raises:
        ValueError: `path` is not a path.
    """

    name = "cifar10"
    class_names = tuple(CIFAR10_NAMES.split())
    counts = (6000,) * 10
    # Of a lossless copy whose training images have the published means and deviations.
    published_hash = "8c9604cdb188e2c5280a5f8f9e22e79436ece97f7aedde330730c3d9948ad89d"
    legacy_folder = Path(datasets.CIFAR10.base_folder)
    torchvision_class = datasets.CIFAR10


class CIFAR100(_CIFAR):
    """CIFAR-100: 60,000 images of 100 (fine) classes, 32 x 32, colour.

    Args:
        path: A Parquet file, or a folder with Parquet files or torchvision's files; by default the
            data folder is searched, then the network.

    Raises:
        ValueError: `path` is not a path.
    """

    name = "cifar100"
    class_names = tuple(CIFAR100_NAMES.split())
    counts = (600,) * 100
    published_hash = "19b7aa8ffcb154ae2769331a08cb79118f4c0eb3d7caf7442b253d6030e0b0a8"
    legacy_folder = Path(datasets.CIFAR100.base_folder)
    torchvision_class = datasets.CIFAR100


def named_parquet(folder: Path, name: str) -> list[Path]:
    """Return the Parquet files of a data set in a data folder.

    Args:
        folder: The data folder; it may be missing.
        name: Name of the data set. ``cifar10`` does not match ``cifar100-train.parquet``.
    """
    pattern = re.compile(rf"{re.escape(name)}([-_.].*)?\.parquet")
    if not folder.is_dir():
        return []
    direct = [path for path in folder.iterdir() if pattern.fullmatch(path.name)]
    return sorted(path for path in direct if path.is_file()) or sorted(
        path for path in (folder / name).rglob("*.parquet") if path.is_file()
    )

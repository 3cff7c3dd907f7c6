"""A folder of class folders."""

from pathlib import Path

from cwfed.data.decoding import Encoded, Mode, decode_samples
from cwfed.data.limits import MOST_ENCODED, printable, require_classes
from cwfed.data.sources.base import FileSource, Found, Reading, require_path
from cwfed.messages.checks import require_integer

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp"})


class ImageFolder(FileSource):
    """Images in one folder for each class, at any depth below it.

    Classes are numbered in the order of their folders' names. Files that are not PNG, JPEG or WebP
    by their suffix, and hidden ones, are not read.

    Args:
        path: The folder of class folders.
        image_size: Resize every image to this square (bilinear; the aspect is not kept). By
            default all images must have one size.
        mode: ``"RGB"`` for three channels, ``"L"`` for one.

    Raises:
        ValueError: An argument is not of its kind.
    """

    name = "folder"

    def __init__(self, path: str, image_size: int | None = None, mode: Mode = "RGB") -> None:
        self.path = require_path("path", path)
        self.image_size = (
            None if image_size is None else require_integer("image_size", image_size, 1)
        )
        if mode not in ("RGB", "L"):
            raise ValueError(f"mode: expected 'RGB' or 'L', got {mode!r}")
        self.mode: Mode = mode
        self.name = printable(Path(path).name) or "folder"

    def _find(self, data_dir: Path) -> Found:
        folder = Path(self.path).expanduser()
        if not folder.is_dir():
            raise FileNotFoundError(f"path: expected a folder of class folders, got {folder}")
        images = {
            child.name: _images_below(child)
            for child in sorted(folder.iterdir())
            if child.is_dir() and not child.name.startswith(".")
        }
        if not images:
            raise ValueError(f"path: expected a folder of class folders, {folder} has no folders")
        require_classes(str(folder), len(images))
        for name, files in images.items():
            if not files:
                suffixes = ", ".join(sorted(SUFFIXES))
                raise ValueError(f"{folder / name}: expected images ({suffixes}), found none")
        settings = {"classes": list(images), "size": self.image_size, "mode": self.mode}
        every = tuple(path for files in images.values() for path in files)
        return Found("folder", every, settings, lambda: self._read(images), MOST_ENCODED)

    def _read(self, images: dict[str, list[Path]]) -> Reading:
        encoded = (
            Encoded(str(path), "", path.read_bytes(), label)
            for label, files in enumerate(images.values())
            for path in files
        )
        count = sum(len(files) for files in images.values())
        samples = decode_samples(
            encoded, count, mode=self.mode, image_size=self.image_size, title=self.name
        )
        return Reading(samples, tuple(images))


def _images_below(folder: Path) -> list[Path]:
    return sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in SUFFIXES and not path.name.startswith(".") and path.is_file()
    )

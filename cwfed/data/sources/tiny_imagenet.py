"""Tiny ImageNet's training images, read straight from the published zip."""

import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from cwfed.data.decoding import Encoded, Samples, decode_samples
from cwfed.data.limits import MOST_ENCODED, require_classes
from cwfed.data.sources.base import (
    FileSource,
    Found,
    Reading,
    check_counts,
    check_shape,
    require_path,
)
from cwfed.data.sources.download import Remote, fetch
from cwfed.messages.checks import require_integer
from cwfed.records.reading import read_text

FOLDER = "tiny-imagenet-200"
ARCHIVE = f"{FOLDER}.zip"
REMOTE = Remote(
    urls=(f"http://cs231n.stanford.edu/{ARCHIVE}",),
    md5="90528d7ca1a48142e341f4ef8d21d0de",
    target=ARCHIVE,
)
PER_CLASS = 500
ORDER = "by class, then by file name"
ENCRYPTED = 0x1
MEMBER = re.compile(r"(?:.*/)?train/(n\d{8})/images/[^/]+\.JPEG")


class TinyImageNet(FileSource):
    """Tiny ImageNet: 500 training images of each of 200 classes, 64 x 64, colour.

    The validation and test images are not used. Classes are numbered in the order of their WordNet
    ids. The zip is never unpacked to disk.

    Args:
        path: The zip, or the folder it unpacks to; by default the data folder is searched, then
            the network.
        num_classes: Number of classes the files must hold.

    Raises:
        ValueError: `path` is not a path, or `num_classes` not positive.
    """

    name = "tiny_imagenet"
    shape = (3, 64, 64)

    def __init__(self, path: str | None = None, num_classes: int = 200) -> None:
        self.path = None if path is None else require_path("path", path)
        self.num_classes = require_integer("num_classes", num_classes, 1)
        require_classes("num_classes", num_classes)

    def _find(self, data_dir: Path) -> Found:
        if self.path is not None:
            path = Path(self.path).expanduser()
            found = self._zip(path) if path.is_file() else self._folder(path)
            if found is None:
                raise FileNotFoundError(
                    f"path: expected {ARCHIVE} or the folder it unpacks to, got {path}"
                )
            return found
        archive = data_dir / ARCHIVE
        if not archive.is_file():
            if (found := self._folder(data_dir)) is not None:
                return found
            fetch(self.name, [REMOTE], data_dir, looked_for=f"{ARCHIVE} or the folder {FOLDER}")
        return self._zip(archive)

    def _zip(self, archive: Path) -> Found:
        return Found(
            "zip", (archive,), self._settings(), lambda: self._read_zip(archive), order=ORDER
        )

    def _folder(self, folder: Path) -> Found | None:
        for root in (folder, folder / FOLDER):
            candidates = sorted(root.glob("train/*/images/*"))
            if images := tuple(path for path in candidates if MEMBER.fullmatch(path.as_posix())):
                return self._files(images, root / "words.txt")
        return None

    def _files(self, images: tuple[Path, ...], words: Path) -> Found:
        every = (*images, words) if words.is_file() else images

        def read() -> Reading:
            return self._read(images, words)

        return Found("folder", every, self._settings(), read, MOST_ENCODED, order=ORDER)

    def _settings(self) -> dict[str, int]:
        return {"num_classes": self.num_classes}

    def _read(self, images: tuple[Path, ...], words: Path) -> Reading:
        text = read_text(words, errors="replace") if words.is_file() else ""
        labels, names = self._classes([path.as_posix() for path in images], images[0], text)
        encoded = (
            Encoded(str(path), "", path.read_bytes(), labels[_wnid(path.as_posix())])
            for path in images
        )
        return Reading(decode_samples(encoded, len(images), mode="RGB", title=self.name), names)

    def _read_zip(self, archive: Path) -> Reading:
        try:
            with zipfile.ZipFile(archive) as file:
                members = sorted(name for name in file.namelist() if MEMBER.fullmatch(name))
                labels, names = self._classes(members, archive, _words(file))
                stream = _members(file, archive, members, labels)
                samples = decode_samples(stream, len(members), mode="RGB", title=self.name)
        except zipfile.BadZipFile as error:
            raise ValueError(f"{archive}: not a whole zip file: {error}") from error
        return Reading(samples, names)

    def _classes(
        self, members: Sequence[str], where: Path, words: str
    ) -> tuple[dict[str, int], tuple[str, ...]]:
        """Number the classes found and name them, after checking how many there are."""
        wnids = sorted({_wnid(member) for member in members})
        if len(wnids) != self.num_classes:
            raise ValueError(
                f"num_classes: expected the number of classes below train/ in {where}, which is "
                f"{len(wnids)} (set num_classes to that for a part of the data set), "
                f"got {self.num_classes}"
            )
        return {wnid: label for label, wnid in enumerate(wnids)}, _class_names(wnids, words)

    def _check(self, samples: Samples, files: Sequence[Path]) -> None:
        check_shape(self.name, samples.images_NCHW, self.shape, files)
        check_counts(self.name, samples.labels_N, (PER_CLASS,) * self.num_classes, files)


def _wnid(member: str) -> str:
    match = MEMBER.fullmatch(member)
    assert match is not None, f"{member} was chosen by the same pattern"
    return match[1]


def _words(file: zipfile.ZipFile) -> str:
    found = [name for name in file.namelist() if name.split("/")[-1] == "words.txt"]
    return _read_member(file, found[0]).decode("utf-8", errors="replace") if found else ""


def _read_member(file: zipfile.ZipFile, member: str) -> bytes:
    """Read what a zip holds under a name, once it is clear that it is small and plain.

    Raises:
        ValueError: It is damaged, encrypted, packed in an unusual way or too large.
    """
    info = file.getinfo(member)
    where = f"{file.filename}, {member}"
    if info.file_size > MOST_ENCODED:
        raise ValueError(
            f"{where}: expected at most {MOST_ENCODED:,} bytes, it unpacks to {info.file_size:,}"
        )
    plain = info.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
    if info.flag_bits & ENCRYPTED or not plain:
        raise ValueError(f"{where}: expected a stored or deflated file without a password")
    try:
        return file.read(info)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError) as error:
        raise ValueError(f"{where}: damaged: {error}") from error


def _class_names(wnids: Sequence[str], words: str) -> tuple[str, ...]:
    """Return the first word for each id, all its words where that is not unique, else the id."""
    lines = (line.split("\t", 1) for line in words.splitlines() if "\t" in line)
    phrases = {wnid: phrase.strip() for wnid, phrase in lines}
    full = [phrases.get(wnid, wnid) for wnid in wnids]
    short = [phrase.split(",")[0] for phrase in full]
    return tuple(
        word if short.count(word) == 1 else phrase for word, phrase in zip(short, full, strict=True)
    )


def _members(
    file: zipfile.ZipFile, archive: Path, members: Sequence[str], labels: Mapping[str, int]
) -> Iterator[Encoded]:
    for member in members:
        data = _read_member(file, member)
        yield Encoded(str(archive), member, data, labels[_wnid(member)])

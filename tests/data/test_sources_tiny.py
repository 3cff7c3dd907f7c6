"""Tiny ImageNet from the zip and from its folder."""

import hashlib
import zipfile

import numpy as np
import pytest
from image_files import (
    encode,
    fails,
    load,
)

from cwfed.data.sources import TinyImageNet


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A zip of three classes with two JPEG images each, some gray."""
    monkeypatch.setattr("cwfed.data.sources.tiny_imagenet.PER_CLASS", 2)
    path = tmp_path / "data" / "tiny-imagenet-200.zip"
    path.parent.mkdir()
    generator = np.random.default_rng(0)
    with zipfile.ZipFile(path, "w") as file:
        for number, wnid in enumerate(("n00000003", "n00000001", "n00000002")):
            for index in range(2):
                pixels = generator.integers(0, 256, (1 + 2 * index, 64, 64), dtype=np.uint8)
                name = f"tiny-imagenet-200/train/{wnid}/images/{wnid}_{index}.JPEG"
                file.writestr(name, encode(pixels, "JPEG"))
            file.writestr(f"tiny-imagenet-200/train/{wnid}/{wnid}_boxes.txt", "")
            name = f"tiny-imagenet-200/val/images/val_{number}.JPEG"
            file.writestr(name, encode(pixels, "JPEG"))
        words = "n00000001\tcrane, bird\nn00000002\tcrane, machine\nn00000003\tdog, pet\nn9\tx\n"
        file.writestr("tiny-imagenet-200/words.txt", words)
    return path


def test_tiny_zip_and_folder_give_the_same(tmp_path, tiny):
    zipped = load(TinyImageNet(num_classes=3), tmp_path)
    with zipfile.ZipFile(tiny) as file:
        file.extractall(tmp_path / "unpacked")
    for path in (tmp_path / "unpacked", tmp_path / "unpacked" / "tiny-imagenet-200", tiny):
        data = load(TinyImageNet(str(path), num_classes=3), tmp_path)
        assert data.content_hash == zipped.content_hash
        assert data.class_names == ("crane, bird", "crane, machine", "dog")
        assert (data.images_NCHW == zipped.images_NCHW).all()
    assert zipped.images_NCHW.shape == (6, 3, 64, 64)
    assert sorted(path.name for path in tiny.parent.iterdir()) == [tiny.name]


def test_jpegs_are_ordered_and_hashed_by_their_files(tmp_path, tiny):
    """Decoders round differently, so that the pixels would not name an image everywhere."""
    with zipfile.ZipFile(tiny) as file:
        members = [name for name in file.namelist() if "/train/" in name and "JPEG" in name]
        keys = sorted(
            (int(name.split("_")[0][-1]) - 1, hashlib.sha256(file.read(name)).digest())
            for name in members
        )
    content = hashlib.sha256(b"cwfed-content/1 3x64x64\n")
    for label, digest in keys:
        content.update(label.to_bytes(8, "little") + digest)
    data = load(TinyImageNet(num_classes=3), tmp_path)
    assert data.content_hash == content.hexdigest()


def test_tiny_wrong_number_of_classes(tmp_path, tiny):
    fails(
        TinyImageNet(),
        tmp_path,
        "num_classes: expected",
        tiny,
        "which is 3 (set num_classes to that",
        "got 200",
    )


def test_tiny_missing_images(tmp_path, tiny, monkeypatch):
    monkeypatch.setattr("cwfed.data.sources.tiny_imagenet.PER_CLASS", 500)
    fails(
        TinyImageNet(num_classes=3), tmp_path, "expected 500 samples of class 0, found 2 in", tiny
    )


def test_tiny_truncated_zip(tmp_path, tiny):
    tiny.write_bytes(tiny.read_bytes()[:-100])
    fails(TinyImageNet(num_classes=3), tmp_path, tiny, "not a whole zip file")


def test_tiny_damaged_member(tmp_path, tiny):
    with zipfile.ZipFile(tiny) as file:
        member = file.infolist()[1]
    content = bytearray(tiny.read_bytes())
    content[member.header_offset + 1000] ^= 1
    tiny.write_bytes(content)
    fails(TinyImageNet(num_classes=3), tmp_path, tiny, member.filename, "damaged")


def test_tiny_path_without_data(tmp_path):
    source = TinyImageNet(str(tmp_path))
    fails(source, tmp_path, "path: expected tiny-imagenet-200.zip", error=FileNotFoundError)

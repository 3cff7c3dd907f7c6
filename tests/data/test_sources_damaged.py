"""Images, folders and known data sets that are not what they seem: the message says where."""

import io
import zlib

import numpy as np
import pytest
from image_files import (
    encode,
    fails,
    load,
    small_images,
    write_cifar,
    write_mnist_idx,
    write_parquet,
)
from PIL import Image
from torchvision import datasets

from cwfed.data.sources import CIFAR10, CIFAR100, MNIST, ImageFolder, Parquet


def png16(mode):
    if mode == "I;16":
        stream = io.BytesIO()
        Image.fromarray(np.full((28, 28), 1000, dtype=np.uint16)).save(stream, "PNG")
        return stream.getvalue()
    # Pillow writes no 16-bit colour, so the chunks are written by hand.
    chunks = [
        (b"IHDR", (28).to_bytes(4, "big") * 2 + bytes((16, 2, 0, 0, 0))),
        (b"IDAT", zlib.compress((b"\0" + bytes(28 * 6)) * 28)),
        (b"IEND", b""),
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        len(body).to_bytes(4, "big") + kind + body + zlib.crc32(kind + body).to_bytes(4, "big")
        for kind, body in chunks
    )


def animation():
    stream = io.BytesIO()
    frames = [Image.new("RGB", (28, 28), colour) for colour in ("red", "blue")]
    frames[0].save(stream, "WEBP", save_all=True, append_images=frames[1:])
    return stream.getvalue()


def transparent():
    stream = io.BytesIO()
    Image.new("RGBA", (28, 28), (1, 2, 3, 100)).save(stream, "PNG")
    return stream.getvalue()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: png16("I;16"), "expected 8 bits a channel, got mode I;16"),
        (lambda: png16("RGB"), "expected 8 bits a channel, got mode RGB"),
        (animation, "got an animation"),
        (transparent, "expected an opaque image"),
        (lambda: b"GIF89a", "expected a PNG, JPEG or WebP file"),
        (lambda: b"", "got 0 bytes"),
        (lambda: encode(np.zeros((1, 30, 28), np.uint8)), "expected 28 x 28 pixels like"),
    ],
)
@pytest.mark.parametrize("kind", ["parquet", "folder"])
def test_images_that_cannot_be_taken(tmp_path, rows, make, message, kind):
    files, labels = rows
    files[4] = make()
    if kind == "parquet":
        path = write_parquet(tmp_path / "a.parquet", files, labels)
        fails(Parquet(str(path)), tmp_path, path, "row 4", message)
        return
    for number, (data, label) in enumerate(zip(files, labels, strict=True)):
        file = tmp_path / "in" / str(label) / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    if "like" in message:  # files are read by class, so another image may be the odd one
        fails(ImageFolder(str(tmp_path / "in")), tmp_path, ".png", "a data set needs one size")
        assert load(ImageFolder(str(tmp_path / "in"), 14), tmp_path).input_shape == (3, 14, 14)
        return
    bad = tmp_path / "in" / str(labels[4]) / "4.png"
    fails(ImageFolder(str(tmp_path / "in")), tmp_path, bad, message)


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("factor", [0.9, 0.4])
def test_decompression_bomb(tmp_path, rows, monkeypatch, factor):
    """Both of Pillow's thresholds, the one it warns at and the one it raises at, are errors."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", int(28 * 28 * factor))
    path = write_parquet(tmp_path / "a.parquet", *rows)
    fails(Parquet(str(path)), tmp_path, path, "row 0", "pixels")


def test_a_cameras_jpeg_with_previews_is_its_picture(tmp_path):
    stream = io.BytesIO()
    picture, preview = (Image.new("RGB", (28, 28), colour) for colour in ("red", "blue"))
    picture.save(stream, "MPO", save_all=True, append_images=[preview])
    path = write_parquet(tmp_path / "a.parquet", [stream.getvalue()], [0])
    data = load(Parquet(str(path)), tmp_path)
    assert data.images_NCHW[0, :, 0, 0].tolist()[0] > 250


def test_opaque_alpha_and_palettes_are_taken(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (28, 28, 3), dtype=np.uint8)
    plain = Image.fromarray(pixels).quantize(16)
    files = []
    for image in (plain, plain.convert("RGB"), plain.convert("RGBA")):
        stream = io.BytesIO()
        image.save(stream, "PNG")
        files.append(stream.getvalue())
    data = load(Parquet(str(write_parquet(tmp_path / "a.parquet", files, [0, 0, 0]))), tmp_path)
    expected = np.asarray(plain.convert("RGB")).transpose(2, 0, 1)
    assert (data.images_NCHW.numpy() == expected).all()


# Folders


def test_channels_of_a_parquet_file_follow_its_images(tmp_path, rows):
    files, labels = rows
    path = write_parquet(tmp_path / "a.parquet", files, labels)
    assert load(Parquet(str(path)), tmp_path).input_shape == (1, 28, 28)
    files[-1] = encode(np.zeros((3, 28, 28), np.uint8))
    write_parquet(path, files, labels)
    assert load(Parquet(str(path)), tmp_path).input_shape == (3, 28, 28)


def test_folder_mode_and_what_is_not_read(tmp_path):
    for name in ("b", "a"):
        (tmp_path / "in" / name / "deep").mkdir(parents=True)
        (tmp_path / "in" / name / "deep" / "x.JPG").write_bytes(
            encode(np.full((3, 8, 8), ord(name), np.uint8), "JPEG")
        )
        (tmp_path / "in" / name / ".hidden.png").write_bytes(b"")
        (tmp_path / "in" / name / "notes.txt").write_bytes(b"")
    (tmp_path / "in" / ".cache").mkdir()
    data = load(ImageFolder(str(tmp_path / "in"), mode="L"), tmp_path)
    assert data.class_names == ("a", "b")
    assert data.images_NCHW.shape == (2, 1, 8, 8)
    assert data.images_NCHW[:, 0, 0, 0].tolist() == [ord("a"), ord("b")]


def test_empty_folders(tmp_path):
    folder = tmp_path / "in"
    fails(ImageFolder(str(folder)), tmp_path, "path: expected a folder", error=FileNotFoundError)
    folder.mkdir()
    fails(ImageFolder(str(folder)), tmp_path, "has no folders")
    (folder / "cat").mkdir()
    fails(ImageFolder(str(folder)), tmp_path, folder / "cat", "found none")


# Known data sets


def test_known_counts_are_checked(tmp_path, rows, monkeypatch):
    monkeypatch.setattr(MNIST, "counts", (3,) * 10)
    files, labels = rows
    swapped = labels.copy()
    swapped[labels.index(7)] = 2
    path = write_parquet(tmp_path / "mnist.parquet", files, swapped)
    fails(MNIST(str(path)), tmp_path, "expected 3 samples of class 2, found 4 in", path)


def test_known_shape_is_checked(tmp_path, monkeypatch):
    images, labels = small_images(10, 2, (3, 28, 28))
    path = write_parquet(tmp_path / "a.parquet", [encode(image) for image in images], labels)
    fails(CIFAR10(str(path)), tmp_path, "expected images of shape (3, 32, 32)", path)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[:-1], "expected 7840 bytes of values"),
        (lambda data: data + b"x", "expected 7840 bytes of values"),
        (lambda data: b"\0\0\x0d" + data[3:], "expected an IDX file of bytes with 3 dimensions"),
        (lambda data: data[:9], "expected an IDX file"),
    ],
)
def test_damaged_idx(tmp_path, damage, message):
    raw = write_mnist_idx(tmp_path / "data", *small_images(10, 3), train=20)
    path = raw / "t10k-images-idx3-ubyte"
    path.write_bytes(damage(path.read_bytes()))
    fails(MNIST(), tmp_path, path, message)


def test_damaged_idx_archive_and_labels(tmp_path):
    images, labels = small_images(10, 3)
    raw = write_mnist_idx(tmp_path / "data", images, labels, train=20, compress=True)
    path = raw / "train-labels-idx1-ubyte.gz"
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])
    fails(MNIST(), tmp_path, path, "damaged")
    path.write_bytes((raw / "t10k-labels-idx1-ubyte.gz").read_bytes())
    fails(MNIST(), tmp_path, path, "expected 20 labels", "found 10")
    labels[3] = 77
    write_mnist_idx(tmp_path / "data", images, labels, train=20, compress=True)
    fails(MNIST(), tmp_path, path, "sample 3: expected a label in 0..9, got 77")


def test_damaged_cifar_pickle_is_not_opened(tmp_path, monkeypatch):
    images, labels = small_images(100, 2, (3, 32, 32))
    folder = write_cifar(
        tmp_path / "data",
        images,
        labels,
        datasets.CIFAR100,
        monkeypatch,
        "fine_labels",
        CIFAR100.class_names,
    )
    # A pickle that would raise ZeroDivisionError if it were loaded.
    (folder / "test").write_bytes(b"c__builtin__\neval\n(V1/0\ntR.")
    fails(CIFAR100(), tmp_path, folder / "test", "wrong MD5")
    (folder / "test").unlink()
    fails(CIFAR100(), tmp_path, folder / "test", "is missing")

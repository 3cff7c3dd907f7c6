"""Damaged, mislabelled and missing data: the message names the place and the reason."""

import hashlib
import io
import re
import zipfile
import zlib

import numpy as np
import pyarrow as pa
import pytest
from image_files import encode, small_images, write_cifar, write_mnist_idx, write_parquet
from PIL import Image
from torchvision import datasets

from cwfed.data.decoding import decode_image
from cwfed.data.sources import CIFAR10, CIFAR100, MNIST, ImageFolder, Parquet, TinyImageNet


@pytest.fixture
def rows():
    images, labels = small_images(10, 3)
    return [encode(image) for image in images], labels.tolist()


def load(source, folder):
    return source.load(folder / "data", cache_dir=folder / "cache")


def fails(source, folder, *parts, error=ValueError):
    """Loading raises one error whose message holds all parts, and caches nothing."""
    with pytest.raises(error, match=".*".join(re.escape(str(part)) for part in parts)):
        load(source, folder)
    assert not (folder / "cache").exists()


# Parquet


def test_truncated_parquet(tmp_path, rows):
    path = write_parquet(tmp_path / "a.parquet", *rows)
    path.write_bytes(path.read_bytes()[:-20])
    fails(Parquet(str(path)), tmp_path, path, "not a whole Parquet file")


def test_damaged_parquet_pages(tmp_path, rows):
    path = write_parquet(tmp_path / "a.parquet", *rows)
    content = bytearray(path.read_bytes())
    content[4:400] = bytes(396)
    path.write_bytes(content)
    fails(Parquet(str(path)), tmp_path, path, "damaged Parquet file")


def test_truncated_image_in_a_row(tmp_path, rows):
    files, labels = rows
    for cut in (1, 6, 12, 40, len(files[17]) - 20):
        damaged = [*files[:17], files[17][:-cut], *files[18:]]
        path = write_parquet(tmp_path / "a.parquet", damaged, labels)
        fails(Parquet(str(path)), tmp_path, path, "row 17")


def test_every_changed_byte_of_a_png_is_found(tmp_path):
    """Pillow alone lets some of these pass as other pixels."""
    file = encode(small_images(1, 1, (1, 12, 12))[0][0])
    for position in range(len(file)):
        damaged = bytearray(file)
        damaged[position] ^= 0x55
        with pytest.raises((ValueError, OSError, SyntaxError)):
            decode_image(bytes(damaged), mode="L")


def test_rows_are_counted_within_each_file(tmp_path, rows):
    files, labels = rows
    write_parquet(tmp_path / "in" / "a.parquet", files, labels)
    path = write_parquet(tmp_path / "in" / "b.parquet", [*files[:2], b"no image"], labels[:3])
    fails(Parquet(str(tmp_path / "in")), tmp_path, path, "row 2", "expected a PNG, JPEG or WebP")


@pytest.mark.parametrize("label", [-1, 10])
def test_label_out_of_range(tmp_path, rows, label):
    files, labels = rows
    labels[5] = label
    path = write_parquet(tmp_path / "mnist.parquet", files, labels)
    fails(MNIST(str(path)), tmp_path, path, "row 5", "0..9", "'label'", f"got {label}")
    names = [str(digit) for digit in range(10)]
    path = write_parquet(tmp_path / "own.parquet", files, labels, names=names)
    fails(Parquet(str(path)), tmp_path, path, "row 5", "0..9", f"got {label}")


def test_negative_label_without_names(tmp_path, rows):
    files, labels = rows
    labels[5] = -3
    path = write_parquet(tmp_path / "a.parquet", files, labels)
    fails(Parquet(str(path)), tmp_path, path, "row 5", ">= 0", "got -3")


def test_null_label(tmp_path, rows):
    files, labels = rows
    labels[9] = None
    path = write_parquet(tmp_path / "a.parquet", files, labels)
    fails(Parquet(str(path)), tmp_path, path, "row 9", "no label", "'label'")


@pytest.mark.parametrize("whole", [True, False])
def test_null_image(tmp_path, rows, whole):
    files, labels = rows
    path = tmp_path / "a.parquet"
    if whole:
        write_parquet(path, [*files[:9], None, *files[10:]], labels)
    else:
        struct = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
        cells = [
            {"bytes": data if row != 9 else None, "path": "x"} for row, data in enumerate(files)
        ]
        table = pa.table({"image": pa.array(cells, struct), "label": labels})
        pa.parquet.write_table(table, path)
    fails(Parquet(str(path)), tmp_path, path, "row 9", "no image bytes", "'image'")


def test_labels_with_a_gap_need_names(tmp_path, rows):
    files, labels = rows
    doubled = [2 * label for label in labels]
    path = write_parquet(tmp_path / "a.parquet", files, doubled)
    fails(Parquet(str(path)), tmp_path, path, "no sample has label 1", "largest label is 18")
    write_parquet(path, files, doubled, names=[f"class {label}" for label in range(19)])
    assert load(Parquet(str(path)), tmp_path).num_classes == 19


def test_no_rows(tmp_path):
    path = write_parquet(tmp_path / "a.parquet", [], [])
    fails(Parquet(str(path)), tmp_path, path, "found no rows")


def test_no_files(tmp_path):
    (tmp_path / "in").mkdir()
    fails(Parquet(str(tmp_path / "in")), tmp_path, "path: expected Parquet files", "found none")
    missing = tmp_path / "missing.parquet"
    fails(Parquet(str(missing)), tmp_path, "path: expected", missing, error=FileNotFoundError)


# Columns and class names


def test_columns_are_found_or_asked_for(tmp_path, rows):
    files, labels = rows
    raw = pa.array(files, pa.binary())
    other = {"coarse": pa.array(labels[::-1]), "raw": raw}
    path = write_parquet(tmp_path / "a.parquet", files, labels, label_column="fine", extra=other)
    fails(Parquet(str(path)), tmp_path, path, "set image_column to one of ['image', 'raw']")
    fails(
        Parquet(str(path), image_column="image"),
        tmp_path,
        "set label_column to one of ['fine', 'coarse']",
    )
    fails(Parquet(str(path), "nix"), tmp_path, "image_column: expected one of", "got 'nix'")
    chosen = load(Parquet(str(path), "image", "fine"), tmp_path)
    assert load(Parquet(str(path), "raw", "fine"), tmp_path).content_hash == chosen.content_hash
    assert load(Parquet(str(path), "raw", "coarse"), tmp_path).content_hash != chosen.content_hash


def test_fine_label_is_preferred(tmp_path, rows):
    files, labels = rows
    only = write_parquet(tmp_path / "a.parquet", files, labels)
    both = write_parquet(
        tmp_path / "b.parquet",
        files,
        labels,
        label_column="fine_label",
        extra={"label": pa.array([0] * len(files))},
    )
    one, other = (load(Parquet(str(path)), tmp_path) for path in (only, both))
    assert one.content_hash == other.content_hash


def test_no_column_fits(tmp_path, rows):
    path = tmp_path / "a.parquet"
    pa.parquet.write_table(pa.table({"text": ["a"], "label": [0]}), path)
    fails(Parquet(str(path)), tmp_path, path, "no column fits as image_column", "text (string)")


def test_class_names_come_from_the_metadata(tmp_path, rows):
    names = tuple("abcdefghij")
    path = write_parquet(tmp_path / "a.parquet", *rows, names=names)
    data = load(Parquet(str(path), name="mine"), tmp_path)
    assert (data.class_names, data.name) == (names, "mine")
    bare = write_parquet(tmp_path / "b.parquet", *rows)
    assert load(Parquet(str(bare)), tmp_path).class_names == tuple("0123456789")


def test_files_with_other_class_names(tmp_path, rows):
    write_parquet(tmp_path / "in" / "a.parquet", *rows, names="abcdefghij")
    path = write_parquet(tmp_path / "in" / "b.parquet", *rows, names="abcdefghji")
    fails(Parquet(str(tmp_path / "in")), tmp_path, path, "expected the class names ('a',")


def test_known_names_in_another_order(tmp_path, rows, monkeypatch):
    path = write_parquet(tmp_path / "mnist.parquet", *rows, names="1023456789")
    fails(MNIST(str(path)), tmp_path, path, "expected the class names ('0', '1'")
    monkeypatch.setattr(MNIST, "counts", (3,) * 10)
    spelled = [f"{digit} - so" for digit in range(10)]
    write_parquet(path, *rows, names=spelled)
    assert load(MNIST(str(path)), tmp_path).class_names == tuple("0123456789")


# Images that would not be what they seem


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


# Tiny ImageNet


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
    fails(TinyImageNet(), tmp_path, "num_classes: expected", tiny, "which is 3, got 200")


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

"""Files made to do harm: they are refused with a message, in little memory, and nothing runs."""

import gzip
import hashlib
import io
import os
import pickle
import tracemalloc
import zipfile
import zlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from image_files import encode, fails, load, small_images, write_cifar, write_mnist_idx
from PIL import Image
from torchvision import datasets

from cwfed.cli import main
from cwfed.data import decoding, limits
from cwfed.data.sources import CIFAR10, CIFAR100, MNIST, ImageFolder, Parquet, TinyImageNet

MEMBER = "train/n00000001/images/a.JPEG"


def chunk(kind, body):
    return len(body).to_bytes(4, "big") + kind + body + zlib.crc32(kind + body).to_bytes(4, "big")


def png_bomb(side):
    """A few kilobytes that say they are a picture of any size."""
    sizes = side.to_bytes(4, "big") * 2
    body = zlib.compress(bytes(1 << 20))
    head = chunk(b"IHDR", sizes + bytes((8, 2, 0, 0, 0)))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def jpeg_bomb(side):
    data = bytearray(encode(np.zeros((3, 8, 8), np.uint8), "JPEG"))
    at = data.index(b"\xff\xc0") + 5
    data[at : at + 4] = side.to_bytes(2, "big") * 2
    return bytes(data)


def folder_of(tmp_path, data, name="x.png"):
    (tmp_path / "in" / "a").mkdir(parents=True)
    (tmp_path / "in" / "a" / name).write_bytes(data)
    return ImageFolder(str(tmp_path / "in"))


@pytest.mark.parametrize("bomb", [png_bomb(6000), png_bomb(60_000), jpeg_bomb(6000)])
def test_a_picture_that_unpacks_to_too_much(tmp_path, bomb):
    tracemalloc.start()
    try:
        fails(folder_of(tmp_path, bomb), tmp_path, "x.png", "pixels")
        assert tracemalloc.get_traced_memory()[1] < 5e7
    finally:
        tracemalloc.stop()


def test_large_pictures_are_decoded_one_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(decoding, "LARGE_PIXELS", 63)
    at_once, most = [], []
    look = decoding._refuse_what_would_lose

    def watched(image, data):
        at_once.append(image)
        most.append(len(at_once))
        look(image, data)
        image.load()
        at_once.pop()

    monkeypatch.setattr(decoding, "_refuse_what_would_lose", watched)
    (tmp_path / "in" / "a").mkdir(parents=True)
    for number, pixels in enumerate(small_images(1, 60, (3, 8, 8))[0]):
        (tmp_path / "in" / "a" / f"{number}.png").write_bytes(encode(pixels))
    load(ImageFolder(str(tmp_path / "in")), tmp_path)
    assert len(most) == 60
    assert max(most) == 1


def test_more_pictures_than_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "_physical_memory", lambda: 200)
    source = folder_of(tmp_path, encode(np.zeros((3, 8, 8), np.uint8)))
    fails(source, tmp_path, "1 images of shape (3, 8, 8) need", "GB of this machine's memory")


def test_few_encoded_bytes_are_held_at_once(monkeypatch):
    monkeypatch.setattr(decoding, "BATCH_BYTES", 25)
    stream = [decoding.Encoded("f", "", bytes(10), 0)] * 7
    assert [len(batch) for batch in decoding._batches(stream)] == [3, 3, 1]


def test_a_huge_file_is_not_even_hashed(tmp_path):
    source = folder_of(tmp_path, b"")
    with (tmp_path / "in" / "a" / "x.png").open("wb") as file:
        file.truncate(1 << 40)  # sparse: no byte of it is on the disk
    fails(source, tmp_path, "x.png", "expected at most 67,108,864 bytes, got 1,099,511,627,776")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes are files on POSIX only")
@pytest.mark.parametrize("make", [os.mkfifo, lambda path: os.symlink("/dev/zero", path)])
def test_pipes_and_devices_are_not_read(tmp_path, make):
    images = tmp_path / "in" / "train" / "n00000001" / "images"
    images.mkdir(parents=True)
    make(images / "a.JPEG")
    fails(TinyImageNet(str(tmp_path / "in"), 1), tmp_path, "a.JPEG", "expected a regular file")
    (tmp_path / "classes" / "a").mkdir(parents=True)
    make(tmp_path / "classes" / "a" / "x.png")
    fails(ImageFolder(str(tmp_path / "classes")), tmp_path, "expected images", "found none")


def test_names_that_a_terminal_would_obey_or_cannot_write(tmp_path):
    folder = os.fsencode(tmp_path / "in") + b"/a\xff\x1b[2J"
    os.makedirs(folder)
    for name in (b"/\xfe.png", b"/\n\x1b[31m.png"):
        with open(folder + name, "wb") as file:
            file.write(encode(np.zeros((3, 8, 8), np.uint8)))
    assert load(ImageFolder(str(tmp_path / "in")), tmp_path).class_names == (r"a\udcff\x1b[2J",)


def test_messages_do_not_command_a_terminal(tmp_path, capsys):
    folder = tmp_path / "a\x1b[2J\x9b"
    folder.mkdir()
    arguments = ["--data", "ImageFolder", "--data.path", str(folder)]
    assert main(["partition", "--config", "quickstart", *arguments]) == 2
    assert r"a\x1b[2J\x9b has no folders" in capsys.readouterr().err


# Archives


def zip_of(path, members, kind=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", kind) as file:
        for name, data in members.items():
            file.writestr(name, data)
    return TinyImageNet(str(path), 1)


def mark(path, offset_local, offset_central, value):
    """Change a byte in a zip's local and central header of its only member."""
    data = bytearray(path.read_bytes())
    data[offset_local] = value
    data[data.index(b"PK\1\2") + offset_central] = value
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("member", [MEMBER, "words.txt"])
def test_a_zip_bomb(tmp_path, member):
    path = tmp_path / "t.zip"
    source = zip_of(path, {MEMBER: b"x", member: bytes(limits.MOST_ENCODED + 1)})
    tracemalloc.start()
    try:
        fails(source, tmp_path, path, member, "expected at most 67,108,864 bytes")
        assert tracemalloc.get_traced_memory()[1] < 5e6
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("local", "central", "value"), [(6, 8, 1), (8, 10, 99), (8, 10, 14)])
def test_a_zip_with_a_password_or_an_unusual_packing(tmp_path, local, central, value):
    path = tmp_path / "t.zip"
    source = zip_of(path, {MEMBER: b"x"}, zipfile.ZIP_STORED)
    mark(path, local, central, value)
    fails(source, tmp_path, path, MEMBER, "expected a stored or deflated file without a password")


def test_names_in_a_zip_lead_nowhere(tmp_path):
    """Members are read under the names they have; no file is made, wherever these point."""
    names = [f"/../../{MEMBER}", f"/etc/{MEMBER}", f"a/../../../{MEMBER}"]
    source = zip_of(
        tmp_path / "t.zip", dict.fromkeys(names, encode(small_images(1, 1, (3, 64, 64))[0][0]))
    )
    fails(source, tmp_path, "found 3 in")
    assert os.listdir(tmp_path) == ["t.zip"]


def test_a_gzip_bomb(tmp_path, monkeypatch):
    monkeypatch.setattr("cwfed.data.sources.legacy.MOST_IDX", 1 << 20)
    raw = write_mnist_idx(tmp_path / "data", *small_images(10, 3), train=20, compress=True)
    path = raw / "train-images-idx3-ubyte.gz"
    head = bytes((0, 0, 8, 3)) + np.array([60_000, 28, 28], ">u4").tobytes()
    path.write_bytes(gzip.compress(head + bytes(1 << 26)))
    tracemalloc.start()
    try:
        fails(MNIST(), tmp_path, path, "expected at most 1,048,576 bytes, it unpacks to more")
        assert tracemalloc.get_traced_memory()[1] < 5e6
    finally:
        tracemalloc.stop()


def test_images_and_labels_of_different_files(tmp_path):
    raw = write_mnist_idx(tmp_path / "data", *small_images(10, 3), train=20)
    images, labels = raw / "train-images-idx3-ubyte", raw / "train-labels-idx1-ubyte"
    one, other = images.read_bytes(), labels.read_bytes()
    images.write_bytes(other), labels.write_bytes(one)
    fails(MNIST(), tmp_path, images, "expected an IDX file of bytes with 3 dimensions")


# Parquet


def parquet(path, images, labels, **options):
    pq.write_table(pa.table({"image": images, "label": labels}), path, **options)
    return Parquet(str(path))


def test_a_column_that_unpacks_to_too_much(tmp_path, monkeypatch):
    monkeypatch.setattr("cwfed.data.sources.parquet.GROUP_BYTES", 1 << 20)
    path = tmp_path / "a.parquet"
    blank = pa.array([bytes(1 << 21)], pa.binary())
    source = parquet(path, blank, [0], compression="zstd", use_dictionary=False)
    fails(source, tmp_path, path, "expected images, which hardly pack", "'image' unpack to")


def test_a_long_value_used_often_is_read_in_few_rows(tmp_path, monkeypatch):
    monkeypatch.setattr("cwfed.data.sources.parquet.BATCH_BYTES", 1 << 17)
    image = encode(np.random.default_rng(0).integers(0, 256, (3, 100, 100), dtype=np.uint8))
    assert len(image) > 30_000
    path = tmp_path / "a.parquet"
    source = parquet(path, pa.array([image] * 64), [0] * 64, dictionary_pagesize_limit=1 << 20)
    assert path.stat().st_size < 2 * len(image) + 10_000
    held = []
    read = pq.ParquetFile.iter_batches

    def watched(file, *arguments, **options):
        for batch in read(file, *arguments, **options):
            held.append(len(batch))
            yield batch

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", watched)
    assert len(load(source, tmp_path)) == 64
    assert max(held) <= (1 << 17) // len(image)


@pytest.mark.parametrize("label", [2, 2**31, 2**62, 2**64 - 1])
def test_a_label_far_beyond_the_samples(tmp_path, rows, label):
    labels = pa.array([0, label], pa.uint64())
    path = tmp_path / "a.parquet"
    fails(parquet(path, pa.array(rows[0][:2]), labels), tmp_path, path, "row 1", "in 0..1", label)


def test_odd_schemas(tmp_path, rows):
    path = tmp_path / "a.parquet"
    columns = [pa.array(rows[0][:1]), pa.array([0]), pa.array([1])]
    pq.write_table(pa.Table.from_arrays(columns, ["image", "label", "label"]), path)
    fails(Parquet(str(path)), tmp_path, path, "expected one column 'label', got several")
    table = pa.table({"image": rows[0][:1], "label": [0]})
    pq.write_table(table.replace_schema_metadata({"huggingface": "[" * 100_000}), path)
    assert load(Parquet(str(path)), tmp_path).class_names == ("0",)


# Pickles


class Trap:
    """Leaves a file where its pickle is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.parametrize("name", ["train", "test", "meta"])
def test_a_pickle_in_cifars_layout_is_never_loaded(tmp_path, monkeypatch, name):
    images, labels = small_images(100, 2, (3, 32, 32))
    root, names = tmp_path / "data", CIFAR100.class_names
    kind = datasets.CIFAR100
    folder = write_cifar(root, images, labels, kind, monkeypatch, "fine_labels", names)
    (folder / name).write_bytes(pickle.dumps({"data": Trap(tmp_path / "sprung")}))
    fails(CIFAR100(), tmp_path, folder / name, "wrong MD5")
    fails(CIFAR100(str(folder)), tmp_path, folder / name, "wrong MD5")
    assert not (tmp_path / "sprung").exists()


def test_a_pickle_in_cifars_archive_is_never_loaded(tmp_path):
    import tarfile

    archive = tmp_path / "data" / datasets.CIFAR10.filename
    archive.parent.mkdir()
    data = pickle.dumps(Trap(tmp_path / "sprung"))
    with tarfile.open(archive, "w:gz") as tar:
        for name in ("data_batch_1", "../../escaped", "/escaped"):
            info = tarfile.TarInfo(f"{datasets.CIFAR10.base_folder}/{name}")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    fails(CIFAR10(str(archive)), tmp_path, "path: expected a Parquet file", error=FileNotFoundError)
    assert sorted(os.listdir(tmp_path)) == ["data"]


def test_the_right_checksum_is_that_of_the_whole_file(tmp_path, monkeypatch):
    """The trap works where it is vouched for: the checks above are what stops it."""
    images, labels = small_images(100, 2, (3, 32, 32))
    kind = datasets.CIFAR100
    names = CIFAR100.class_names
    folder = write_cifar(tmp_path / "data", images, labels, kind, monkeypatch, "fine_labels", names)
    data = pickle.dumps({"data": Trap(tmp_path / "sprung"), "fine_labels": []})
    (folder / "train").write_bytes(data)
    monkeypatch.setattr(kind, "train_list", [["train", hashlib.md5(data).hexdigest()]])
    with pytest.raises(Exception, match=r"."):
        load(CIFAR100(), tmp_path)
    assert (tmp_path / "sprung").exists()


def test_a_palette_and_gray_in_colour_are_what_they_show(tmp_path):
    gray = np.arange(64, dtype=np.uint8).reshape(8, 8)
    for number, mode in enumerate(("L", "P", "RGB", "LA", "RGBA")):
        (tmp_path / "in" / "a").mkdir(parents=True, exist_ok=True)
        Image.fromarray(gray).convert(mode).save(tmp_path / "in" / "a" / f"{number}.png")
    images = load(ImageFolder(str(tmp_path / "in")), tmp_path).images_NCHW
    assert (images.numpy() == gray).all()

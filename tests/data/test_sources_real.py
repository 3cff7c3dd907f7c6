"""The real data sets, where they lie beside the project."""

import time
import zlib

import pyarrow.parquet as pq
import pytest
import torch

from cwfed.data.sources import CIFAR100, MNIST, TinyImageNet
from cwfed.data.sources.base import check_counts


def test_mnist(real_data, real_cache, caplog):
    data = MNIST().load(real_data, cache_dir=real_cache)
    assert data.images_NCHW.shape == (70_000, 1, 28, 28)
    assert data.class_names == tuple("0123456789")
    assert data.content_hash == MNIST.published_hash
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
    # The mean is known from the files of the authors.
    pixels = data.images_NCHW.float() / 255
    assert pixels.mean() == pytest.approx(0.1309, abs=2e-4)


def test_cifar100(real_data, real_cache):
    data = CIFAR100().load(real_data, cache_dir=real_cache)
    assert data.images_NCHW.shape == (60_000, 3, 32, 32)
    assert data.class_counts_K().tolist() == [600] * 100
    assert data.class_names[:3] == ("apple", "aquarium_fish", "baby")
    assert data.content_hash == CIFAR100.published_hash
    start = time.perf_counter()
    CIFAR100().load(real_data, cache_dir=real_cache)
    assert time.perf_counter() - start < 3


def read_gray_png(data):
    """A slow PNG reader for 8-bit gray images, straight from the specification."""
    width, height = (int.from_bytes(data[start : start + 4], "big") for start in (16, 20))
    position, packed = 8, b""
    while position < len(data):
        length = int.from_bytes(data[position : position + 4], "big")
        if data[position + 4 : position + 8] == b"IDAT":
            packed += data[position + 8 : position + 8 + length]
        position += length + 12
    values = zlib.decompress(packed)
    above, pixels = [0] * (width + 1), []
    for row in range(height):
        kind, *coded = values[row * (width + 1) : (row + 1) * (width + 1)]
        line = [0]
        for column, value in enumerate(coded, start=1):
            left, up, corner = line[-1], above[column], above[column - 1]
            # Of ties, min takes the first: left, then up.
            paeth = min((left, up, corner), key=lambda one: abs(left + up - corner - one))
            line.append((value + (0, left, up, (left + up) // 2, paeth)[kind]) % 256)
        pixels.append(line[1:])
        above = line
    return torch.tensor(pixels, dtype=torch.uint8)


def test_pixels_equal_a_reference_decoders(real_data, real_cache):
    """Each of the first rows is found, by its pixels, among the images of its label."""
    data = MNIST().load(real_data, cache_dir=real_cache)
    rows = pq.ParquetFile(real_data / "mnist.parquet").read_row_group(0).slice(0, 50).to_pylist()
    for row in rows:
        pixels = read_gray_png(row["image"]["bytes"])
        candidates = data.images_NCHW[data.labels_N == row["label"], 0]
        assert (candidates == pixels).flatten(1).all(1).any()


def test_part_of_tiny_imagenet(real_data, real_cache):
    path = str(real_data / "tiny-imagenet-10of200.zip")
    data = TinyImageNet(path, num_classes=10).load(cache_dir=real_cache)
    assert data.images_NCHW.shape == (5000, 3, 64, 64)
    assert data.class_counts_K().tolist() == [500] * 10
    assert data.class_names[0] == "goldfish"
    with pytest.raises(ValueError, match=r"which is 10 .*, got 200"):
        TinyImageNet(path).load(cache_dir=real_cache)


def test_half_of_cifar100_is_not_taken(real_data, tmp_path):
    """One of the two files alone has too few samples of every class."""
    path = real_data / "cifar100-test.parquet"
    with pytest.raises(ValueError, match=r"expected 600 samples of class 0, found 100 in .*test"):
        CIFAR100(str(path)).load(cache_dir=tmp_path)


def test_mnists_counts(real_data):
    labels = pq.read_table(real_data / "mnist.parquet", columns=["label"])["label"].to_numpy()
    check_counts("mnist", labels, MNIST.counts, [])

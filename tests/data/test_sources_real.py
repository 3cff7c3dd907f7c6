"""The real data sets, where they lie beside the project."""

import io
import json
import time
import zlib

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from cwfed.cli import main
from cwfed.data.manifest import make_manifest
from cwfed.data.partitioners import ReleasedDirichlet, ReleasedPathological
from cwfed.data.sources import CIFAR10, CIFAR100, MNIST, TinyImageNet
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


def test_cifar10(real_data, real_cache, caplog):
    data = CIFAR10().load(real_data, cache_dir=real_cache)
    assert data.images_NCHW.shape == (60_000, 3, 32, 32)
    assert data.class_counts_K().tolist() == [6000] * 10
    assert data.class_names[:3] == ("airplane", "automobile", "bird")
    assert data.content_hash == CIFAR10.published_hash
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
    assert data.images_NCHW.sum(dtype=torch.int64) == 22_274_057_637


def test_cifar10s_parts_have_the_known_sums(real_data):
    """50,000 and 10,000 images, as many of each class, and the training images' known means."""
    pixels, squares = torch.zeros(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    for part, each in (("train", 5000), ("test", 1000)):
        table = pq.read_table(real_data / f"cifar10-{part}.parquet")
        assert torch.bincount(torch.tensor(table["label"].to_numpy())).tolist() == [each] * 10
        if part == "test":
            continue
        for row in table["img"].to_pylist():
            image = Image.open(io.BytesIO(row["bytes"]))
            values = torch.from_numpy(np.asarray(image).reshape(-1, 3) / 255)
            pixels += values.sum(0)
            squares += values.square().sum(0)
    mean = pixels / (50_000 * 1024)
    deviation = (squares / (50_000 * 1024) - mean.square()).sqrt()
    # These figures stand in most code that normalises CIFAR-10.
    assert mean.tolist() == pytest.approx([0.4914, 0.4822, 0.4465], abs=5e-5)
    assert deviation.tolist() == pytest.approx([0.2470, 0.2435, 0.2616], abs=5e-5)


PARTITIONS = {
    (MNIST, "practical"): "93136eba8ee80f88307e7a629527899a09d2245394d75c10ac6d886cae2becbf",
    (MNIST, "pathological"): "24daa7827ff6a33ba99986a83d0e734b3328e55947e2e4804d3fb5888342fe2e",
    (CIFAR10, "practical"): "b8dcbd69e7e133b215b24cf3b5f464acee6461b3ba065edea4a26ed8d041e440",
    (CIFAR10, "pathological"): "7469c4f3ea1f61ec4089419c09840534960f6814e068014f4ac5ab1d651185c7",
    (CIFAR100, "practical"): "fd1548bcbd9480d40fd34899d8d86bc1a31d3669f17d9c68b490e470084f9077",
    (CIFAR100, "pathological"): "2b3135d333f2d198b455408e51ac7cfcc7ceafe74fc4d9db9062d822f2c9e030",
}
"""The published partitions of images whose order no file declares: runs are compared by these."""


@pytest.mark.parametrize(
    "key", PARTITIONS, ids=[f"{kind.__name__}-{split}" for kind, split in PARTITIONS]
)
def test_the_published_partitions_are_pinned(key, real_data, real_cache):
    kind, split = key
    data = kind().load(real_data, cache_dir=real_cache)
    classes = 10 if kind is CIFAR100 else 2
    chosen = ReleasedDirichlet() if split == "practical" else ReleasedPathological(20, classes)
    assert make_manifest(data, chosen, seed=0).hash == PARTITIONS[key]


@pytest.mark.parametrize("split", ["practical", "pathological"])
def test_cifar10_trains_on_both_kinds_of_partition(split, real_data, real_cache, tmp_path,
                                                   monkeypatch):  # fmt: skip
    monkeypatch.setenv("CWFED_CACHE", str(real_cache))
    run = tmp_path / "run"
    given = ["--config", f"cifar10_{split}", "--data_dir", real_data, "--run_dir", run]
    given += ["--rounds", 1, "--participation", 0.05, "--trainer.engine", "sequential"]
    assert main(["fit", *map(str, given)]) == 0
    result = json.loads((run / "result.json").read_text())
    assert result["hashes"]["dataset"] == CIFAR10.published_hash
    assert (result["num_clients"], result["parameters"]) == (20, 878_538)
    labels = json.loads((run / "labels.json").read_text())
    assert sum(map(sum, labels["counts"]["train"])) == pytest.approx(45_000, abs=20)


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

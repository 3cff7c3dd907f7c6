"""What holds for every source, and the same images from every layout."""

import hashlib
import inspect
import logging
import tarfile
from typing import NamedTuple

import numpy as np
import pytest
import torch
from image_files import encode, small_images, write_cifar, write_mnist_idx, write_parquet
from torchvision import datasets

from cwfed.data import sources
from cwfed.data.manifest import make_manifest
from cwfed.data.partitioners import IID
from cwfed.data.pfllib_writer import save_pfllib
from cwfed.data.sources import (
    CIFAR10,
    CIFAR100,
    MNIST,
    Digits,
    ImageFolder,
    Parquet,
    PFLlib,
    Source,
    SyntheticImages,
    TinyImageNet,
    default_data_dir,
)
from cwfed.data.sources.vision import named_parquet


class Case(NamedTuple):
    shape: tuple
    classes: int
    torchvision: type
    key: str


CASES = {
    CIFAR10: Case((3, 32, 32), 10, datasets.CIFAR10, "labels"),
    CIFAR100: Case((3, 32, 32), 100, datasets.CIFAR100, "fine_labels"),
    MNIST: Case((1, 28, 28), 10, datasets.MNIST, "unused"),
}


def make_known(kind, monkeypatch, each=6):
    """Small images in the shape of a known data set, which is told to expect so few."""
    case = CASES[kind]
    monkeypatch.setattr(kind, "counts", (each,) * case.classes)
    monkeypatch.setattr(kind, "published_hash", None)
    return small_images(case.classes, each, case.shape)


def write_legacy(kind, root, images, labels, monkeypatch):
    if kind is MNIST:
        return write_mnist_idx(root, images, labels, train=len(labels) - 17)
    case = CASES[kind]
    return write_cifar(
        root, images, labels, case.torchvision, monkeypatch, case.key, kind.class_names
    )


def write_known_parquet(kind, folder, images, labels):
    half = len(labels) // 2
    webp = [encode(image, "WEBP", lossless=True) for image in images[half:]]
    if kind is MNIST:  # WebP has no gray mode
        webp = [encode(image) for image in images[half:]]
    png = [encode(image) for image in images[:half]]
    write_parquet(folder / f"{kind.name}-train.parquet", png, labels[:half])
    write_parquet(folder / f"{kind.name}-test.parquet", webp, labels[half:])


def assert_same(one, other):
    assert one.content_hash == other.content_hash
    assert one.class_names == other.class_names
    assert torch.equal(one.images_NCHW, other.images_NCHW)
    assert torch.equal(one.labels_N, other.labels_N)


def assert_canonical(data):
    """The contract of `ImageData`, by slow and obvious loops."""
    assert data.images_NCHW.dtype == torch.uint8
    assert data.labels_N.dtype == torch.int64
    assert data.images_NCHW.is_contiguous()
    pixels = data.images_NCHW.numpy()
    keys = [
        (label, hashlib.sha256(image.tobytes()).digest())
        for label, image in zip(data.labels_N.tolist(), pixels, strict=True)
    ]
    assert keys == sorted(keys)
    shape = "x".join(map(str, pixels.shape[1:]))
    content = hashlib.sha256(f"cwfed-content/1 {shape}\n".encode())
    for label, digest in keys:
        content.update(label.to_bytes(8, "little") + digest)
    assert data.content_hash == content.hexdigest()


@pytest.fixture
def any_source(request, tmp_path, monkeypatch):
    """A small instance of a concrete source and the data folder it loads from."""
    kind = request.param
    if kind in CASES:
        images, labels = make_known(kind, monkeypatch)
        write_known_parquet(kind, tmp_path / "data", images, labels)
        return kind()
    images, labels = small_images(3, 5, (3, 64, 64))
    if kind is Parquet:
        return Parquet(
            str(write_parquet(tmp_path / "a.parquet", [encode(i) for i in images], labels))
        )
    if kind in (ImageFolder, TinyImageNet):
        monkeypatch.setattr("cwfed.data.sources.tiny_imagenet.PER_CLASS", 5)
        for number, (image, label) in enumerate(zip(images, labels, strict=True)):
            # The suffix does not matter to the decoder: PNG keeps the pixels.
            file = tmp_path / f"tiny/train/n0000000{label}/images/{number}.JPEG"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(encode(image))
        if kind is ImageFolder:
            return ImageFolder(str(tmp_path / "tiny" / "train"))
        return TinyImageNet(str(tmp_path / "tiny"), num_classes=3)
    if kind is PFLlib:
        data = SyntheticImages(num_classes=3, samples_per_class=7).load()
        save_pfllib(data, make_manifest(data, IID(2), seed=0), IID(2), tmp_path / "pfllib")
        return PFLlib(str(tmp_path / "pfllib"))
    return {
        Digits: Digits,
        SyntheticImages: lambda: SyntheticImages(num_classes=3, samples_per_class=7),
    }[kind]()


CONCRETE = [
    kind
    for kind in vars(sources).values()
    if inspect.isclass(kind) and issubclass(kind, Source) and not inspect.isabstract(kind)
]


@pytest.mark.parametrize("any_source", CONCRETE, indirect=True, ids=lambda kind: kind.__name__)
def test_every_source_keeps_the_contract(any_source, tmp_path):
    cold = any_source.load(tmp_path / "data", cache_dir=tmp_path / "cache")
    warm = any_source.load(tmp_path / "data", cache_dir=tmp_path / "cache")
    assert_canonical(cold)
    assert_same(cold, warm)
    assert cold.name == warm.name == any_source.name
    assert cold.class_counts_K().sum() == len(cold)


@pytest.mark.parametrize("kind", CASES, ids=lambda kind: kind.__name__)
def test_parquet_and_torchvision_files_give_the_same(kind, tmp_path, monkeypatch):
    images, labels = make_known(kind, monkeypatch)
    write_known_parquet(kind, tmp_path / "hub", images, labels)
    write_legacy(kind, tmp_path / "torchvision", images, labels, monkeypatch)
    hub = kind().load(tmp_path / "hub", cache_dir=tmp_path / "cache")
    legacy = kind().load(tmp_path / "torchvision", cache_dir=tmp_path / "cache")
    assert_same(hub, legacy)
    assert hub.class_names == kind.class_names
    assert sorted(hub.images_NCHW.flatten(1).tolist()) == sorted(
        images.reshape(len(images), -1).tolist()
    )


@pytest.mark.parametrize("kind", CASES, ids=lambda kind: kind.__name__)
def test_the_written_files_are_torchvisions(kind, tmp_path, monkeypatch):
    """The layouts written here are read by torchvision's own classes to the same samples."""
    images, labels = make_known(kind, monkeypatch)
    write_legacy(kind, tmp_path, images, labels, monkeypatch)
    parts = [CASES[kind].torchvision(tmp_path, train=train) for train in (True, False)]
    read = sorted(
        (int(label), np.asarray(image).tobytes()) for part in parts for image, label in part
    )
    data = kind().load(tmp_path, cache_dir=tmp_path / "cache")
    ours = sorted(
        (int(label), image.permute(1, 2, 0).numpy().tobytes())
        for image, label in zip(data.images_NCHW, data.labels_N, strict=True)
    )
    assert ours == read


@pytest.mark.parametrize("kind", CASES, ids=lambda kind: kind.__name__)
def test_published_files_declare_their_order_and_parquet_none(kind, tmp_path, monkeypatch):
    images, labels = make_known(kind, monkeypatch)
    write_known_parquet(kind, tmp_path / "hub", images, labels)
    write_legacy(kind, tmp_path / "torchvision", images, labels, monkeypatch)
    assert kind().load(tmp_path / "hub", cache_dir=tmp_path / "cache").source_order is None
    for cache in ("cache", "cache", "file"):  # decoded, from the cache, without one
        (tmp_path / "file").touch()
        data = kind().load(tmp_path / "torchvision", cache_dir=tmp_path / cache)
        order = data.source_order
        assert order.name == "training files, then test files, as published"
        assert data.images_NCHW[order.indices_N].numpy().tolist() == images.tolist()
        assert data.labels_N[order.indices_N].tolist() == labels.tolist()


def test_mnist_gzipped_and_order_of_the_parts_do_not_matter(tmp_path, monkeypatch):
    images, labels = make_known(MNIST, monkeypatch)
    write_mnist_idx(tmp_path / "a", images, labels, train=40)
    write_mnist_idx(tmp_path / "b", images[::-1], labels[::-1], train=10, compress=True)
    one = MNIST().load(tmp_path / "a", cache_dir=tmp_path / "cache")
    assert_same(one, MNIST().load(tmp_path / "b", cache_dir=tmp_path / "cache"))


def test_cifar_archive_is_read_without_unpacking_beside_it(tmp_path, monkeypatch):
    images, labels = make_known(CIFAR100, monkeypatch)
    folder = write_legacy(CIFAR100, tmp_path / "plain", images, labels, monkeypatch)
    archive = tmp_path / "packed" / datasets.CIFAR100.filename
    archive.parent.mkdir()
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, arcname=folder.name)
    md5 = datasets.utils.calculate_md5(archive)
    monkeypatch.setattr(datasets.CIFAR100, "tgz_md5", md5)
    plain = CIFAR100().load(tmp_path / "plain", cache_dir=tmp_path / "cache")
    assert_same(plain, CIFAR100().load(archive.parent, cache_dir=tmp_path / "cache"))
    assert_same(plain, CIFAR100(str(archive)).load(cache_dir=tmp_path / "cache"))
    assert list(archive.parent.iterdir()) == [archive]


@pytest.mark.parametrize("kind", CASES, ids=lambda kind: kind.__name__)
def test_an_explicit_path_may_be_any_of_the_folders(kind, tmp_path, monkeypatch):
    images, labels = make_known(kind, monkeypatch)
    folder = write_legacy(kind, tmp_path / "root", images, labels, monkeypatch)
    write_known_parquet(kind, tmp_path / "hub", images, labels)
    whole = [encode(image) for image in images]
    file = write_parquet(tmp_path / "else" / "any.parquet", whole, labels)
    paths = [tmp_path / "root", folder, tmp_path / "hub", file, file.parent]
    loaded = [kind(str(path)).load(cache_dir=tmp_path / "cache") for path in paths]
    for data in loaded[1:]:
        assert_same(loaded[0], data)


def test_an_explicit_path_without_data_is_an_error_and_no_download(tmp_path, monkeypatch):
    monkeypatch.setattr("cwfed.data.sources.vision.fetch", None)
    (tmp_path / "cifar-100-python").mkdir()
    for path in (tmp_path, tmp_path / "missing", tmp_path / "cifar-100-python"):
        with pytest.raises(FileNotFoundError, match=f"path: expected a Parquet file.*{path}"):
            CIFAR100(str(path)).load(tmp_path)


def test_a_neighbour_of_the_explicit_path_is_not_taken(tmp_path, monkeypatch):
    images, labels = make_known(MNIST, monkeypatch)
    write_mnist_idx(tmp_path, images, labels, train=40)
    for empty in (tmp_path / "empty", tmp_path / "one" / "empty"):
        empty.mkdir(parents=True)
        with pytest.raises(FileNotFoundError, match="empty"):
            MNIST(str(empty)).load()


def test_names_of_parquet_files(tmp_path):
    for name in (
        "cifar10.parquet",
        "cifar10-train.parquet",
        "cifar10_test.parquet",
        "cifar100-train.parquet",
        "cifar100.parquet",
        "my-cifar10.parquet",
        "mnist.parquet.part",
        "sub/mnist/deep/train-0.parquet",
        "mnist/deep/train-0.parquet",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()

    def found(name):
        return [path.relative_to(tmp_path).as_posix() for path in named_parquet(tmp_path, name)]

    assert found("cifar10") == ["cifar10-train.parquet", "cifar10.parquet", "cifar10_test.parquet"]
    assert found("cifar100") == ["cifar100-train.parquet", "cifar100.parquet"]
    assert found("mnist") == ["mnist/deep/train-0.parquet"]
    assert found("tiny") == []
    assert named_parquet(tmp_path / "missing", "mnist") == []


def test_parquet_comes_before_torchvisions_files(tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.INFO, "cwfed")
    images, labels = make_known(MNIST, monkeypatch)
    write_known_parquet(MNIST, tmp_path, images, labels)
    write_mnist_idx(tmp_path, images, labels, train=3)
    MNIST().load(tmp_path, cache_dir=tmp_path / "cache")
    assert "decoding" in caplog.messages[0]
    assert "mnist-train.parquet" in caplog.messages[0]
    assert f"cached at {tmp_path / 'cache'}" in caplog.messages[1]


def test_other_pixels_than_the_published_ones_are_told(tmp_path, monkeypatch, caplog):
    images, labels = make_known(MNIST, monkeypatch)
    monkeypatch.setattr(MNIST, "published_hash", "0" * 64)
    write_known_parquet(MNIST, tmp_path, images, labels)
    MNIST().load(tmp_path, cache_dir=tmp_path / "cache")
    assert "differ from the published ones" in caplog.text


def test_default_data_dir(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_data_dir() == tmp_path / "cwfed" / "data"
    monkeypatch.setenv("CWFED_DATA", str(tmp_path / "here"))
    assert default_data_dir() == tmp_path / "here"


def test_data_dir_from_the_environment(tmp_path, monkeypatch):
    images, labels = make_known(MNIST, monkeypatch)
    write_known_parquet(MNIST, tmp_path, images, labels)
    monkeypatch.setenv("CWFED_DATA", str(tmp_path))
    monkeypatch.setenv("CWFED_CACHE", str(tmp_path / "cache"))
    assert len(MNIST().load()) == len(labels)
    assert len(list((tmp_path / "cache").iterdir())) == 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MNIST(path=3), "path: expected a path, got 3"),
        (lambda: TinyImageNet(num_classes=0), "num_classes: expected an integer >= 1, got 0"),
        (lambda: Parquet([]), "path: expected at least one file"),
        (lambda: Parquet(""), "path: expected a path, got ''"),
        (lambda: ImageFolder("a", image_size=0), "image_size: expected an integer >= 1, got 0"),
        (lambda: ImageFolder("a", mode="CMYK"), "mode: expected 'RGB' or 'L', got 'CMYK'"),
        (lambda: Digits(7), "image_size: expected an integer >= 8, got 7"),
        (lambda: SyntheticImages(num_classes=True), "num_classes: expected an integer"),
        (lambda: SyntheticImages(channels=2), "channels: expected 1 or 3, got 2"),
        (lambda: SyntheticImages(seed=-1), "seed: expected an integer >= 0, got -1"),
    ],
)
def test_bad_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_nothing_is_printed_where_there_is_no_terminal(tmp_path, monkeypatch, capfd):
    images, labels = make_known(MNIST, monkeypatch)
    write_known_parquet(MNIST, tmp_path, images, labels)
    MNIST().load(tmp_path, cache_dir=tmp_path / "cache")
    assert capfd.readouterr() == ("", "")

"""Downloads, from addresses on this machine only."""

import functools
import hashlib
import http.server
import tarfile
import threading
import zipfile

import pytest
from image_files import encode, small_images, write_cifar, write_mnist_idx
from torchvision import datasets

from cwfed.data.sources import CIFAR10, CIFAR100, MNIST, TinyImageNet, tiny_imagenet
from cwfed.data.sources.download import Remote

NOWHERE = "http://127.0.0.1:9/"


def md5(path):
    return hashlib.md5(path.read_bytes()).hexdigest()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def served(tmp_path, monkeypatch):
    """A folder whose files this machine serves, and the address."""
    folder = tmp_path / "served"
    folder.mkdir()
    monkeypatch.setenv("no_proxy", "*")
    handler = functools.partial(Quiet, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture
def offline(monkeypatch):
    """Every address leads to a port of this machine where nobody answers."""
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(datasets.MNIST, "mirrors", [NOWHERE])
    for kind in (datasets.CIFAR10, datasets.CIFAR100):
        monkeypatch.setattr(kind, "url", NOWHERE + kind.filename)
    remote = Remote((NOWHERE + tiny_imagenet.ARCHIVE,), "0" * 32, tiny_imagenet.ARCHIVE)
    monkeypatch.setattr(tiny_imagenet, "REMOTE", remote)


@pytest.mark.parametrize("kind", [MNIST, CIFAR10, CIFAR100, TinyImageNet])
def test_offline_is_one_clear_error(kind, tmp_path, offline):
    with pytest.raises(FileNotFoundError) as caught:
        kind().load(tmp_path / "data", cache_dir=tmp_path / "cache")
    message = str(caught.value)
    for part in (
        kind.name,
        f"Looked in {tmp_path / 'data'}",
        NOWHERE,
        "refused",
        "--data_dir",
        "CWFED_DATA",
        "data.path",
    ):
        assert part in message
    assert list((tmp_path / "data").iterdir()) == []


def test_a_folder_that_cannot_be_made(tmp_path, offline):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r"Looked in .*file/data"):
        MNIST().load(tmp_path / "file" / "data")


def test_a_wrong_file_is_not_kept(tmp_path, monkeypatch, served):
    folder, url = served
    (folder / datasets.CIFAR10.filename).write_bytes(b"half of it")
    monkeypatch.setattr(datasets.CIFAR10, "url", url + datasets.CIFAR10.filename)
    with pytest.raises(OSError, match="failed: File not found or corrupted"):
        CIFAR10().load(tmp_path / "data", cache_dir=tmp_path / "cache")
    assert list((tmp_path / "data").iterdir()) == []


def test_an_interrupted_download_leaves_nothing_to_take(tmp_path, monkeypatch):
    def interrupted(url, root, filename, md5):
        (root / filename).write_bytes(b"half of it")
        raise KeyboardInterrupt

    monkeypatch.setattr("cwfed.data.sources.download.download_url", interrupted)
    for source in (MNIST(), CIFAR10(), TinyImageNet()):
        with pytest.raises(KeyboardInterrupt):
            source.load(tmp_path / "data", cache_dir=tmp_path / "cache")
        assert list((tmp_path / "data").iterdir()) == []


def test_mnist_is_downloaded_once_from_the_mirror_that_works(tmp_path, monkeypatch, served):
    images, labels = small_images(10, 3)
    folder, url = served
    raw = write_mnist_idx(folder, images, labels, train=20, compress=True)
    monkeypatch.setattr(MNIST, "counts", (3,) * 10)
    monkeypatch.setattr(datasets.MNIST, "mirrors", [NOWHERE, url + "MNIST/raw/"])
    names = [name for name, _ in datasets.MNIST.resources]
    resources = [(name, md5(raw / name)) for name in names]
    monkeypatch.setattr(datasets.MNIST, "resources", resources)
    data = MNIST().load(tmp_path / "data", cache_dir=tmp_path / "cache")
    kept = tmp_path / "data" / "MNIST" / "raw"
    assert sorted(path.name for path in kept.iterdir()) == sorted(names)
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["MNIST"]
    monkeypatch.setattr(datasets.MNIST, "mirrors", [NOWHERE])
    again = MNIST().load(tmp_path / "data", cache_dir=tmp_path / "other cache")
    assert again.content_hash == data.content_hash


def test_a_broken_archive_is_downloaded_anew(tmp_path, monkeypatch, caplog, served):
    images, labels = small_images(10, 6, (3, 32, 32))
    kind = datasets.CIFAR10
    folder = write_cifar(
        tmp_path / "plain", images, labels, kind, monkeypatch, "labels", CIFAR10.class_names
    )
    monkeypatch.setattr(CIFAR10, "counts", (6,) * 10)
    published = served[0] / kind.filename
    with tarfile.open(published, "w:gz") as tar:
        tar.add(folder, arcname=folder.name)
    monkeypatch.setattr(kind, "url", served[1] + kind.filename)
    monkeypatch.setattr(kind, "tgz_md5", md5(published))
    archive = tmp_path / "data" / kind.filename
    archive.parent.mkdir()
    archive.write_bytes(published.read_bytes()[:100])
    assert len(CIFAR10().load(archive.parent, cache_dir=tmp_path / "cache")) == 60
    assert f"{archive}: not whole" in caplog.text
    assert archive.read_bytes() == published.read_bytes()


def test_tiny_imagenet_is_downloaded(tmp_path, monkeypatch, served):
    published = served[0] / tiny_imagenet.ARCHIVE
    with zipfile.ZipFile(published, "w") as file:
        images, _ = small_images(1, 2, (3, 64, 64))
        for number, image in enumerate(images):
            name = f"tiny-imagenet-200/train/n00000001/images/{number}.JPEG"
            file.writestr(name, encode(image, "JPEG"))
    monkeypatch.setattr(tiny_imagenet, "PER_CLASS", 2)
    remote = Remote((served[1] + published.name,), md5(published), tiny_imagenet.ARCHIVE)
    monkeypatch.setattr(tiny_imagenet, "REMOTE", remote)
    data = TinyImageNet(num_classes=1).load(tmp_path / "data", cache_dir=tmp_path / "cache")
    assert data.class_names == ("n00000001",)
    assert (tmp_path / "data" / tiny_imagenet.ARCHIVE).is_file()

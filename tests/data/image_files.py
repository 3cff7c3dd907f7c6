"""Small data sets in every layout the sources read, and how loading them goes."""

import gzip
import hashlib
import io
import json
import pickle
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image


def small_images(classes=10, each=4, shape=(1, 28, 28), seed=0):
    """Shuffled random images and their labels."""
    generator = np.random.default_rng(seed)
    images = generator.integers(0, 256, (classes * each, *shape), dtype=np.uint8)
    labels = generator.permutation(np.repeat(np.arange(classes), each))
    return images, labels


def encode(pixels_CHW, kind="PNG", **options):
    array = pixels_CHW[0] if pixels_CHW.shape[0] == 1 else pixels_CHW.transpose(1, 2, 0)
    stream = io.BytesIO()
    Image.fromarray(array).save(stream, kind, **options)
    return stream.getvalue()


def write_parquet(
    path, files, labels, image_column="image", label_column="label", names=None, extra=None
):
    """Write rows as the hub does; `files` are encoded images, any may be None."""
    path.parent.mkdir(parents=True, exist_ok=True)
    struct = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    rows = [None if data is None else {"bytes": data, "path": None} for data in files]
    columns = {image_column: pa.array(rows, struct), label_column: pa.array(labels, pa.int64())}
    table = pa.table({**columns, **(extra or {})})
    if names is not None:
        features = {label_column: {"names": list(names), "_type": "ClassLabel"}}
        content = json.dumps({"info": {"features": features}})
        table = table.replace_schema_metadata({"huggingface": content})
    pq.write_table(table, path)
    return path


def write_mnist_idx(root, images, labels, train, compress=False):
    """Write MNIST's four files; the first `train` samples are the training part."""
    raw = root / "MNIST" / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    parts = {"train": slice(None, train), "t10k": slice(train, None)}
    for part, rows in parts.items():
        for stem, values in (
            (f"{part}-images-idx3-ubyte", images[rows, 0]),
            (f"{part}-labels-idx1-ubyte", labels[rows].astype(np.uint8)),
        ):
            sizes = np.array(values.shape, dtype=">u4").tobytes()
            content = bytes((0, 0, 8, values.ndim)) + sizes + values.tobytes()
            if compress:
                (raw / f"{stem}.gz").write_bytes(gzip.compress(content))
            else:
                (raw / stem).write_bytes(content)
    return raw


def write_cifar(root, images, labels, kind, monkeypatch, label_key, names):
    """Write CIFAR's pickles and make torchvision's class expect their MD5 sums."""
    folder = root / kind.base_folder
    folder.mkdir(parents=True, exist_ok=True)

    def save(name, content):
        data = pickle.dumps(content, protocol=2)
        (folder / name).write_bytes(data)
        return hashlib.md5(data).hexdigest()

    batches = [name for name, _ in kind.train_list + kind.test_list]
    sums = {}
    shares = np.array_split(np.arange(len(labels)), len(batches))
    for name, rows in zip(batches, shares, strict=True):
        content = {"data": images[rows].reshape(len(rows), -1), label_key: labels[rows].tolist()}
        sums[name] = save(name, content)
    meta = {**kind.meta, "md5": save(kind.meta["filename"], {kind.meta["key"]: list(names)})}
    monkeypatch.setattr(kind, "train_list", [[name, sums[name]] for name, _ in kind.train_list])
    monkeypatch.setattr(kind, "test_list", [[name, sums[name]] for name, _ in kind.test_list])
    monkeypatch.setattr(kind, "meta", meta)
    return folder


def load(source, folder):
    return source.load(folder / "data", cache_dir=folder / "cache")


def fails(source, folder, *parts, error=ValueError):
    """Loading raises one error whose message holds all parts, and caches nothing."""
    with pytest.raises(error, match=".*".join(re.escape(str(part)) for part in parts)):
        load(source, folder)
    assert not (folder / "cache").exists()

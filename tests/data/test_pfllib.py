"""PFLlib's folders: read, written, and never run."""

import io
import json
import os
import pickle
import re
import struct
import tempfile
import time
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from cwfed.cli import main
from cwfed.data import arrays_unpickler, limits
from cwfed.data.arrays_unpickler import unpickle_arrays
from cwfed.data.images import normalise
from cwfed.data.manifest import label_counts, make_manifest
from cwfed.data.partitioners import (
    IID,
    Dirichlet,
    FromManifest,
    FromSource,
    Pathological,
    ReleasedDirichlet,
)
from cwfed.data.pfllib_writer import save_pfllib
from cwfed.data.sources import PFLlib, SyntheticImages, pfllib
from cwfed.records.manifest import PARTS


def normalised(pixels):
    """As torchvision's ToTensor and Normalize((0.5,), (0.5,)) make them."""
    return ((torch.from_numpy(pixels).float() / 255 - 0.5) / 0.5).numpy()


def write_npz(path, x, y, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        np.savez_compressed(file, data={"x": x, "y": y, **options})


def write_folder(folder, clients=3, classes=4, shape=(1, 5, 6), seed=0):
    """Write a folder as PFLlib's generators do; return what each file holds."""
    draw = np.random.default_rng(seed)
    held = {}
    for client in range(clients):
        for part, count in (("train", 6 + client), ("test", 3)):
            pixels = draw.integers(0, 256, (count, *shape), dtype=np.uint8)
            labels = draw.integers(0, classes, count)
            write_npz(folder / part / f"{client}.npz", normalised(pixels), labels)
            held[client, part] = (pixels, labels)
    config = {"num_clients": clients, "num_classes": classes, "partition": "dir"}
    (folder / "config.json").write_text(json.dumps(config))
    return held


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "toy"


def load(folder, cache=None):
    return PFLlib(str(folder)).load(cache_dir=cache or folder.parent / "cache")


def pairs(pixels, labels):
    return sorted(
        (int(label), image.tobytes()) for image, label in zip(pixels, labels, strict=True)
    )


@pytest.mark.parametrize("shape", [(1, 5, 6), (3, 4, 4)])
def test_images_labels_and_partition_are_those_of_the_folder(folder, shape):
    held = write_folder(folder, shape=shape)
    for _ in range(2):  # decoded, then from the cache
        data = load(folder)
        assert data.class_names == ("0", "1", "2", "3")
        made = make_manifest(data, FromSource(), seed=3)
        assert len(made.clients) == 3
        for client, split in enumerate(made.clients):
            for part, indices in (("train", split.train), ("test", split.test)):
                ours = pairs(data.images_NCHW[indices].numpy(), data.labels_N[indices])
                assert ours == pairs(*held[client, part])
        assert made.origin["partitioner"] == "FromSource"
        assert "client by client" in made.origin["order"]


def test_a_folder_that_cannot_be_cached_is_divided_all_the_same(folder, tmp_path):
    write_folder(folder)
    (tmp_path / "file").touch()
    cached, plain = load(folder), load(folder, tmp_path / "file")
    one, other = (make_manifest(data, FromSource(), seed=0).hash for data in (cached, plain))
    assert one == other


def test_twins_stay_with_their_clients(folder):
    """The same image on two clients: each has one of the two."""
    pixels = np.full((4, 1, 2, 2), 7, dtype=np.uint8)
    for client in range(2):
        for part in ("train", "test"):
            write_npz(folder / part / f"{client}.npz", normalised(pixels), np.zeros(4, int))
    (folder / "config.json").write_text('{"num_clients": 2, "num_classes": 1}')
    made = make_manifest(load(folder), FromSource(), seed=0)
    assert [len(client.train) for client in made.clients] == [4, 4]


def test_validation_is_cut_from_training_samples(folder):
    write_folder(folder)
    data = load(folder)
    whole = make_manifest(data, FromSource(), seed=0)
    cut = make_manifest(data, FromSource(), seed=0, val_fraction=0.3)
    for a, b in zip(whole.clients, cut.clients, strict=True):
        assert np.array_equal(a.test, b.test)
        assert np.array_equal(a.train, b.train_and_val)
        assert len(b.val)


def test_every_pixel_comes_back_to_the_bit(folder):
    pixels = np.arange(256, dtype=np.uint8).reshape(4, 1, 8, 8)
    for part in ("train", "test"):
        write_npz(folder / part / "0.npz", normalised(pixels), np.arange(4))
    (folder / "config.json").write_text('{"num_clients": 1, "num_classes": 4}')
    data = load(folder)
    assert sorted(data.images_NCHW.flatten().tolist()) == sorted([*range(256)] * 2)
    # A run sees the very floats that stand in the file.
    batch = normalise(data.images_NCHW, torch.float32)
    assert sorted(batch.flatten().tolist()) == sorted(normalised(pixels).flatten().tolist() * 2)


@pytest.mark.parametrize(
    "partitioner",
    [IID(4), Dirichlet(4, alpha=0.5), Pathological(5, 2), ReleasedDirichlet(4)],
    ids=lambda p: type(p).__name__,
)
def test_round_trip(partitioner, tmp_path):
    data = SyntheticImages(samples_per_class=40, image_size=6, channels=3).load()
    made = make_manifest(data, partitioner, seed=1, val_fraction=0.2)
    save_pfllib(data, made, partitioner, tmp_path / "saved")
    # Read as PFLlib reads its files.
    for client, split in enumerate(made.clients):
        for part, indices in (("train", split.train_and_val), ("test", split.test)):
            with (tmp_path / "saved" / part / f"{client}.npz").open("rb") as file:
                held = np.load(file, allow_pickle=True)["data"].tolist()
            assert held["x"].dtype == np.float32
            assert held["y"].dtype == np.int64
            assert np.array_equal(held["x"], normalised(data.images_NCHW[indices].numpy()))
            assert held["y"].tolist() == data.labels_N[indices].tolist()
    config = json.loads((tmp_path / "saved" / "config.json").read_text())
    assert (config["num_clients"], config["num_classes"]) == (partitioner.num_clients, 10)
    counts = label_counts(made, data.labels_N, PARTS)
    for row, listed in zip(counts.tolist(), config["Size of samples for labels in clients"],
                           strict=True):  # fmt: skip
        assert [[label, n] for label, n in enumerate(row) if n] == listed
    again = load(tmp_path / "saved", tmp_path / "cache")
    assert again.content_hash == data.content_hash
    back = make_manifest(again, FromSource(), seed=9)
    assert back.hash == make_manifest(data, partitioner, seed=1).hash
    assert torch.equal(label_counts(back, again.labels_N, PARTS), counts)


def test_a_folder_that_holds_something_is_not_written_to(tmp_path):
    data = SyntheticImages(samples_per_class=8, image_size=4).load()
    made = make_manifest(data, IID(2), seed=0)
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(ValueError, match="expected a new or empty folder"):
        save_pfllib(data, made, IID(2), tmp_path)
    with pytest.raises(ValueError, match="expected a new or empty folder"):
        save_pfllib(data, made, IID(2), tmp_path / "mine")
    with pytest.raises(ValueError, match="expected an existing folder"):
        save_pfllib(data, made, IID(2), tmp_path / "none" / "mine")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_source_without_a_partition_is_refused():
    data = SyntheticImages(samples_per_class=8, image_size=4).load()
    with pytest.raises(ValueError, match=r"expected data that come divided .*--data PFLlib.*synth"):
        make_manifest(data, FromSource(), seed=0)
    with pytest.raises(ValueError, match="comes divided, got labels alone"):
        FromSource().split(data.labels_N, 10, 0)


def test_the_published_partition_takes_no_order_from_a_divided_source(folder):
    write_folder(folder, clients=4)
    data = load(folder)
    partitioner = ReleasedDirichlet(2, alpha=10.0)
    made = make_manifest(data, partitioner, seed=0)
    assert made.origin["order"].startswith("content")
    assert made.hash == make_manifest(replace(data, source_order=None), partitioner, seed=0).hash


def test_the_command_line_writes_trains_on_and_gives_back(tmp_path, capsys):
    folder, run = tmp_path / "saved", tmp_path / "run"
    small = ["--config", "quickstart", "--data", "SyntheticImages", "--data.image_size", "16"]
    small += ["--data.samples_per_class", "20", "--partition.num_clients", "4"]
    assert main(["partition", *small, "--save_pfllib", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert f"images and partition written to {folder}" in shown
    assert main(["partition", *small, "--save_pfllib", str(folder)]) == 2
    assert "--save_pfllib: expected a new or empty folder" in capsys.readouterr().err
    given = ["--config", "quickstart", "--data", "PFLlib", "--data.path", str(folder)]
    given += ["--partition", "FromSource"]
    assert main(["partition", *given]) == 0
    hashes = [line for line in shown.splitlines() if line.startswith("partition ")]
    assert hashes[0] in capsys.readouterr().out
    assert main(["fit", *given, "--rounds", "1", "--run_dir", str(run)]) == 0
    assert f"partition {json.loads((run / 'partition.json').read_text())['hash']}" == hashes[0]
    back = FromManifest(str(run / "partition.json"))
    assert make_manifest(load(folder), back, seed=0).origin["partitioner"] == "FromSource"
    assert main(["fit", *small, "--partition", "FromSource", "--rounds", "1"]) == 2
    assert "partition: FromSource: expected data that come divided" in capsys.readouterr().err


# What stands in a file that is not PFLlib's.

ARRAYS = {"x": normalised(np.zeros((2, 1, 4, 4), np.uint8)), "y": np.array([0, 1])}


def member(value, **options):
    """Return the npy file of an object as NumPy writes it."""
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.array(value, dtype=object), allow_pickle=True, **options)
    return stream.getvalue()


def pickled(content, shape="()"):
    """Return an npy file with an object array's header and any pickle behind it."""
    stream = io.BytesIO()
    header = f"{{'descr': '|O', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    stream.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)
    return stream.getvalue() + content


def refused(tmp_path, content, name="data.npy", kind=zipfile.ZIP_DEFLATED):
    """Put an npy file where client 0's training part belongs; return the error."""
    folder = tmp_path / "toy"
    write_folder(folder)
    with zipfile.ZipFile(folder / "train" / "0.npz", "w", kind) as file:
        file.writestr(name, content)
    with pytest.raises(ValueError, match=r"train/0\.npz") as caught:
        load(folder)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 400
    return message


MARK = Path(tempfile.gettempdir()) / "cwfed-was-here"


class Calls:
    def __reduce__(self):
        return os.system, (f"touch {MARK}",)


class Opens:
    def __reduce__(self):
        return open, (str(MARK), "w")


class Loads:
    def __reduce__(self):
        return np.load, (str(MARK),)


class Evaluates:
    def __reduce__(self):
        return eval, ("1",)


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("hostile", [Calls, Opens, Loads, Evaluates])
@pytest.mark.parametrize("place", ["value", "array", "inside"])
def test_a_pickle_that_calls_is_not_run(tmp_path, hostile, protocol, place):
    value = {"x": hostile(), "y": 1} if place == "value" else hostile()
    array = np.array({"x": np.array([hostile()], dtype=object)}, dtype=object)
    content = pickle.dumps(value if place != "inside" else array, protocol)
    message = refused(tmp_path, pickled(content))
    assert "expected a pickle of arrays" in message
    assert not MARK.exists()


def doubled(depth):
    """A pickle of nested pairs, each pair twice the memoized one before."""
    steps = [pickle.PROTO + b"\x04", b"K\x01", b"\x94"]
    for number in range(depth):
        steps += [b"0" if number == 0 else b"", b"h" + bytes([number]), b"h" + bytes([number]),
                  b"\x86", b"\x94"]  # fmt: skip
    return b"".join(steps)


NUMPY = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85C\x01btR"
FLOATS = b"cnumpy\ndtype\n(X\x02\x00\x00\x00f4\x89\x88tR"
STEPS = {
    "a memo without end": b"\x80\x04}r\xff\xff\xff\x7f.",
    "bytes without end": b"\x80\x05\x96\xff\xff\xff\xff\xff\xff\xff\x7f.",
    "more bytes than there are": b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7f.",
    "a long text": b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7f.",
    "no end": b"\x80\x04}",
    "nothing": b"",
    "an empty stack": b"\x80\x04s.",
    "no mark": b"\x80\x04}u.",
    "a persistent id": b"\x80\x04Papple\n.",
    "a binary persistent id": b"\x80\x04K\x01Q.",
    "an extension": b"\x80\x04\x82\x01.",
    "an instance": b"(ios\nsystem\n.",
    "an object": b"(cos\nsystem\no.",
    "a new object": b"\x80\x04cnumpy\nndarray\n)\x81.",
    "a buffer": b"\x80\x05\x97.",
    "a set": b"\x80\x04\x8f.",
    "a number": b"\x80\x04K\x01.",
    "a list": b"\x80\x04].",
    "a dictionary alone": pickle.dumps({"x": 1}),
    "NumPy's function, changed": b"\x80\x04cnumpy\ndtype\n}X\x01\x00\x00\x00aK\x01sb.",
    "a class of NumPy's": b"\x80\x04cnumpy\nmemmap\n.",
    "an attribute": b"\x80\x04\x8c\x05numpy\x8c\x0cndarray.dump\x93.",
    "a module that is no text": b"\x80\x04K\x01\x8c\x07ndarray\x93.",
    "a call of a list": b"\x80\x04])R.",
    "a call without arguments": b"\x80\x04cnumpy\ndtype\n)R.",
    "an array as big as no memory": NUMPY + b"(K\x01J\xff\xff\xff\x7fJ\xff\xff\xff\x7f\x86"
    + FLOATS + b"\x89C\x00tb.",
    "an array of negative size": NUMPY + b"(K\x01J\xff\xff\xff\xff\x85" + FLOATS + b"\x89C\x00tb.",
    "an array of fewer bytes": NUMPY + b"(K\x01K\x04\x85" + FLOATS + b"\x89C\x01atb.",
    "an array without a type": NUMPY + b"(K\x01K\x04\x85N\x89C\x01atb.",
    "a pair of arrays": b"\x80\x04]]\x86.",
    "a text with a key that is an array": b"\x80\x04}" + NUMPY + b"K\x01s.",
    "more steps than arrays have": b"\x80\x04" + b"N" * 2000 + b".",
    "lists in lists": b"\x80\x04" + b"]" * 900 + b"a" * 899 + b".",
}  # fmt: skip


@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)
def test_steps_that_no_dictionary_of_arrays_has_are_refused(tmp_path, steps):
    start = time.process_time()
    with pytest.raises(ValueError, match=r"."):
        unpickle_arrays(steps)
    refused(tmp_path, pickled(steps))
    assert time.process_time() - start < 20


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        (STEPS["more steps than arrays have"], "a much longer one"),
        (pickle.dumps(np.array([{}], dtype=object)), r"got objects of the shape \(1,\)"),
        (STEPS["an array of negative size"], r"expected the shape of an array, got \(-1,\)"),
        (
            STEPS["an array of fewer bytes"],
            r"the values of an array \(4,\) of float32, got 1 bytes",
        ),
        (STEPS["bytes without end"], "the step BYTEARRAY8|not enough|expected"),
        (STEPS["NumPy's function, changed"], "got a change of _Function"),
        (STEPS["a persistent id"], "the step PERSID"),
        (STEPS["an attribute"], r"names numpy\.ndarray\.dump"),
    ],
)
def test_what_is_wrong_is_said(steps, said):
    with pytest.raises(ValueError, match=said):
        unpickle_arrays(steps)


def test_a_key_or_shape_that_doubles_without_end_costs_nothing():
    start = time.process_time()
    nested = doubled(200)
    key = nested + b"0}h\xc8K\x01s."
    shape = nested + NUMPY + b"(K\x01h\xc8" + FLOATS + b"\x89C\x00tb."
    for steps in (key, shape, nested + b"."):
        with pytest.raises(ValueError, match=r".") as caught:
            unpickle_arrays(steps)
        assert len(str(caught.value)) < 400
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"x": ARRAYS["x"]}, "expected the arrays x and y, got"),
        ({**ARRAYS, "z": ARRAYS["y"]}, "expected the arrays x and y, got"),
        ({"x": ARRAYS["x"], "y": [0, 1]}, "expected arrays of numbers by name, got list"),
        ({"x": ARRAYS["x"], 1: ARRAYS["y"]}, "expected arrays with names, got 1"),
        ({**ARRAYS, "x": np.array([ARRAYS["x"], None], dtype=object)}, "expected one dictionary"),
        ({**ARRAYS, "x": np.array(["a"])}, "expected arrays of numbers, got the type 'U1'"),
        ({**ARRAYS, "x": np.array([1j])}, "expected arrays of numbers, got the type 'c16'"),
        ({**ARRAYS, "x": np.zeros(2, [("a", "f4")])}, "expected arrays of numbers, got the type"),
        ({**ARRAYS, "x": ARRAYS["x"][0]}, r"x: expected floats \[images, channels"),
        ({**ARRAYS, "x": ARRAYS["x"][:0], "y": ARRAYS["y"][:0]}, "x: expected floats"),
        ({**ARRAYS, "x": np.zeros((2, 1, 4, 4), int)}, "x: expected floats .* got int64"),
        ({**ARRAYS, "x": np.repeat(ARRAYS["x"], 2, axis=1)}, "expected 1 or 3 channels, got 2"),
        ({**ARRAYS, "x": ARRAYS["x"] + 0.001}, r"x: expected 8-bit pixels normalised .* -0\.99"),
        ({**ARRAYS, "x": ARRAYS["x"] * np.nan}, "x: expected 8-bit pixels normalised .* nan"),
        ({**ARRAYS, "x": ARRAYS["x"] * 2}, r"x: expected 8-bit pixels normalised .* got -2\.0"),
        ({**ARRAYS, "x": ARRAYS["x"].astype(float) * 1e308}, "x: expected 8-bit pixels"),
        ({**ARRAYS, "x": ARRAYS["x"][:, :, :2]}, r"expected images \(1, 2, 4\)|got \(1, 5, 6\)"),
        ({**ARRAYS, "y": np.array([0, 4])}, r"y: expected labels in 0\.\.3, got 4"),
        ({**ARRAYS, "y": np.array([0, -1])}, r"y: expected labels in 0\.\.3, got -1"),
        ({**ARRAYS, "y": np.array([0.0, 1.0])}, "y: expected 2 integers, got float64"),
        ({**ARRAYS, "y": np.array([0])}, r"y: expected 2 integers, got int64 \(1,\)"),
    ],
)
def test_other_values_are_named(tmp_path, value, said):
    folder = tmp_path / "toy"
    write_folder(folder)
    with zipfile.ZipFile(folder / "train" / "0.npz", "w") as file:
        file.writestr("data.npy", member(value))
    with pytest.raises(ValueError, match=said) as caught:
        load(folder)
    assert re.search(r"(train|test)/0\.npz", str(caught.value))


def test_other_orders_of_bytes_and_axes_are_read():
    stored = {
        "x": np.asfortranarray(np.arange(24, dtype=">f8").reshape(2, 3, 4)),
        "y": np.arange(3, dtype="<u2"),
        "z": np.array([True, False]),
        "e": np.zeros((0, 3), dtype=np.float16),
    }
    for protocol in (3, 4):
        content = pickle.dumps(np.array(stored, dtype=object), protocol)
        found = unpickle_arrays(content)
        assert set(found) == set(stored)
        for name, values in stored.items():
            assert found[name].dtype == values.dtype
            assert np.array_equal(found[name], values)
    renamed = content.replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
    short = renamed.replace(b"\x8c\x16numpy.core", b"\x8c\x15numpy.core")
    old = pickle.dumps(np.array(stored, dtype=object), 3)
    for steps in (short[:2] + short[11:], old.replace(b"numpy._core", b"numpy.core")):
        assert np.array_equal(unpickle_arrays(steps)["y"], stored["y"])


def test_a_bomb_is_not_unpacked(tmp_path, monkeypatch):
    def unpacks(path):
        raise AssertionError(f"{path} was unpacked")

    monkeypatch.setattr(pfllib, "_read_member", unpacks)
    monkeypatch.setattr(pfllib, "_RATIO_FROM", 1 << 22)
    bomb = pickled(b"\x00" * (1 << 23))
    assert "expected images, which hardly pack" in refused(tmp_path, bomb)
    monkeypatch.setattr(pfllib, "MOST_PFLLIB", 1 << 20)
    assert "expected at most 1,048,576 bytes" in refused(tmp_path, bomb)


def test_files_that_together_fill_the_memory_are_refused(folder, monkeypatch):
    write_folder(folder)
    monkeypatch.setattr(limits, "_physical_memory", lambda: 100)
    with pytest.raises(ValueError, match="of this machine's memory"):
        load(folder)


def damage_zip(content, at, value):
    return content[:at] + value + content[at + len(value) :]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda c: c[:-30], "not a zip file"),
        (lambda c: b"", "not a zip file"),
        (lambda c: c.replace(b"data.npy", b"more.npy"), "expected one array called data"),
        (lambda c: damage_zip(c, 60, b"\x00" * 12), "damaged: |Error|invalid"),
    ],
)
def test_damaged_zips_are_named(folder, damage, said):
    write_folder(folder)
    path = folder / "test" / "1.npz"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=rf"test/1\.npz: .*({said})"):
        load(folder)


def test_other_members_and_headers_are_named(tmp_path):
    assert "expected one array called data" in refused(tmp_path, b"x", name="../data.npy")
    assert "expected a stored or deflated" in refused(tmp_path, b"x", kind=zipfile.ZIP_BZIP2)
    assert "in NumPy's format" in refused(tmp_path, b"no array at all")
    stream = io.BytesIO()
    np.save(stream, np.zeros(3))
    assert "expected a dictionary, got an array" in refused(tmp_path, stream.getvalue())
    assert "expected a dictionary, got" in refused(tmp_path, pickled(b"N.", shape="(9,)"))
    long = b"\x93NUMPY\x01\x00" + struct.pack("<H", 60_000) + b"[" * 60_000
    assert "in NumPy's format" in refused(tmp_path, long)
    later = io.BytesIO()
    np.lib.format.write_array(later, np.array({}, dtype=object), version=(2, 0))
    assert "another version than 1.0" in refused(tmp_path, later.getvalue())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected JSON"),
        ("[" * 100_000, "expected JSON"),
        ("[]", "num_clients: expected an integer from 1 to 100000, got None"),
        ('{"num_clients": true, "num_classes": 4}', "num_clients: .*, got True"),
        ('{"num_clients": 1e9, "num_classes": 4}', r"num_clients: .*, got 1000000000\.0"),
        ('{"num_clients": 3}', "num_classes: expected an integer .* got None"),
        ('{"num_clients": 3, "num_classes": 0}', "num_classes: expected an integer .* got 0"),
        ('{"num_clients": 4, "num_classes": 4}', r"files of 4 clients, got no .*train/3\.npz"),
        ('{"num_clients": 2, "num_classes": 4}', r"got 2 clients and .*train/2\.npz"),
    ],
)
def test_another_config_is_named(folder, text, said):
    write_folder(folder)
    (folder / "config.json").write_text(text)
    with pytest.raises(ValueError, match=rf"config\.json: .*{said}"):
        load(folder)


def test_a_folder_without_a_config_a_pipe_and_a_large_file_are_refused(folder, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"path: expected a folder with config\.json"):
        load(tmp_path)
    write_folder(folder)
    (folder / "train" / "1.npz").unlink()
    os.mkfifo(folder / "train" / "1.npz")
    with pytest.raises(ValueError, match=r"got no .*train/1\.npz"):
        load(folder)


def test_the_reader_knows_three_names():
    assert set(arrays_unpickler._NAMES.values()) == {"_reconstruct", "ndarray", "dtype"}

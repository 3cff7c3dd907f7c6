"""The manifest: what it holds, what its hash says, what it refuses to read."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cwfed.data.images import ImageData
from cwfed.data.manifest import label_counts, make_manifest
from cwfed.data.partitioners import IID, Dirichlet, FromManifest, Partitioner, Pathological
from cwfed.records.manifest import PARTS, ClientSplit, Manifest


def image_data(num_classes=10, per_class=60, content_hash="ab" * 32, name="toy"):
    labels = torch.arange(num_classes).repeat_interleave(per_class)
    images = torch.zeros(len(labels), 1, 1, 1, dtype=torch.uint8)
    names = tuple(f"class {j}" for j in range(num_classes))
    return ImageData(images, labels, names, content_hash, name)


@pytest.fixture
def data():
    return image_data()


@pytest.fixture
def manifest(data):
    return make_manifest(data, Dirichlet(8), seed=2, val_fraction=0.2)


@pytest.fixture
def path(manifest, tmp_path):
    path = tmp_path / "partition.json"
    manifest.save(path)
    return path


@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.1, 0.5, 0.99]), st.floats(0.05, 0.95))
@settings(deadline=None, max_examples=30)
def test_every_sample_is_in_exactly_one_part(seed, val_fraction, train_fraction):
    made = make_manifest(
        image_data(),
        Pathological(10, 2),
        seed=seed,
        train_fraction=train_fraction,
        val_fraction=val_fraction,
    )
    parts = [getattr(client, part) for client in made.clients for part in PARTS]
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(600))
    for client in made.clients:
        assert len(client.train)
        assert len(client.test)
        assert bool(len(client.val)) == (val_fraction > 0 and len(client.train_and_val) > 1)


def test_the_validation_part_is_cut_from_train_alone(data):
    without = make_manifest(data, IID(6), seed=1)
    with_val = make_manifest(data, IID(6), seed=1, val_fraction=0.2)
    for before, after in zip(without.clients, with_val.clients, strict=True):
        assert np.array_equal(before.test, after.test)
        assert np.array_equal(before.train, after.train_and_val)
        assert len(after.val) == int(0.2 * len(before.train))


def test_shares_are_those_of_the_partitioner(data):
    made = make_manifest(data, IID(6), seed=1, val_fraction=0.2)
    for client, share in zip(made.clients, IID(6).split(data.labels_N, 10, 1), strict=True):
        assert np.array_equal(client.all, share)


def test_clients_of_equal_size_are_not_cut_at_the_same_places(data):
    made = make_manifest(data, IID(6), seed=1, val_fraction=0.2)
    places = [np.searchsorted(client.all, client.test).tolist() for client in made.clients]
    assert places[0] != places[1]
    places = [np.searchsorted(c.train_and_val, c.val).tolist() for c in made.clients]
    assert places[0] != places[1]


def test_the_hash_depends_on_the_seed_and_the_labels_only(data):
    def hash_of(source=data, seed=2, **options):
        return make_manifest(source, Dirichlet(8), seed=seed, **options).hash

    first = hash_of()
    torch.manual_seed(9), np.random.seed(9)
    assert hash_of() == first
    assert hash_of(image_data(name="another name")) == first
    assert hash_of(replace(data, images_NCHW=data.images_NCHW + 1)) == first
    assert hash_of(seed=3) != first
    assert hash_of(val_fraction=0.1) != first
    assert hash_of(train_fraction=0.5) != first
    assert hash_of(image_data(content_hash="cd" * 32)) != first


def test_the_hash_sees_a_sample_change_its_part_or_client():
    def hash_of(*clients):
        splits = (ClientSplit(*(np.array(p, dtype=np.int64) for p in c)) for c in clients)
        return Manifest("h", "n", 4, 2, tuple(splits)).hash

    hashes = [
        hash_of(([0, 1], [], [2]), ([3], [], [])),
        hash_of(([0], [1], [2]), ([3], [], [])),
        hash_of(([0], [], [1, 2]), ([3], [], [])),
        hash_of(([0, 1], [], [2, 3]), ([], [], [])),
        hash_of(([0, 1], [], []), ([2, 3], [], [])),
        hash_of(([3], [], []), ([0, 1], [], [2])),
    ]
    assert len(set(hashes)) == len(hashes)


def test_the_hash_is_pinned():
    # Runs are compared by this value: it may change with the schema only.
    split = ClientSplit(np.array([0, 2]), np.array([], dtype=np.int64), np.array([1]))
    pinned = "c5bf173c7f48d422f3e7619b2d43863b802eff90cdbbbffd75cbf73bb452fc36"
    assert Manifest("abc", "toy", 3, 2, (split,)).hash == pinned


def test_round_trip(manifest, path):
    loaded = Manifest.load(path)
    assert loaded.hash == manifest.hash
    for field in ("dataset_hash", "dataset_name", "num_samples", "num_classes"):
        assert getattr(loaded, field) == getattr(manifest, field)
    for before, after in zip(manifest.clients, loaded.clients, strict=True):
        for part in PARTS:
            assert getattr(after, part).dtype == np.int64
            assert np.array_equal(getattr(before, part), getattr(after, part))


def test_the_file_is_json_with_one_client_a_line(manifest, path):
    document = json.loads(path.read_text())
    assert document["schema_version"] == 1
    assert document["hash"] == manifest.hash
    assert document["dataset"] == {
        "name": "toy",
        "hash": "ab" * 32,
        "num_samples": 600,
        "num_classes": 10,
    }
    assert list(document["clients"][0]) == ["train", "val", "test"]
    assert sum(line.startswith('{"train":') for line in path.read_text().splitlines()) == 8


def test_a_partition_of_our_own_writes_no_origin(manifest, path):
    assert manifest.origin is None
    assert "origin" not in path.read_text()


def test_seventy_thousand_samples_fit_in_a_megabyte():
    made = make_manifest(image_data(per_class=7000), Pathological(), seed=0, val_fraction=0.1)
    assert len(made.to_json().encode()) < 1_000_000


def test_save_leaves_no_draft_and_keeps_the_old_file_when_it_fails(manifest, path, monkeypatch):
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    path.write_text("the old file")

    def broken(*_):
        raise OSError("disk full")

    monkeypatch.setattr("cwfed.records.atomic.os.replace", broken)
    with pytest.raises(OSError, match="disk full"):
        manifest.save(path)
    assert path.read_text() == "the old file"
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_save_refuses_a_missing_folder(manifest, tmp_path):
    with pytest.raises(ValueError, match="path: expected an existing folder"):
        manifest.save(tmp_path / "missing" / "partition.json")


@pytest.mark.parametrize("val_fraction", [0.0, 0.2])
def test_from_manifest_gives_the_same_hash_back(data, tmp_path, val_fraction):
    made = make_manifest(data, Dirichlet(8), seed=2, val_fraction=val_fraction)
    made.save(tmp_path / "m.json")
    again = FromManifest(str(tmp_path / "m.json"))
    assert again.num_clients == 8
    assert make_manifest(data, again, seed=2, val_fraction=val_fraction).hash == made.hash


def test_from_manifest_cuts_only_the_validation_part_anew(data, path, manifest):
    again = make_manifest(
        data, FromManifest(str(path)), seed=77, train_fraction=0.3, val_fraction=0.4
    )
    assert again.hash != manifest.hash
    for before, after in zip(manifest.clients, again.clients, strict=True):
        assert np.array_equal(before.test, after.test)
        assert np.array_equal(before.train_and_val, after.train_and_val)
        assert len(after.val) == int(0.4 * len(before.train_and_val))


def test_from_manifest_refuses_another_data_set(path):
    partitioner = FromManifest(str(path))
    other = image_data(content_hash="cd" * 32)
    with pytest.raises(ValueError, match=f"{re.escape(str(path))}.*expected.*abab.*got cdcd"):
        make_manifest(other, partitioner, seed=2)
    with pytest.raises(ValueError, match="expected samples 600, got 500"):
        partitioner.split(torch.zeros(500, dtype=torch.int64), 10, 0)
    with pytest.raises(ValueError, match="expected classes 10, got 11"):
        partitioner.split(torch.zeros(600, dtype=torch.int64), 11, 0)


def set_version(document):
    document["schema_version"] = 2


def set_hash(document):
    document["hash"] = "0" * 64


def set_dataset_hash(document):
    document["dataset"]["hash"] = "cd" * 32


def move_sample(document):
    first = document["clients"][0]
    first["test"] = sorted([*first["test"], first["train"].pop()])


def swap_clients(document):
    document["clients"].reverse()


def drop_sample(document):
    document["clients"][3]["train"].pop()


def repeat_sample(document):
    first, second = document["clients"][:2]
    second["test"] = sorted([*second["test"], first["train"][0]])


def index_too_large(document):
    document["clients"][0]["test"][-1] = 600


def negative_index(document):
    document["clients"][0]["train"][0] = -1


def fractional_index(document):
    document["clients"][0]["train"][0] += 0.5


def boolean_index(document):
    for client in document["clients"]:
        for part in PARTS:
            client[part] = [True if index == 1 else index for index in client[part]]


def huge_index(document):
    document["clients"][0]["train"][-1] = 2**70


def unsorted(document):
    document["clients"][0]["train"].reverse()


def no_clients(document):
    del document["clients"]


def no_part(document):
    del document["clients"][2]["val"]


def text_for_a_part(document):
    document["clients"][2]["val"] = "none"


def origin_of_nothing(document):
    document["origin"] = {}


def origin_that_nests(document):
    document["origin"] = {"seed": [1]}


def origin_without_end(document):
    document["origin"] = {str(n): n for n in range(1000)}


def text_for_the_origin(document):
    document["origin"] = "mine"


def huge_data_set(document):
    document["dataset"]["num_samples"] = 10**15


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (set_version, "expected schema_version 1, got 2"),
        (set_hash, "expected hash [0-9a-f]{64}.*got 0{64}"),
        (set_dataset_hash, "expected hash"),
        (move_sample, "expected hash"),
        (swap_clients, "expected hash"),
        (drop_sample, "expected all 600 samples, got 599"),
        (repeat_sample, "expected sample [0-9]+ once"),
        (index_too_large, r"expected indices in \[0, 600\), got 0 to 600"),
        (negative_index, "expected sample indices, got -1"),
        (fractional_index, "expected sample indices, got [0-9]+.5"),
        (boolean_index, "expected sample indices, got True"),
        (huge_index, "expected sample indices, got 1180591620717411303424"),
        (unsorted, "expected sorted indices, got client 0, train"),
        (no_clients, "clients: expected list, got 'None'"),
        (no_part, "val: expected list"),
        (text_for_a_part, "val: expected list, got 'none'"),
        (origin_of_nothing, "origin: expected 1 to 20 values, got 0"),
        (origin_that_nests, r"origin: expected text or a number as seed, got \[1\]"),
        (origin_without_end, "origin: expected 1 to 20 values, got 1000"),
        (text_for_the_origin, "origin: expected dict, got 'mine'"),
        (huge_data_set, "expected all 1000000000000000 samples"),
    ],
)
def test_a_tampered_file_is_refused_by_name(path, damage, words):
    document = json.loads(path.read_text())
    damage(document)
    path.write_text(json.dumps(document))
    with pytest.raises(ValueError, match=f"{re.escape(str(path))}.*{words}"):
        FromManifest(str(path))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "12", '"text"', "[" * 100_000, "\x00"])
def test_a_damaged_file_is_refused_by_name(tmp_path, text):
    path = tmp_path / "broken.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"broken\.json: not a readable manifest"):
        Manifest.load(path)


def test_a_key_that_stands_twice_is_refused(path):
    text = path.read_text()
    path.write_text(text.replace('"schema_version": 1,', '"schema_version": 1, "hash": "x",', 1))
    with pytest.raises(ValueError, match=r"hash: expected once, got it twice"):
        Manifest.load(path)
    path.write_text(text.replace('{"train":', '{"train":[],"train":', 1))
    with pytest.raises(ValueError, match=r"train: expected once, got it twice"):
        Manifest.load(path)


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-1", "1e3", "[[[]]]", "1" + "0" * 5000])
def test_numbers_that_count_nothing_are_refused(path, value):
    path.write_text(re.sub(r'"num_samples":\d+', f'"num_samples":{value}', path.read_text()))
    with pytest.raises(ValueError, match=r"partition\.json: not a readable manifest"):
        Manifest.load(path)


def test_a_file_without_an_end_is_not_read(tmp_path):
    with pytest.raises(ValueError, match="/dev/zero: expected a regular file"):
        Manifest.load("/dev/zero")
    with (tmp_path / "large.json").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ValueError, match=r"large\.json: expected at most 67,108,864 bytes"):
        Manifest.load(tmp_path / "large.json")


def test_a_cut_off_binary_or_missing_file_is_refused_by_name(path, tmp_path):
    path.write_text(path.read_text()[:-20])
    with pytest.raises(ValueError, match=r"partition\.json: not a readable manifest"):
        Manifest.load(path)
    path.write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(ValueError, match=r"partition\.json: not a readable manifest"):
        Manifest.load(path)
    with pytest.raises(ValueError, match=r"missing\.json: not a readable manifest"):
        Manifest.load(tmp_path / "missing.json")


def test_label_counts_against_a_slow_count(data, manifest):
    labels = data.labels_N.tolist()
    for part in ("train", "val", "test", ("train", "val"), PARTS):
        names = (part,) if isinstance(part, str) else part
        counts = label_counts(manifest, data.labels_N, part)
        assert counts.dtype == torch.int64
        assert counts.shape == (8, 10)
        for client, split in enumerate(manifest.clients):
            held = [labels[n] for name in names for n in getattr(split, name)]
            assert counts[client].tolist() == [held.count(j) for j in range(10)]
    assert torch.equal(label_counts(manifest, data.labels_N, PARTS).sum(0), data.class_counts_K())


def test_label_counts_refuses_a_part_and_other_labels(data, manifest):
    with pytest.raises(ValueError, match="part: expected one of train, val, test, got 'tests'"):
        label_counts(manifest, data.labels_N, "tests")
    with pytest.raises(ValueError, match="labels_N: expected 600 labels, got 5"):
        label_counts(manifest, data.labels_N[:5], "test")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"train_fraction": 1.0}, "train_fraction"),
        ({"train_fraction": 0.0}, "train_fraction"),
        ({"val_fraction": 1.0}, "val_fraction"),
        ({"val_fraction": -0.1}, "val_fraction"),
        ({"val_fraction": float("nan")}, "val_fraction"),
    ],
)
def test_fractions_out_of_range_are_named(data, options, words):
    with pytest.raises(ValueError, match=f"{words}: expected a number in"):
        make_manifest(data, IID(4), seed=0, **options)


def test_a_client_without_a_test_sample_is_refused():
    with pytest.raises(ValueError, match="on every client, got 1 and 0 on client 2"):
        make_manifest(image_data(per_class=1), IID(8), seed=0)


def test_a_partitioner_that_loses_samples_is_caught(data):
    class Lossy(Partitioner):
        num_clients = 2

        def split(self, labels_N, num_classes, seed):
            return [np.arange(0, 100), np.arange(100, 500)]

    with pytest.raises(ValueError, match="expected all 600 samples, got 500"):
        make_manifest(data, Lossy(), seed=0)

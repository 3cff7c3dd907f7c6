"""The published partition: against the published counts, and against a slow version of it."""

import json
import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from released_reference import released

from cwfed.data.images import ImageData
from cwfed.data.manifest import label_counts, make_manifest
from cwfed.data.partitioners import FromManifest, ReleasedDirichlet, ReleasedPathological
from cwfed.data.source_order import SourceOrder
from cwfed.data.sources import CIFAR10, CIFAR100, MNIST, TinyImageNet
from cwfed.functional.released import dirichlet, pathological
from cwfed.records.manifest import PARTS, Manifest

SIZES = {
    "mnist": MNIST.counts,
    "cifar10": CIFAR10.counts,
    "cifar100": CIFAR100.counts,
    "tiny_imagenet": (500,) * 200,
}
CLASSES = {"mnist": 2, "cifar10": 2, "cifar100": 10, "tiny_imagenet": 20}
FIRST_CLIENT = {0: 140, 1: 890, 4: 1, 5: 319, 7: 29, 8: 1067, 9: 184}


def image_data(sizes, order=None):
    labels = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    images = torch.zeros(len(labels), 1, 1, 1, dtype=torch.uint8)
    return ImageData(images, labels, tuple(map(str, range(len(sizes)))), "ab" * 32, "toy", order)


def shuffled_order(sizes, seed=5):
    """A declared order in which the classes are mixed."""
    positions = torch.randperm(sum(sizes), generator=torch.Generator().manual_seed(seed))
    return SourceOrder("as it came", positions)


def manifest(data, partitioner, **options):
    return make_manifest(data, partitioner, seed=0, **options)


def counts(data, partitioner, part):
    return label_counts(manifest(data, partitioner), data.labels_N, part)


def assert_equals_reference(data, partitioner, kind, value, order=None):
    order = torch.arange(len(data)) if order is None else order
    labels = data.labels_N[order].tolist()
    slow = released(labels, data.num_classes, partitioner.num_clients, kind, value)
    made = manifest(data, partitioner)
    for split, (train, test) in zip(made.clients, slow, strict=True):
        assert set(split.train.tolist()) == set(order[list(train)].tolist())
        assert set(split.test.tolist()) == set(order[list(test)].tolist())


def test_the_first_client_of_mnist():
    data = image_data(MNIST.counts)
    row = counts(data, ReleasedDirichlet(20), PARTS)[0].tolist()
    assert {label: n for label, n in enumerate(row) if n} == FIRST_CLIENT


@pytest.mark.parametrize("order", [None, shuffled_order(MNIST.counts)], ids=["content", "source"])
def test_every_client_of_mnist_against_the_published_files(shared_data, order):
    """Counts depend on the labels alone, in whatever order the images stand."""
    path = shared_data / "released_mnist_counts.json"
    if not path.is_file():
        pytest.skip("the published counts are not at hand (../shared/data)")
    published = json.loads(path.read_text())
    data = image_data(MNIST.counts, order)
    made = manifest(data, ReleasedDirichlet(20))
    assert label_counts(made, data.labels_N, PARTS).tolist() == published["all"]
    assert label_counts(made, data.labels_N, "train").tolist() == published["train"]


@pytest.mark.parametrize("declared", [False, True])
@pytest.mark.parametrize("name", SIZES)
def test_every_data_set_against_a_slow_reference(name, declared):
    sizes = SIZES[name]
    order = shuffled_order(sizes) if declared else None
    data, indices = image_data(sizes, order), order.indices_N if order else None
    assert_equals_reference(data, ReleasedDirichlet(20, 0.1), "dirichlet", 0.1, indices)
    per_client = CLASSES[name]
    partitioner = ReleasedPathological(20, per_client)
    assert_equals_reference(data, partitioner, "pathological", per_client, indices)


@pytest.mark.parametrize(
    ("sizes", "clients", "kind", "value"),
    [
        ((600,) * 100, 20, "dirichlet", 0.01),
        ((600,) * 100, 20, "dirichlet", 1.0),
        ((600,) * 100, 50, "dirichlet", 0.1),
        ((600,) * 100, 100, "dirichlet", 0.1),
        (MNIST.counts, 100, "dirichlet", 0.1),  # drawn 62 times
        ((5, 70, 0, 33, 1), 3, "dirichlet", 0.5),
        ((30,) * 6, 5, "dirichlet", 2e-3),  # 0 / 0 in some draws
        ((600,) * 10, 20, "pathological", 4),  # the last clients find two classes left
        ((600,) * 100, 100, "pathological", 10),
        ((53, 71, 60), 3, "pathological", 2),
        ((53, 71, 60), 3, "pathological", 1),
        ((90,) * 10, 7, "pathological", 10),
        ((90,) * 3, 5, "pathological", 2),  # 10 / 3 clients a class, rounded up
    ],
)
def test_other_settings_against_the_slow_reference(sizes, clients, kind, value):
    order = shuffled_order(sizes)
    kinds = {"dirichlet": ReleasedDirichlet, "pathological": ReleasedPathological}
    data = image_data(sizes, order)
    assert_equals_reference(data, kinds[kind](clients, value), kind, value, order.indices_N)


@pytest.mark.parametrize("seed", [0, 2, 2**32 - 1])
def test_other_seeds_against_the_slow_reference(seed):
    data = image_data((120,) * 10)
    slow = released(data.labels_N.tolist(), 10, 6, "dirichlet", 0.3, seed=seed)
    made = manifest(data, ReleasedDirichlet(6, 0.3, seed=seed))
    assert [set(c.test.tolist()) for c in made.clients] == [test for _, test in slow]


@pytest.mark.parametrize("partitioner", [ReleasedDirichlet(6), ReleasedPathological(5)])
def test_neither_the_runs_seed_nor_global_state_matters(partitioner):
    data = image_data((120,) * 10)
    first = make_manifest(data, partitioner, seed=0)
    random.seed(3), np.random.seed(3)
    state = np.random.get_state()[1].copy()
    assert make_manifest(data, partitioner, seed=7).hash == first.hash
    assert (np.random.get_state()[1] == state).all()


def test_validation_is_cut_by_the_runs_seed():
    data = image_data((120,) * 10)
    one, other = (
        make_manifest(data, ReleasedDirichlet(6), seed=seed, val_fraction=0.2) for seed in (0, 1)
    )
    assert one.hash != other.hash
    for a, b in zip(one.clients, other.clients, strict=True):
        assert np.array_equal(a.test, b.test)
        assert np.array_equal(a.train_and_val, b.train_and_val)


def test_the_order_decides_which_images_and_is_said(tmp_path):
    sizes = (120,) * 10
    data = image_data(sizes, shuffled_order(sizes))
    auto, source, content = (
        manifest(data, ReleasedDirichlet(6, order=order)) for order in ("auto", "source", "content")
    )
    assert auto.hash == source.hash != content.hash
    assert content.hash == manifest(replace(data, source_order=None), ReleasedDirichlet(6)).hash
    labels = data.labels_N
    assert torch.equal(label_counts(auto, labels, PARTS), label_counts(content, labels, PARTS))
    assert auto.origin == {
        "partitioner": "ReleasedDirichlet",
        "seed": 1,
        "order": "source: as it came",
    }
    assert content.origin["order"] == "content: by label, then by SHA-256 of the image"
    path = tmp_path / "partition.json"
    auto.save(path)
    assert json.loads(path.read_text())["origin"]["order"] == "source: as it came"
    assert Manifest.load(path).origin == auto.origin
    again = manifest(data, FromManifest(str(path)))
    assert (again.hash, again.origin) == (auto.hash, auto.origin)


def test_an_order_that_no_one_declares_is_refused():
    with pytest.raises(ValueError, match="order: expected a source that declares an order"):
        manifest(image_data((120,) * 10), ReleasedPathological(5, order="source"))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ReleasedDirichlet(0), "num_clients: expected an integer >= 1, got 0"),
        (lambda: ReleasedDirichlet(alpha=0.0), "alpha: expected a finite number > 0, got 0.0"),
        (lambda: ReleasedDirichlet(seed=-1), "seed: expected an integer >= 0, got -1"),
        (lambda: ReleasedPathological(seed=2**32), "seed: expected at most 4294967295"),
        (lambda: ReleasedPathological(order="files"), "order: expected auto, source or content"),
        (lambda: ReleasedPathological(classes_per_client=0), "classes_per_client: expected an int"),
    ],
)
def test_bad_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_what_cannot_be_drawn_is_refused_by_name():
    rng = np.random.RandomState(1)
    labels = np.repeat(np.arange(10), 60)
    with pytest.raises(
        ValueError, match=r"alpha: none of 20 draws at alpha=0.001 .* 20 clients 15"
    ):
        dirichlet(labels, 10, 20, 1e-3, rng, max_redraws=20)
    with pytest.raises(ValueError, match=r"classes_per_client: .* got 2 with 3 clients.* class 6"):
        pathological(labels, 10, 3, 2, rng)
    with pytest.raises(ValueError, match=r"labels: class 0 has 60 samples, expected at least 80"):
        pathological(labels, 10, 80, 10, rng)
    with pytest.raises(ValueError, match=r"labels: expected classes in \[0, 9\), got 9"):
        dirichlet(labels, 9, 2, 1.0, rng)


def test_tiny_imagenet_declares_the_order_of_its_files(real_data, real_cache):
    path = str(real_data / "tiny-imagenet-10of200.zip")
    for _ in range(2):  # decoded, then from the cache
        data = TinyImageNet(path, num_classes=10).load(cache_dir=real_cache)
        assert data.source_order.name == "by class, then by file name"
        assert torch.equal(data.labels_N[data.source_order.indices_N], data.labels_N)
        assert not torch.equal(data.source_order.indices_N, torch.arange(5000))

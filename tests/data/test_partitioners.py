"""Every partitioner keeps the contract; each one its own arguments."""

import inspect
import random

import numpy as np
import pytest
import torch

from cwfed.data import partitioners
from cwfed.data.images import ImageData
from cwfed.data.manifest import make_manifest
from cwfed.data.partitioners import (
    IID,
    Dirichlet,
    FromManifest,
    FromSource,
    Partitioner,
    Pathological,
)
from cwfed.data.partitioners.released import Released


def image_data(num_classes=10, per_class=60, content_hash="ab" * 32, name="toy"):
    labels = torch.arange(num_classes).repeat_interleave(per_class)
    images = torch.zeros(len(labels), 1, 1, 1, dtype=torch.uint8)
    names = tuple(f"class {j}" for j in range(num_classes))
    return ImageData(images, labels, names, content_hash, name)


def discovered():
    return [
        cls
        for _, cls in inspect.getmembers(partitioners, inspect.isclass)
        if issubclass(cls, Partitioner) and cls not in (Partitioner, FromSource)
    ]


@pytest.fixture
def build(tmp_path):
    def make(cls):
        if cls is not FromManifest:
            return cls()
        path = tmp_path / "partition.json"
        make_manifest(image_data(), Dirichlet(7), seed=5).save(path)
        return FromManifest(str(path))

    return make


@pytest.mark.parametrize("cls", discovered())
def test_contract_every_sample_goes_to_exactly_one_client(cls, build):
    partitioner, data = build(cls), image_data()
    parts = partitioner.split(data.labels_N, data.num_classes, 3)
    assert len(parts) == partitioner.num_clients
    assert all(part.dtype == np.int64 and (np.diff(part) > 0).all() for part in parts)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(data)))


@pytest.mark.parametrize("cls", discovered())
def test_contract_train_and_test_divide_each_share(cls, build):
    partitioner, data = build(cls), image_data()
    parts = partitioner.split(data.labels_N, data.num_classes, 3)
    pairs = partitioner.train_test(data, seed=3, train_fraction=0.75)
    for part, (train, test) in zip(parts, pairs, strict=True):
        assert np.array_equal(np.sort(np.concatenate([train, test])), part)
        assert len(train) == max(1, int(0.75 * len(part)))


@pytest.mark.parametrize("cls", discovered())
def test_contract_only_the_seed_matters_not_global_state(cls, build):
    partitioner, data = build(cls), image_data()

    def split(seed):
        return [p.tolist() for p in partitioner.split(data.labels_N, data.num_classes, seed)]

    random.seed(0), np.random.seed(0), torch.manual_seed(0)
    first, state = split(3), np.random.get_state()[1].copy()
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    assert split(3) == first
    np.random.seed(0)
    assert (np.random.get_state()[1] == state).all()
    assert (split(4) == first) == (cls is FromManifest or issubclass(cls, Released))


@pytest.mark.parametrize("cls", discovered())
def test_contract_labels_are_not_touched(cls, build):
    partitioner, data = build(cls), image_data()
    before = data.labels_N.clone()
    partitioner.split(data.labels_N, data.num_classes, 3)
    assert torch.equal(data.labels_N, before)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: IID(num_clients=-3), "num_clients: expected an integer >= 1, got -3"),
        (lambda: Pathological(num_clients=0), "num_clients: expected an integer >= 1, got 0"),
        (lambda: Pathological(num_clients=True), "num_clients: expected an integer"),
        (lambda: Pathological(classes_per_client=0), "classes_per_client: expected an integer"),
        (lambda: Dirichlet(num_clients=2.5), "num_clients: expected an integer >= 1, got 2.5"),
        (lambda: Dirichlet(alpha=0.0), "alpha: expected a finite number > 0, got 0.0"),
        (lambda: Dirichlet(alpha=float("nan")), "alpha: expected a finite number > 0, got nan"),
        (lambda: Dirichlet(min_samples=0), "min_samples: expected an integer >= 1, got 0"),
    ],
)
def test_bad_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_defaults_are_those_of_the_protocol():
    assert (Pathological().num_clients, Pathological().classes_per_client) == (20, 2)
    assert (Dirichlet().num_clients, Dirichlet().alpha, Dirichlet().min_samples) == (20, 0.1, None)
    assert IID().num_clients == 20


def test_pathological_holds_its_number_of_classes():
    data = image_data()
    for part in Pathological(20, 4).split(data.labels_N, 10, 0):
        assert len(data.labels_N[torch.from_numpy(part)].unique()) == 4


def test_dirichlet_passes_its_minimum_on():
    data = image_data()
    parts = Dirichlet(20, alpha=0.3, min_samples=20).split(data.labels_N, 10, 0)
    assert min(map(len, parts)) >= 20

"""Samples that are no pixels: vectors and tokens reach the model as they are."""

import sys

import pytest
import torch

import cwfed
from cwfed.data.images import ImageData

OWN = '''
import torch
from sklearn.datasets import load_wine
from torch import nn

from cwfed.data.images import ImageData
from cwfed.data.sources import Source


class Wine(Source):
    name = "wine"

    def load(self, data_dir=None, *, cache_dir=None):
        found = load_wine()
        x = torch.tensor(found.data, dtype=torch.float64)
        x = (x - x.mean(0)) / x.std(0)
        y = torch.tensor(found.target)
        return ImageData(x, y, tuple(found.target_names), "wine", "wine")


class Tokens(Source):
    """The class is the token that stands at place 3."""

    name = "tokens"

    def load(self, data_dir=None, *, cache_dir=None):
        y = torch.arange(5).repeat_interleave(40)
        x = torch.randint(5, 20, (200, 6), generator=torch.Generator().manual_seed(0))
        x[:, 3] = 20 + y
        return ImageData(x, y, tuple("abcde"), "tokens", "tokens")


class Linear(nn.Module):
    head_name = "head"

    def __init__(self, input_shape: tuple, num_classes: int):
        super().__init__()
        self.body = nn.Linear(input_shape[0], 16)
        self.head = nn.Linear(16, num_classes)

    def forward(self, x):
        return self.head(torch.relu(self.body(x)))


class Bag(nn.Module):
    head_name = "head"

    def __init__(self, num_classes: int):
        super().__init__()
        self.embedding = nn.Embedding(25, 16)
        self.head = nn.Linear(16, num_classes)

    def forward(self, x):
        return self.head(self.embedding(x).sum(1))
'''


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "samples_of_ones_own.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    yield "samples_of_ones_own"
    sys.modules.pop("samples_of_ones_own", None)


def fit(own, data, model, folder, **options):
    return cwfed.fit(
        "quickstart", run_dir=folder, data=f"{own}.{data}", model=f"{own}.{model}",
        partition={"class_path": "IID", "num_clients": 3}, algorithm="fedavg", progress=False,
        **{"rounds": 5, "client.optimizer.lr": 0.3, "client.local_epochs": 5, **options},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("data", "model", "kind"),
    [
        ("Wine", "Linear", "vectors of 13 numbers"),
        ("Tokens", "Bag", "sequences of 6 tokens"),
    ],
)
def test_samples_that_are_no_pixels_are_learned_by_every_engine(own, data, model, kind):
    found = {}
    for engine in ("sequential", "parallel", "vectorized"):
        run = fit(own, data, model, engine, **{"trainer.engine": engine})
        assert run.result["received"]["last"]["accuracy"] > 0.9
        found[engine] = run.result["received"]["last"]["accuracy"]
    assert run.result["samples"] == {"kind": kind, "scaling": "none"}
    assert found["sequential"] == found["parallel"]
    assert abs(found["vectorized"] - found["sequential"]) < 0.03


def test_what_was_scaled_is_recorded(tmp_path):
    run = cwfed.fit("quickstart", run_dir=tmp_path / "r", rounds=0, progress=False)
    assert run.result["samples"] == {"kind": "1 x 28 x 28 images", "scaling": "pixels"}


def test_a_model_of_images_is_refused_by_name(own, tmp_path):
    with pytest.raises(ValueError, match=r"model: CNN4 expects images, got samples of shape \(13"):
        cwfed.fit("quickstart", run_dir=tmp_path / "r", data=f"{own}.Wine", model="CNN4")
    with pytest.raises(ValueError, match="model: Linear fails on a batch of shape"):
        fit(own, "Tokens", "Linear", tmp_path / "r")
    assert not (tmp_path / "r").exists()


def data(samples, **options):
    labels = torch.arange(len(samples))
    return ImageData(samples, labels, tuple(map(str, labels.tolist())), "0", "some", **options)


@pytest.mark.parametrize(
    ("samples", "served"),
    [
        (torch.tensor([[0.25, -3.0]]), torch.tensor([[0.25, -3.0]])),
        (torch.tensor([[7, 300]], dtype=torch.int32), torch.tensor([[7, 300]])),
        (torch.tensor([[0, 255]], dtype=torch.uint8), torch.tensor([[-1.0, 1.0]])),
        (torch.rand(1, 1, 4, 4, dtype=torch.float64), None),
    ],
)
def test_samples_are_served_as_their_source_means_them(samples, served):
    made = data(samples)
    found = made.served(made.images_NCHW, torch.float32)
    expected = samples.to(torch.float32) if served is None else served
    assert found.dtype == expected.dtype == made.served_dtype(torch.float32)
    assert torch.equal(found, expected)


def test_uint8_that_is_no_pixel_passes():
    made = data(torch.tensor([[0, 200]], dtype=torch.uint8), scaling="none")
    assert made.served(made.images_NCHW, torch.float32).tolist() == [[0, 200]]


@pytest.mark.parametrize(
    ("samples", "options", "message"),
    [
        (torch.rand(2, 3), {"scaling": "pixels"}, "expected pixels of uint8, got torch.float32"),
        (torch.tensor([[0.0, float("nan")]]), {}, "expected finite numbers"),
    ],
)
def test_samples_that_make_no_sense_are_refused(samples, options, message):
    with pytest.raises(ValueError, match=f"some: {message}"):
        data(samples, **options)

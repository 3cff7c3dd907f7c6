"""Bits of what goes onto the device, and switches of precision."""

import pytest
import torch
from engine_cases import case

from cwfed.data.images import normalise
from cwfed.engines.precision import matmul_precision
from cwfed.engines.vectorized.resident import ResidentData, rows_on
from cwfed.functional.stacking import take_rows


def switches():
    return torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32


def fail_within(setting, seen):
    with matmul_precision(setting):
        seen.append(switches())
        raise RuntimeError("inside")


@pytest.mark.parametrize("setting", ["highest", "high", "medium"])
def test_precision_is_set_for_a_block(setting):
    before, seen = switches(), []
    with pytest.raises(RuntimeError, match="inside"):
        fail_within(setting, seen)
    assert seen == [(setting, setting != "highest")]
    assert switches() == before


def test_engines_compute_at_the_precision_asked_for(monkeypatch):
    c = case()
    seen = []
    engine = c.stacked(matmul_precision="medium")
    batch = ResidentData.batch

    def watch(self, index):
        seen.append(torch.get_float32_matmul_precision())
        return batch(self, index)

    monkeypatch.setattr(ResidentData, "batch", watch)
    c.fit(engine, [0])
    rows = take_rows(c.start, [0])
    engine.evaluate([0], rows, "test")
    engine.class_means([0], rows)
    assert set(seen) == {"medium"}
    assert torch.get_float32_matmul_precision() == "highest"


@pytest.mark.parametrize("precision", ["32-true", "64-true"])
def test_images_have_the_bits_of_the_loaders(precision):
    data = case(precision=precision).workload.data
    resident = ResidentData(data, torch.device("cpu"))
    index = torch.tensor([[3, 1], [0, 3]])
    images, labels = resident.batch(index)
    assert torch.equal(images, normalise(data.images.images_NCHW[index], data.dtype))
    assert images.dtype == data.dtype
    assert torch.equal(labels, data.images.labels_N[index])
    resident.images_NCHW = torch.arange(256, dtype=torch.uint8)
    everything, _ = ResidentData.batch(resident, torch.arange(100))
    assert torch.equal(everything, normalise(torch.arange(100).to(torch.uint8), data.dtype))


def test_rows_that_share_memory_travel_once():
    shared = torch.arange(3.0).expand(5, 3)
    moved = rows_on(shared, [1, 4], torch.device("cpu"))
    assert torch.equal(moved, shared[:2])
    assert moved.stride(0) == 0
    own = torch.arange(15.0).view(5, 3)
    assert torch.equal(rows_on(own, [4, 1], torch.device("cpu")), own[[4, 1]])

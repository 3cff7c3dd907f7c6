import pytest
import torch

from cwfed.data.images import ImageData, normalise
from cwfed.data.plans import PlanLoader, batch_plan


def plan(size, batch, epochs=1, seed=0, skip_small=False):
    generator = torch.Generator().manual_seed(seed)
    return batch_plan(
        torch.arange(100, 100 + size), batch, epochs, generator, skip_small=skip_small
    )


@pytest.mark.parametrize(("size", "sizes"), [(20, [10, 10]), (29, [10, 10]), (9, [9]), (1, [1])])
def test_the_last_incomplete_batch_is_dropped_unless_it_is_the_only_one(size, sizes):
    assert [len(batch) for batch in plan(size, 10)] == sizes


def test_each_epoch_uses_a_sample_at_most_once():
    batches = plan(23, 5, epochs=2)
    assert len(batches) == 8
    for epoch in (batches[:4], batches[4:]):
        used = torch.cat(epoch)
        assert len(used.unique()) == 20
        assert used.min() >= 100
    assert not torch.equal(torch.cat(batches[:4]), torch.cat(batches[4:]))


def test_no_samples_no_batches():
    assert plan(0, 5) == []
    assert plan(4, 5, skip_small=True) == []
    assert len(plan(5, 5, skip_small=True)) == 1


def test_normalise_maps_pixels_to_minus_one_to_one():
    pixels = torch.tensor([0, 51, 255], dtype=torch.uint8)
    values = normalise(pixels, torch.float64)
    torch.testing.assert_close(values, torch.tensor([-1, -0.6, 1], dtype=torch.float64))
    assert pixels.tolist() == [0, 51, 255]


def test_loader_serves_the_plan_in_order():
    images = torch.arange(6, dtype=torch.uint8).reshape(6, 1, 1, 1)
    labels = torch.arange(6)
    data = ImageData(images, labels, tuple("abcdef"), "0", "six")
    loader = PlanLoader(data, [torch.tensor([4, 1]), torch.tensor([0])], torch.float32)
    batches = list(loader)
    assert len(loader) == 2
    assert [y.tolist() for _, y in batches] == [[4, 1], [0]]
    assert batches[0][0].shape == (2, 1, 1, 1)

import pytest
import torch
from classwise import class_distribution_from_heads

from cwfed.functional.distribution import label_distribution, norm_distribution
from cwfed.functional.regularisers import weight_distribution_distance


def test_equal_row_norms_are_uniform():
    weight = torch.randn(7, 5, dtype=torch.float64)
    weight = 3.0 * weight / weight.norm(dim=1, keepdim=True)
    expected = torch.full((7,), 1 / 7, dtype=torch.float64)
    torch.testing.assert_close(norm_distribution(weight), expected, atol=1e-15, rtol=0)


def test_norm_distribution_equals_loops_and_batches():
    weight = torch.randn(3, 4, 6, dtype=torch.float64)
    weight[1] = 0
    weight[2, 0] = 0
    expected = torch.tensor(class_distribution_from_heads(weight.tolist()), dtype=torch.float64)
    torch.testing.assert_close(norm_distribution(weight), expected, atol=1e-15, rtol=0)


def test_norm_distribution_is_scale_free():
    weight = torch.randn(4, 6, dtype=torch.float64)
    torch.testing.assert_close(norm_distribution(weight), norm_distribution(1e-3 * weight))


def test_distance_is_the_norm_not_its_square():
    weight = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    distance = weight_distribution_distance(torch.tensor([1.0, 0.0]), weight)
    assert distance.item() == pytest.approx(0.5**0.5)


def test_gradient_by_finite_differences():
    p = torch.tensor([0.1, 0.2, 0.7], dtype=torch.float64)
    weight = torch.randn(3, 4, dtype=torch.float64)
    leaf = weight.clone().requires_grad_()
    weight_distribution_distance(p, leaf).backward()
    step = 1e-6
    for index in [(0, 0), (1, 3), (2, 2), (2, 0)]:
        up, down = weight.clone(), weight.clone()
        up[index] += step
        down[index] -= step
        slope = (weight_distribution_distance(p, up) - weight_distribution_distance(p, down)) / (
            2 * step
        )
        assert leaf.grad[index].item() == pytest.approx(slope.item(), abs=1e-8)
        assert abs(slope) > 1e-4


def gradient(p, weight):
    leaf = weight.clone().requires_grad_()
    weight_distribution_distance(p, leaf).backward()
    return leaf.grad


def test_gradient_at_an_exact_match_is_zero():
    weight = torch.tensor([[3.0, 0.0], [0.0, 1.0]])
    assert torch.equal(gradient(torch.tensor([0.75, 0.25]), weight), torch.zeros(2, 2))


def test_gradient_at_a_zero_row_is_zero_there():
    weight = torch.tensor([[3.0, 4.0], [0.0, 0.0], [1.0, 0.0]])
    grad = gradient(torch.tensor([0.2, 0.5, 0.3]), weight)
    assert grad.isfinite().all()
    assert torch.equal(grad[1], torch.zeros(2))
    assert grad[0].abs().sum() > 0


def test_gradient_of_an_all_zero_head_is_zero():
    grad = gradient(torch.tensor([0.2, 0.5, 0.3]), torch.zeros(3, 2))
    assert torch.equal(grad, torch.zeros(3, 2))


def test_descending_the_distance_brings_the_norms_to_the_labels():
    p = torch.tensor([0.7, 0.3, 0.0], dtype=torch.float64)
    weight = torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    before = weight_distribution_distance(p, weight)
    for _ in range(2000):
        weight = weight - 0.02 * gradient(p, weight)
    assert weight_distribution_distance(p, weight) < 0.1 * before


def test_label_distribution_of_an_empty_client_is_zero():
    assert label_distribution(torch.zeros(1, 3, dtype=torch.int64)).tolist() == [[0.0, 0.0, 0.0]]


def test_a_head_that_is_no_number_has_no_distribution():
    weight = torch.tensor([[float("nan"), 1.0], [1.0, 2.0]])
    assert norm_distribution(weight).isnan().any()
    assert weight_distribution_distance(torch.tensor([0.5, 0.5]), weight).isnan()
    assert weight_distribution_distance(torch.tensor([0.5, 0.5]), weight * 0 + torch.inf).isnan()

import pytest
import torch
from classwise import (
    TwoStepServer,
    as_lists,
    class_distribution_from_counts,
    class_model,
    fedavg,
    personal_model,
)

from cwfed.functional.aggregation import (
    class_models,
    classwise_weights,
    mix,
    mixing_matrix,
    sample_weights,
)
from cwfed.functional.distribution import label_distribution


def problem(seed, clients=6, classes=4, shape=(3, 5), dtype=torch.float64):
    g = torch.Generator().manual_seed(seed)
    counts = torch.randint(0, 30, (clients, classes), generator=g)
    counts[0, 0] += 1
    counts[:, 1] = 0
    counts[2, 1] = 7  # a class with a single holder
    theta = torch.randn(clients, *shape, generator=g, dtype=torch.float64).to(dtype)
    return counts, theta


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
@pytest.mark.parametrize("seed", range(5))
def test_fused_two_step_and_loops_agree(seed, dtype, tolerance):
    counts, theta = problem(seed, dtype=dtype)
    everyone = torch.arange(len(counts))
    p, n = label_distribution(counts), counts.sum(1)
    q = classwise_weights(p, n, everyone, torch.full_like(p, 1 / len(counts)))

    fused = mix(mixing_matrix(p, q), theta)
    two_step = mix(p, class_models(q, theta))
    models, n_, p_ = as_lists(theta), n.tolist(), class_distribution_from_counts(counts.tolist())
    made = [class_model(j, models, n_, p_, everyone.tolist()) for j in range(counts.shape[1])]
    slow = torch.tensor([personal_model(row, made) for row in p_], dtype=torch.float64)

    torch.testing.assert_close(fused, two_step, atol=tolerance, rtol=0)
    flat = fused.flatten(1).double()
    torch.testing.assert_close(flat, slow, atol=tolerance, rtol=0)


def test_proportional_counts_give_fedavg():
    base = torch.tensor([3, 1, 6])
    counts = torch.stack([base * k for k in (1, 2, 5, 9)])
    theta = torch.randn(4, 7, dtype=torch.float64)
    everyone = torch.arange(4)
    p, n = label_distribution(counts), counts.sum(1)
    q = classwise_weights(p, n, everyone, torch.full_like(p, 0.25))
    personal = mix(mixing_matrix(p, q), theta)
    expected = torch.tensor(fedavg(as_lists(theta), n.tolist(), range(4)), dtype=torch.float64)
    torch.testing.assert_close(personal, expected.expand(4, -1), atol=1e-14, rtol=0)


def test_one_class_each_gives_fedavg_within_the_class():
    counts = torch.tensor([[4, 0], [0, 3], [8, 0], [0, 9]])
    theta = torch.randn(4, 7, dtype=torch.float64)
    everyone = torch.arange(4)
    p, n = label_distribution(counts), counts.sum(1)
    q = classwise_weights(p, n, everyone, torch.full_like(p, 0.25))
    personal = mix(mixing_matrix(p, q), theta)
    for group in ([0, 2], [1, 3]):
        expected = torch.tensor(fedavg(as_lists(theta), n.tolist(), group), dtype=torch.float64)
        for client in group:
            torch.testing.assert_close(personal[client], expected, atol=1e-14, rtol=0)


def test_partial_participation_is_exact_without_class_models():
    """Point 7: the bank and Q give what a server that stores K class models gives."""
    clients, classes = 7, 5
    g = torch.Generator().manual_seed(3)
    counts = torch.randint(0, 20, (clients, classes), generator=g)
    counts[torch.rand(clients, classes, generator=g) < 0.6] = 0
    counts[0, 0], counts[6, 4] = 5, 5
    counts[:, 3] = 0
    counts[1, 3] = 8  # a single holder, so most rounds leave this class untouched
    counts[:, 0] += 1 * (counts.sum(1) == 0)
    p, n = label_distribution(counts), counts.sum(1)
    p_, n_ = class_distribution_from_counts(counts.tolist()), n.tolist()
    initial = torch.randn(6, dtype=torch.float64, generator=g)
    bank = initial.repeat(clients, 1)
    server = TwoStepServer(initial.tolist(), classes)
    q = classwise_weights(p, n, torch.arange(clients), torch.full_like(p, 1 / clients))
    untouched = 0
    for _ in range(60):
        size = int(torch.randint(1, 4, (), generator=g))
        who = torch.randperm(clients, generator=g)[:size].sort().values
        bank = bank.clone()
        bank[who] = torch.randn(size, 6, dtype=torch.float64, generator=g)
        untouched += int((counts[who].sum(0) == 0).sum())
        q = classwise_weights(p, n, who, q)
        expected = server.round(as_lists(bank), n_, p_, who.tolist())
        torch.testing.assert_close(
            mix(mixing_matrix(p, q), bank),
            torch.tensor(expected, dtype=torch.float64),
            atol=1e-12,
            rtol=0,
        )
        torch.testing.assert_close(q.sum(0), torch.ones(classes, dtype=torch.float64))
    assert untouched > 50, "the rounds must leave classes without a participating holder"


def test_a_class_nobody_holds_is_never_nan():
    counts = torch.tensor([[5, 0], [7, 0]])
    p, n = label_distribution(counts), counts.sum(1)
    q = classwise_weights(p, n, torch.arange(2), torch.full_like(p, 0.5))
    assert q.isfinite().all()
    assert mixing_matrix(p, q).isfinite().all()


@pytest.mark.parametrize("shape", [(3,), (2, 3, 4), ()])
def test_mix_equals_loops_in_blocks(monkeypatch, shape):
    monkeypatch.setattr("cwfed.functional.aggregation._BLOCK_ELEMENTS", 10)
    weights = torch.rand(5, 4, dtype=torch.float64)
    weights[3] = weights[1]  # equal rows are computed once
    theta = torch.randn(4, *shape, dtype=torch.float64)
    expected = torch.stack([sum(weights[r, m] * theta[m] for m in range(4)) for r in range(5)])
    torch.testing.assert_close(mix(weights, theta), expected, atol=1e-14, rtol=0)


def test_mix_takes_named_rows_and_never_touches_the_others(monkeypatch):
    monkeypatch.setattr("cwfed.functional.aggregation._BLOCK_ELEMENTS", 10)
    theta = torch.randn(5, 7, dtype=torch.float64)
    theta[3] = torch.nan
    rows, weights = torch.tensor([4, 0]), torch.tensor([[0.25, 0.75], [1.0, 0.0]])
    expected = torch.stack([0.25 * theta[4] + 0.75 * theta[0], theta[4]])
    torch.testing.assert_close(mix(weights, theta, rows), expected, atol=1e-14, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_mix_computes_half_precision_in_float32(dtype):
    """The weight 1.0003 is 1 in either half precision."""
    theta = torch.tensor([[1024.0], [-1024.0]], dtype=dtype)
    mixed = mix(torch.tensor([[1.0003, 1.0], [1.0, 1.0003]]), theta)
    assert mixed.dtype == dtype
    expected = torch.tensor([[0.3072], [-0.3072]])
    torch.testing.assert_close(mixed.float(), expected, atol=2e-3, rtol=0)


def test_equal_rows_give_equal_bits():
    theta, weights = torch.randn(23, 1001), torch.rand(23, 23, dtype=torch.float64)
    weights[5] = weights[17] = weights[1]
    mixed = mix(weights, theta)
    assert torch.equal(mixed[1], mixed[5])
    assert torch.equal(mixed[1], mixed[17])
    torch.testing.assert_close(mixed.double(), weights @ theta.double(), atol=1e-5, rtol=0)


def test_mix_with_equal_rows_is_one_row():
    theta = torch.randn(4, 3)
    mixed = mix(torch.full((4, 4), 0.25, dtype=torch.float64), theta)
    assert mixed.stride(0) == 0
    assert torch.equal(mixed[0], mixed[3])


def test_mix_with_the_identity_changes_no_bit():
    theta = torch.randn(4, 3) * 1e30
    assert mix(torch.eye(4, dtype=torch.float64), theta) is theta


def test_sample_weights_without_samples_count_equally():
    weights = sample_weights(torch.tensor([0, 0, 9]), torch.tensor([0, 1]))
    assert weights.tolist() == [0.5, 0.5, 0.0]


@pytest.mark.parametrize("shape", [(0,), (2, 0)])
def test_a_tensor_without_elements_is_mixed_to_one(shape):
    assert mix(torch.full((3, 3), 1 / 3), torch.zeros(3, *shape)).shape == (3, *shape)
    assert mix(torch.rand(3, 3), torch.zeros(3, *shape)).shape == (3, *shape)

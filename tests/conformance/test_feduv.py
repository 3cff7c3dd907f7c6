"""FedUV against plain PyTorch, its identities, and its terms where they are degenerate."""

import pytest
import torch
from feduv_reference import feduv_rounds, uniformity_term, variance_term
from helpers import assert_same, run, small_experiment
from rounds import assert_models_equal

from cwfed.aggregators import FedAvg
from cwfed.functional.feduv import pair_potential, variance_shortfall
from cwfed.objectives import ClassifierVariance, EncoderUniformity
from cwfed.runs.checkpoint import load_newest, save_checkpoint

ROUNDS, LR = 4, 0.05


def experiment(lam=2.5, mu=0.5, detach_sigma=False, **changes):
    terms = [ClassifierVariance(lam), EncoderUniformity(mu, detach_sigma)]
    return small_experiment(FedAvg(), terms, **{"rounds": ROUNDS, "dropout": 0.0} | changes)


def largest_difference(a, b):
    return max((a[n] - b[n]).abs().max() for n in a if a[n].is_floating_point())


@pytest.mark.parametrize("detach_sigma", [False, True])
def test_equals_plain_pytorch(detach_sigma):
    made = experiment(detach_sigma=detach_sigma)
    prepared = made.prepare()
    model, uploads = feduv_rounds(
        prepared.model,
        "out",
        prepared.data.training_loader,
        [len(prepared.data.indices(client, "train")) for client in range(5)],
        ROUNDS,
        LR,
        2.5,
        0.5,
        detach_sigma,
    )
    state = run(made)
    assert_models_equal(state.received, [model] * 5)
    assert_models_equal(state.uploads, uploads)


def test_each_term_acts():
    settings = [(0, 0), (2.5, 0), (0, 0.5), (2.5, 0.5), (1.0, 0.5)]
    models = [run(experiment(lam, mu)).received for lam, mu in settings]
    models.append(run(experiment(detach_sigma=True)).received)
    for i, a in enumerate(models):
        for b in models[i + 1 :]:
            assert largest_difference(a, b) > 1e-4


def test_without_weights_it_is_fedavg_to_the_bit():
    ours = run(experiment(0, 0, dropout=0.2))
    theirs = run(small_experiment(FedAvg(), [], rounds=ROUNDS))
    assert_same(ours.received, theirs.received)
    assert_same(ours.uploads, theirs.uploads)


def test_batches_of_one_are_fedavg():
    from cwfed.federated import LocalTraining

    client = LocalTraining(1, optimizer=lambda params: torch.optim.SGD(params, lr=LR))
    ours = run(experiment(client=client, rounds=1))
    theirs = run(small_experiment(FedAvg(), [], client=client, rounds=1, dropout=0.0))
    assert largest_difference(ours.received, theirs.received) < 1e-12


def test_resumes_to_the_bit(tmp_path):
    whole = run(experiment(dropout=0.3, participation=0.6))
    half = run(experiment(dropout=0.3, participation=0.6, rounds=2))
    save_checkpoint(tmp_path, half, "me", keep=1)
    rest = run(experiment(dropout=0.3, participation=0.6), state=load_newest(tmp_path, "me"))
    assert_same(whole.received, rest.received)
    assert_same(whole.uploads, rest.uploads)


def sample(size, width, seed=0, dtype=torch.float64):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(size, width, generator=g, dtype=dtype).requires_grad_()


def value_and_gradient(function, x):
    value = function(x)
    return value.detach(), torch.autograd.grad(value, x)[0]


@pytest.mark.parametrize("size", [2, 3, 4, 5, 10])
def test_variance_equals_loops(size):
    for seed in range(5):
        # Confident predictions of few classes: some deviations exceed 1 / sqrt(K).
        logits = (sample(size, 4, seed) * [1, 10][seed % 2]).detach().requires_grad_()
        for ours, theirs in zip(
            value_and_gradient(variance_shortfall, logits),
            value_and_gradient(variance_term, logits),
            strict=True,
        ):
            torch.testing.assert_close(ours, theirs, atol=1e-13, rtol=0)
        assert ours.abs().sum() > 0


@pytest.mark.parametrize("detach_sigma", [False, True])
@pytest.mark.parametrize("repeats", [1, 2, 3])
@pytest.mark.parametrize("size", [2, 3, 4, 5, 8])
def test_uniformity_equals_loops_also_with_equal_samples(size, repeats, detach_sigma):
    """Odd and even numbers of pairs, ties among the distances, and distances of 0."""
    for seed in range(5):
        features = sample(size, 6, seed).detach().repeat(repeats, 1).requires_grad_()
        ours = value_and_gradient(lambda z: pair_potential(z, detach_sigma), features)
        theirs = value_and_gradient(lambda z: uniformity_term(z, detach_sigma), features)
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b, atol=1e-13, rtol=0)
        assert ours[1].abs().sum() > 0 or (len(features) == 2 * repeats and not detach_sigma)


def test_values_by_hand():
    logits = torch.tensor([[0.9, 0.1], [0.7, 0.3]], dtype=torch.float64).log()
    std = (2 * 0.1**2) ** 0.5  # unbiased
    assert abs(variance_shortfall(logits).item() - (0.5**0.5 - std)) < 1e-14
    line = torch.tensor([[0.0], [1.0], [3.0], [7.0]], dtype=torch.float64)
    squares = torch.tensor([1.0, 4, 9, 16, 36, 49], dtype=torch.float64)
    assert abs(pair_potential(line) - torch.exp(-squares / 9).mean()) < 1e-14
    twice = torch.tensor([[0.0], [0.0], [2.0]], dtype=torch.float64)  # 0 counts in the mean only
    assert abs(pair_potential(twice) - (1 + 2 * torch.tensor(-1.0).double().exp()) / 3) < 1e-14


def test_gradcheck():
    assert torch.autograd.gradcheck(variance_shortfall, (sample(6, 5),))
    assert torch.autograd.gradcheck(pair_potential, (sample(6, 5),))


def test_gradient_with_a_constant_sigma():
    features = sample(5, 3)
    with torch.no_grad():
        distances = torch.pdist(features).square()
        sigma = torch.median(distances)
    _, ours = value_and_gradient(lambda z: pair_potential(z, detach_sigma=True), features)
    _, theirs = value_and_gradient(
        lambda z: torch.exp(-torch.pdist(z).square() / sigma).mean(), features
    )
    torch.testing.assert_close(ours, theirs)


DEGENERATE = [
    (variance_shortfall, torch.randn(1, 4)),
    (variance_shortfall, torch.zeros(5, 4)),
    (variance_shortfall, torch.full((7, 3), 0.3).cumsum(1)),
    *(
        (variance_shortfall, sample(1, 7, seed, torch.float32).detach().repeat(33, 1))
        for seed in range(5)
    ),
    (variance_shortfall, torch.tensor([[500.0, 0, 0]]).repeat(3, 1)),
    (pair_potential, torch.randn(1, 4)),
    (pair_potential, torch.zeros(5, 4)),
    (pair_potential, torch.full((6, 3), 0.1)),
    (pair_potential, torch.full((2, 3), 1e-30) * torch.tensor([[0.0], [1.0]])),
]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize(("function", "x"), DEGENERATE)
def test_gradient_is_zero_at_degenerate_points(function, x, dtype):
    if dtype == torch.float64 and 0 < x.abs().max() < 1e-20:
        x = x * 1e-140
    value, gradient = value_and_gradient(function, x.to(dtype).requires_grad_())
    assert value.isfinite()
    assert (gradient == 0).all()
    if function is pair_potential:
        assert value == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradient_is_finite_near_degenerate_points(dtype):
    g = torch.Generator().manual_seed(0)
    base = torch.randn(1, 4, generator=g).to(dtype)
    for exponent in (-155, -30, -20, -18, -12, -8, -4):
        small = 10.0**exponent * torch.randn(6, 4, generator=g).to(dtype)
        far = torch.cat([small, base * 1e4])  # most pairs very close, some far apart
        for x in (base + small, small, far):
            for function in (variance_shortfall, pair_potential):
                value, gradient = value_and_gradient(function, x.requires_grad_())
                assert value.isfinite()
                assert gradient.isfinite().all(), (function.__name__, exponent)


def test_uniformity_does_not_see_scale_or_order():
    features = sample(7, 4).detach()
    value = pair_potential(features)
    torch.testing.assert_close(pair_potential(1e-3 * features), value)
    torch.testing.assert_close(pair_potential(features[[3, 0, 6, 1, 5, 2, 4]]), value)


def test_the_terms_can_be_mapped_over_stacked_clients():
    stacked = torch.stack([sample(5, 4, seed).detach() for seed in range(3)])
    stacked[1, :2] = 0.5
    for function in (variance_shortfall, pair_potential):
        mapped = torch.func.vmap(torch.func.grad(function))(stacked)
        for x, gradient in zip(stacked, mapped, strict=True):
            _, expected = value_and_gradient(function, x.clone().requires_grad_())
            torch.testing.assert_close(gradient, expected)


def test_the_default_weights_are_the_released_ones():
    assert ClassifierVariance().weight == 2.5
    assert EncoderUniformity().weight == 0.5
    assert not EncoderUniformity().detach_sigma
    assert EncoderUniformity.needs_features


@pytest.mark.parametrize("term", [ClassifierVariance, EncoderUniformity])
@pytest.mark.parametrize("weight", [-0.1, float("nan"), float("inf")])
def test_bad_weights_are_refused(term, weight):
    with pytest.raises(ValueError, match="weight: expected a finite number >= 0, got"):
        term(weight)

import inspect

import pytest
import torch

import cwfed.objectives
from cwfed.objectives import (
    WDR,
    ClientContext,
    CrossEntropy,
    Objective,
    ObjectiveTerm,
    Step,
)

TERMS = [
    c
    for _, c in inspect.getmembers(cwfed.objectives, inspect.isclass)
    if issubclass(c, ObjectiveTerm) and c is not ObjectiveTerm
]


def inputs(batch=3, classes=4, features=5, seed=0):
    g = torch.Generator().manual_seed(seed)
    weight = torch.randn(classes, features, generator=g, dtype=torch.float64, requires_grad=True)
    feats = torch.randn(batch, features, generator=g, dtype=torch.float64)
    targets = torch.randint(0, classes, (batch,), generator=g)
    p = torch.tensor([0.5, 0.2, 0.3, 0.0], dtype=torch.float64)
    anchor = {"head.weight": torch.zeros(classes, features, dtype=torch.float64)}
    return weight, feats, targets, ClientContext(p, "head.weight", anchor)


@pytest.mark.parametrize("term", TERMS)
def test_gradient_of_every_term(term):
    weight, feats, targets, client = inputs()

    def value(w):
        features = torch.tanh(feats @ w.T @ w)  # so that a term on features depends on w too
        step = Step(features @ w.T, targets, {"head.weight": w}, features)
        return term(weight=1.0).value(step, client)

    assert torch.autograd.gradcheck(value, (weight,), atol=1e-7)
    assert value(weight).shape == ()
    (grad,) = torch.autograd.grad(value(weight), weight)
    assert grad.abs().sum() > 0, "a term without gradient silently does nothing"


@pytest.mark.parametrize("term", TERMS)
@pytest.mark.parametrize("weight", [-1.0, float("nan"), float("inf")])
def test_bad_weights_are_refused(term, weight):
    with pytest.raises(ValueError, match=r"weight: expected a finite number >= 0, got"):
        term(weight=weight)


def test_the_objective_is_the_weighted_sum():
    weight, feats, targets, client = inputs()
    step = Step(feats @ weight.T, targets, {"head.weight": weight})
    total = Objective([CrossEntropy(), WDR(7.0)])(step, client)
    probabilities = torch.softmax(feats @ weight.T, 1)
    expected = -probabilities[range(3), targets].log().mean()
    norms = (weight**2).sum(1).sqrt()
    expected = expected + 7.0 * ((client.p_K - norms / norms.sum()) ** 2).sum().sqrt()
    torch.testing.assert_close(total, expected)


def test_a_term_of_weight_zero_is_not_evaluated():
    class Explosive(ObjectiveTerm):
        weight = 0.0
        needs_features = True

        def value(self, step, client):
            raise AssertionError("evaluated")

    weight, feats, targets, client = inputs()
    objective = Objective([CrossEntropy(), Explosive()])
    assert not objective.needs_features
    objective(Step(feats @ weight.T, targets, {}), client)


def test_an_open_weight_is_refused():
    with pytest.raises(ValueError, match=r"WDR.weight: expected a finite number >= 0, got None"):
        Objective([CrossEntropy(), WDR()])

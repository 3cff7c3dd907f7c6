"""Which optimisers can be stacked, and which can be reset in place."""

from functools import partial

import pytest
import torch
from torch import optim

from cwfed.engines.vectorized.stacked_optimizer import (
    StackedOptimizer,
    reason_against_stacking,
    zeroed_is_fresh,
)


class Clipping(optim.SGD):
    """Clips the norm of each gradient it is given."""

    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                torch.nn.utils.clip_grad_norm_([p], 0.1)
        return super().step(closure)


def decays_matrices_only(parameters):
    parameters = list(parameters)
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": 0.1},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return optim.SGD([group for group in groups if group["params"]], lr=0.1)


SGD, ADAM = partial(optim.SGD, lr=0.1), partial(optim.Adam, lr=0.1)
MOMENTUM = partial(SGD, momentum=0.9)
ROW_BY_ROW = [
    SGD,
    partial(SGD, weight_decay=0.1, maximize=True),
    MOMENTUM,
    partial(MOMENTUM, nesterov=True),
    partial(MOMENTUM, dampening=0.5),
    ADAM,
    partial(ADAM, amsgrad=True, weight_decay=0.1),
    partial(optim.AdamW, lr=0.1),
    partial(optim.NAdam, lr=0.1),
    partial(optim.RMSprop, lr=0.1, momentum=0.9),
    partial(optim.Adagrad, lr=0.1),
]
NOT = [
    optim.LBFGS,
    optim.Adafactor,
    *([optim.Muon] if hasattr(optim, "Muon") else []),
    optim.SparseAdam,
    partial(Clipping, lr=0.1),
    decays_matrices_only,
]


@pytest.mark.parametrize("factory", ROW_BY_ROW)
def test_optimisers_that_treat_rows_one_by_one(factory):
    assert reason_against_stacking(factory) is None


@pytest.mark.parametrize("factory", NOT)
def test_optimisers_that_do_not_are_refused(factory):
    assert "the optimiser" in reason_against_stacking(factory)


@pytest.mark.parametrize(
    ("factory", "expected"),
    [
        (SGD, True),
        (MOMENTUM, True),
        (partial(MOMENTUM, dampening=0.5), False),
        (partial(MOMENTUM, nesterov=True), True),
        (ADAM, True),
        (partial(optim.AdamW, lr=0.1), True),
        (partial(optim.NAdam, lr=0.1), False),
        (partial(optim.Rprop, lr=0.1), False),
    ],
)
def test_whether_a_zeroed_state_is_a_fresh_one(factory, expected):
    assert zeroed_is_fresh(factory) is expected


@pytest.mark.parametrize("factory", [MOMENTUM, ADAM])
def test_a_prefix_goes_on_where_the_whole_was(factory):
    """Against optimisers of each row of its own."""
    torch.manual_seed(1)
    start, gradients = torch.randn(3, 4), torch.randn(4, 3, 4)
    values = start.clone()
    whole = StackedOptimizer(factory, {"w": values})
    for step in range(2):
        whole.step({"w": gradients[step]})
    part = whole.prefix(2)
    for step in range(2, 4):
        part.step({"w": gradients[step, :2]})
    for row, steps in enumerate((4, 4, 2)):
        own = torch.nn.Parameter(start[row].clone())
        optimizer = factory([own])
        for step in range(steps):
            own.grad = gradients[step, row]
            optimizer.step()
        torch.testing.assert_close(values[row], own.detach(), atol=1e-7, rtol=0)


def test_a_leaf_without_gradient_is_left_alone():
    values = {"a": torch.ones(2, 3), "b": torch.ones(2)}
    optimizer = StackedOptimizer(partial(SGD, weight_decay=0.5), values)
    optimizer.step({"a": torch.zeros(2, 3), "b": None})
    assert (values["a"] == 0.95).all()
    assert (values["b"] == 1).all()

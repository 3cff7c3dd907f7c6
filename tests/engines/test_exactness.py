"""What the vectorized engine refuses, and why."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from engine_cases import KERNELS, Net, case
from helpers import TinyNet
from torch import nn
from torch.nn import functional as F

from cwfed.clients import TrainingPhase
from cwfed.engines.vectorized.exactness import reason_against
from cwfed.objectives import (
    WDR,
    ClassifierVariance,
    EncoderUniformity,
    Objective,
    ObjectiveTerm,
    Proximal,
)

PHASES = [TrainingPhase(), TrainingPhase(trainable="head"), TrainingPhase(trainable="base")]


def reason(c, kernel="grouped", precision="64-true", **changes):
    return reason_against(replace(c.workload, **changes), c.phases, precision, kernel)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("phase", PHASES)
def test_nothing_against_what_is_shipped(phase, kernel):
    terms = [WDR(), Proximal(0.1), ClassifierVariance(), EncoderUniformity()]
    c = case(objectives=terms, phase=phase)
    before = {name: value.clone() for name, value in c.workload.model.state_dict().items()}
    generator = torch.get_rng_state()
    assert reason(c, kernel) is None
    assert torch.equal(torch.get_rng_state(), generator)
    for name, value in c.workload.model.state_dict().items():
        assert torch.equal(value, before[name])


def test_compares_without_tf32_and_leaves_the_switches_alone(monkeypatch):
    c = case()
    seen = set()

    def switches():
        return torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32

    class Watching(ObjectiveTerm):
        weight = 1.0

        def value(self, step, client):
            seen.add(switches())
            return step.logits_BK.sum()

    watched = Objective([*c.objective.terms, Watching()])
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    assert reason_against(c.workload, [(TrainingPhase(), watched)], "32-true") is None
    assert seen == {("highest", False)}
    assert switches() == ("highest", True)


class Branching(Net):
    """Decides by a number, which stacked clients do not share."""

    def forward(self, x):
        return super().forward(x if x.mean() > 0 else -x)


class CumulativeNorm(Net):
    """BatchNorm with a plain mean of the batches asks for the number of batches."""

    def __init__(self, num_classes, in_channels, image_size):
        super().__init__(num_classes, in_channels, image_size)
        self.norm = nn.BatchNorm2d(4, momentum=None)


class OtherWhenStacked(Net):
    """Finds out that it is stacked, and computes something else."""

    def forward(self, x):
        factor = 1.01 if torch._C._functorch.is_batchedtensor(x) else 1.0
        return factor * super().forward(x)


class FirstWeightsWhenStacked(Net):
    """Finds out that it is stacked, and takes the first client's output layer for all."""

    def forward(self, x):
        x = self.hidden(torch.relu(self.norm(self.conv(x))).flatten(1))
        weight = self.out.weight
        if torch._C._functorch.is_batchedtensor(weight):
            weight = torch._C._functorch.get_unwrapped(weight)[0]
        return self.out(x) + (F.linear(x, weight) - F.linear(x, self.out.weight)).detach()


class OtherBuffersWhenStacked(Net):
    """The same, in a buffer only."""

    def __init__(self, num_classes, in_channels, image_size):
        super().__init__(num_classes, in_channels, image_size)
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x):
        self.seen += torch._C._functorch.is_batchedtensor(x)
        return super().forward(x)


class Selecting(ObjectiveTerm):
    """Selects a number of samples that differs from client to client."""

    weight = 1.0

    def value(self, step, client):
        return step.logits_BK[step.targets_B == 0].square().sum()


class Noisy(ObjectiveTerm):
    """Draws random numbers."""

    weight = 1.0

    def value(self, step, client):
        return (step.logits_BK * torch.rand_like(step.logits_BK)).mean()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"net": Branching}, "cannot be stacked (vmap: "),
        ({"net": CumulativeNorm}, "cannot be stacked (vmap: "),
        ({"objectives": [Selecting()]}, "cannot be stacked (vmap: "),
        ({"net": OtherWhenStacked}, "gives other numbers when it is stacked"),
        ({"net": FirstWeightsWhenStacked}, "gives other numbers when it is stacked"),
        ({"net": OtherBuffersWhenStacked}, "gives other numbers when it is stacked"),
    ],
)
def test_what_cannot_be_stacked_can_run_client_by_client(change, expected):
    c = case(**change)
    for kernel in ("grouped", "unfold"):
        found = reason(c, kernel)
        assert expected in found
        assert "\n" not in found
    assert reason(c, "streams") is None


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    "change", [{"net": partial(TinyNet, dropout=0.2)}, {"objectives": [Noisy()]}]
)
def test_random_numbers_in_training_are_refused(change, kernel):
    c = case(**change)
    generator = torch.get_rng_state()
    assert "draws random numbers" in reason(c, kernel)
    assert torch.equal(torch.get_rng_state(), generator)


@pytest.mark.parametrize("kernel", KERNELS)
def test_optimisers_and_precisions(kernel):
    c = case()
    assert "cannot be stacked" in reason(c, kernel, optimizer=torch.optim.LBFGS)
    adafactor = partial(torch.optim.Adafactor, lr=0.1)
    assert "one by one" in reason(c, kernel, optimizer=adafactor)
    assert "16-mixed" in reason(c, kernel, "16-mixed")
    assert "float64" in reason_against(c.workload, c.phases, "32-true", kernel, torch.device("mps"))


def test_clients_without_samples_have_nothing_against_them():
    c = case(partial(torch.optim.SGD, lr=0.1), net=partial(TinyNet, dropout=0.2))
    splits = [replace(s, train=s.train[:0]) for s in c.workload.data.manifest.clients]
    object.__setattr__(c.workload.data.manifest, "clients", tuple(splits))
    empty = replace(c.workload.data)
    assert reason(c, data=empty) is None

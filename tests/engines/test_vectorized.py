"""The stacked engine against the sequential one."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from engine_cases import KERNELS, assert_close, case
from helpers import TinyNet
from torch import nn

from cwfed.clients import TrainingPhase
from cwfed.engines.sequential import SequentialEngine
from cwfed.engines.vectorized import kernels
from cwfed.engines.vectorized.engine import VectorizedEngine
from cwfed.functional.stacking import take_rows
from cwfed.objectives import WDR, EncoderUniformity, Proximal

SGD, ADAM, ADAMW = torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW
OPTIMIZERS = {
    "momentum": partial(SGD, lr=0.05, momentum=0.9),
    "nesterov": partial(SGD, lr=0.05, momentum=0.9, nesterov=True),
    "decay": partial(SGD, lr=0.05, weight_decay=0.1),
    "dampening": partial(SGD, lr=0.05, momentum=0.9, dampening=0.5),
    "adam": partial(ADAM, lr=0.01, amsgrad=True),
    "adamw": partial(ADAMW, lr=0.01, weight_decay=0.1),
}


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_optimisers_with_a_memory_on_ragged_clients(optimizer, kernel):
    c = case(OPTIMIZERS[optimizer], objectives=[WDR(), Proximal(0.5), EncoderUniformity()])
    engine = c.stacked(kernel=kernel, chunk=4)
    for round_ in (1, 2):  # the second starts with fresh optimisers, too
        assert_close(c.fit(engine, round_=round_), c.fit(c.sequential, round_=round_))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("part", ["head", "base"])
def test_phases_train_their_part_only(part, kernel):
    phase = TrainingPhase(trainable=part, epochs=3, plan=2)
    c = case(OPTIMIZERS["decay"], phase)
    ours = c.fit(c.stacked(kernel=kernel))
    assert_close(ours, c.fit(c.sequential))
    for name in c.workload.contract.parameters:
        moved = (ours.models[name] != c.start[name]).any().item()
        assert moved == (name in phase.names(c.workload.contract))
    assert (ours.models["norm.num_batches_tracked"] > 0).any(), "buffers follow in every phase"


def test_participants_in_any_number_and_none():
    c = case()
    engine = c.stacked(chunk=3)
    for clients in ([2], [1, 5, 7], [5]):
        assert_close(c.fit(engine, clients), c.fit(c.sequential, clients))


def test_the_banks_are_not_written_to_and_results_are_values():
    c = case()
    before = {name: value.clone() for name, value in c.start.items()}
    engine = c.stacked()
    first = c.fit(engine)
    copy = {name: value.clone() for name, value in first.models.items()}
    c.fit(engine, round_=2)
    for name, value in before.items():
        assert torch.equal(c.start[name], value)
        assert torch.equal(first.models[name], copy[name])


@pytest.mark.parametrize("part", ["train", "test", "val"])
def test_scores_have_the_bits_of_the_sequential_engine(part):
    c = case(val_fraction=0.2)
    for clients in (range(8), [1, 4]):
        rows = take_rows(c.start, clients)
        ours = c.stacked().evaluate(clients, rows, part)
        assert torch.equal(ours, c.sequential.evaluate(clients, rows, part))
        assert ours.dtype == torch.float64
        assert ours[:, 1].sum() > 0


def test_class_means():
    c = case()
    means, counts = c.stacked().class_means(range(8), c.start)
    expected, expected_counts = c.sequential.class_means(range(8), c.start)
    assert torch.equal(counts, expected_counts)
    assert {0, 1} < set(counts.flatten().tolist())
    torch.testing.assert_close(means, expected, atol=1e-13, rtol=0)


def test_close_lets_go_and_the_engine_can_be_used_again():
    c = case()
    engine = c.stacked()
    before = c.fit(engine)
    engine.close()
    assert not {"_stack", "_data", "_scorer"} & engine.__dict__.keys()
    assert_close(c.fit(engine), before, 0)


class Unusual(TinyNet):
    """Buffers that are replaced instead of written to, a layer used twice, a parameter unused."""

    def __init__(self, num_classes, in_channels, image_size):
        super().__init__(num_classes, in_channels, image_size)
        self.conv = nn.Conv2d(in_channels, 4, 3, stride=(2, 1), padding=(1, 0), bias=False)
        self.grouped = nn.Conv2d(4, 4, 3, padding=1, groups=2)
        self.same = nn.Conv2d(4, 4, (1, 3), padding="same")
        self.dilated = nn.Conv2d(4, 4, (1, 2), dilation=2)
        self.register_buffer("seen", torch.zeros(1))
        self.never = nn.Parameter(torch.ones(2))
        side = (self.out.in_features, self.hidden.out_features)
        self.again = nn.Linear(*side)
        self.hidden = nn.LazyLinear(8)

    def forward(self, x):
        self.seen = self.seen + x.mean()
        x = torch.relu(self.norm(self.conv(x)))
        x = self.dilated(torch.relu(self.same(self.grouped(x)))).flatten(1)
        x = torch.relu(self.hidden(x))
        return self.out(torch.relu(self.again(torch.relu(self.again(x)))))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("optimizer", ["decay", "adam"])
def test_an_unusual_model(optimizer, kernel):
    """Weight decay must not reach a parameter without a gradient, as with one client."""
    c = case(OPTIMIZERS[optimizer], net=Unusual)
    ours = c.fit(c.stacked(kernel=kernel, chunk=5))
    assert_close(ours, c.fit(c.sequential))
    assert torch.equal(ours.models["never"], c.start["never"])
    assert not torch.equal(ours.models["seen"], c.start["seen"])


PRECISIONS = set()


class WatchesTypes(TinyNet):
    """Notes the precision in which its layers compute."""

    def forward(self, x):
        convolved = self.conv(x)
        normalised = self.norm(convolved)
        hidden = self.hidden(torch.relu(normalised).flatten(1))
        PRECISIONS.update((convolved.dtype, normalised.dtype, hidden.dtype))
        return self.out(torch.relu(hidden))


@pytest.mark.parametrize("kernel", KERNELS)
def test_bf16_is_that_of_lightning(kernel):
    c = case(OPTIMIZERS["momentum"], net=WatchesTypes, precision="bf16-mixed")
    engine = c.stacked(kernel=kernel, chunk=8)
    PRECISIONS.clear()
    ours = c.fit(engine)
    assert {torch.bfloat16} == PRECISIONS
    theirs = c.fit(c.sequential)
    assert_close(ours, theirs, 0 if kernel == "streams" else 0.05)
    assert ours.models["conv.weight"].dtype == torch.float32
    ours = c.stacked().evaluate(range(8), theirs.models, "test")
    assert torch.equal(ours, c.sequential.evaluate(range(8), theirs.models, "test"))


@pytest.mark.parametrize("kernel", KERNELS)
def test_only_unfold_replaces_convolutions(kernel, monkeypatch):
    replaced = []
    convolution = kernels._convolution
    monkeypatch.setattr(
        kernels, "_convolution", lambda *args: (replaced.append(args), convolution(*args))[1]
    )
    c = case(epochs=1)
    c.fit(c.stacked(kernel=kernel), [6])
    assert bool(replaced) == (kernel == "unfold")


def test_channels_last_is_followed_client_by_client():
    c = case(OPTIMIZERS["momentum"], net=Unusual, channels=3)
    workload = replace(c.workload, memory_format="channels_last")
    reference = SequentialEngine(workload, "cpu", "64-true")
    engine = VectorizedEngine(workload, "cpu", "64-true", kernel="streams")
    seen = []
    hook = workload.model.conv.register_forward_pre_hook(
        lambda module, inputs: seen.append((module.weight, inputs[0]))
    )
    ours = c.fit(engine, [0, 2])
    hook.remove()
    for tensors in seen:
        assert all(t.is_contiguous(memory_format=torch.channels_last) for t in tensors)
        assert not any(t.is_contiguous() for t in tensors)
    assert_close(ours, c.fit(reference, [0, 2]))
    assert all(value.is_contiguous() for value in ours.models.values())
    rows = take_rows(c.start, [0, 2])
    scores = engine.evaluate([0, 2], rows, "test")
    torch.testing.assert_close(scores, reference.evaluate([0, 2], rows, "test"))


def test_ctrl_c_reaches_the_loop():
    c = case()
    engine = c.stacked()

    def interrupted(*_):
        raise KeyboardInterrupt

    engine.load = interrupted
    with pytest.raises(KeyboardInterrupt):
        c.fit(engine)

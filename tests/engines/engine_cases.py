"""What tests of engines share: one round's local training on the small problem, by any engine."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import torch
from helpers import TinyNet, small_experiment
from torch import nn

from cwfed.clients import TrainingPhase
from cwfed.data.partitioners import Partitioner
from cwfed.data.sources import SyntheticImages
from cwfed.engines.vectorized.engine import VectorizedEngine
from cwfed.federated import LocalTraining, TrainerOptions
from cwfed.federated.clients import cohort_rows

KERNELS = ("grouped", "unfold", "streams")


class Net(TinyNet):
    """Without the bias before BatchNorm: its gradient is rounding, which Adam would enlarge."""

    def __init__(self, num_classes, in_channels, image_size):
        super().__init__(num_classes, in_channels, image_size)
        self.conv = nn.Conv2d(in_channels, 4, 3, stride=2, bias=False)


class Sizes(Partitioner):
    """Gives client i the next ``sizes[i]`` images."""

    def __init__(self, *sizes):
        self.sizes = sizes
        self.num_clients = len(sizes)

    def split(self, labels_N, num_classes, seed):
        ends = torch.tensor(self.sizes).cumsum(0).tolist()
        order = torch.randperm(len(labels_N), generator=torch.Generator().manual_seed(1)).numpy()
        return [order[end - size : end] for end, size in zip(ends, self.sizes, strict=True)]


RAGGED = Sizes(44, 8, 20, 3, 32, 9, 20, 24)
EMPTY = 5
"""Training parts of 33, 6, 15, 2, 24, 0, 15 and 18 samples for batches of 8."""


def case(
    optimizer=None,
    phase=None,
    objectives=None,
    net=Net,
    epochs=2,
    precision="64-true",
    partition=RAGGED,
    samples=40,
    channels=1,
    **changes,
):
    """Return a workload, a phase with its objective, banks and a way to make engines."""
    optimizer = optimizer or partial(torch.optim.SGD, lr=0.05)
    prepared = small_experiment(
        partition=partition,
        data=SyntheticImages(
            num_classes=4, samples_per_class=samples, image_size=8, channels=channels
        ),
        client=LocalTraining(batch_size=8, local_epochs=epochs, optimizer=optimizer),
        objectives=objectives,
        model=net,
        trainer=TrainerOptions("cpu", precision, engine="sequential", memory_format="contiguous"),
        **changes,
    ).prepare()
    splits = list(prepared.data.manifest.clients)
    everything = np.sort(np.concatenate([splits[EMPTY].train, splits[EMPTY].test]))
    splits[EMPTY] = replace(splits[EMPTY], train=everything[:0], test=everything)
    manifest = replace(prepared.data.manifest, clients=tuple(splits))
    prepared.data = replace(prepared.data, manifest=manifest)
    loop = prepared.loop()
    start = {n: v.clone() for n, v in prepared.initialisation().items()}
    generator = torch.Generator().manual_seed(2)
    for value in start.values():
        if value.is_floating_point():
            value += 0.1 * torch.rand(value.shape, generator=generator, dtype=value.dtype)
    anchors = {n: v.roll(1, 0) for n, v in start.items()}
    phase = phase or TrainingPhase()
    return SimpleNamespace(
        prepared=prepared,
        workload=loop.engine.workload,
        objective=loop.phases[0][1],
        phases=[(phase, loop.phases[0][1])],
        sequential=loop.engine,
        stacked=partial(VectorizedEngine, loop.engine.workload, "cpu", precision),
        start=start,
        anchors=anchors,
        fit=lambda engine, clients=range(8), round_=1, phase=phase: engine.fit(
            round_, clients, *cohort_rows(start, anchors, clients), phase, loop.phases[0][1]
        ),
    )


def assert_close(ours, reference, tolerance=1e-12):
    """Assert that two outcomes of local training agree."""
    torch.testing.assert_close(
        torch.tensor(ours.losses),
        torch.tensor(reference.losses),
        atol=tolerance,
        rtol=0,
        equal_nan=True,
    )
    assert ours.models.keys() == reference.models.keys()
    for name, value in reference.models.items():
        torch.testing.assert_close(
            ours.models[name], value, atol=tolerance, rtol=0, msg=lambda m, n=name: f"{n}: {m}"
        )

"""Small experiments for tests."""

import json
from functools import partial

import torch
from torch import nn

from cwfed.aggregators import CwFedAvg
from cwfed.data.partitioners import Dirichlet
from cwfed.data.sources import SyntheticImages
from cwfed.federated import Algorithm, LocalTraining, LoopCallback, TrainerOptions
from cwfed.objectives import WDR
from cwfed.records.files import write_sealed
from cwfed.records.round_lines import line_text, read_lines
from cwfed.runs import Experiment

SMALL_FIT = {
    "data": {
        "class_path": "SyntheticImages",
        "init_args": {"image_size": 16, "samples_per_class": 20},
    },
    "partition": {"num_clients": 4},
    "model": {"hidden_features": 8},
    "progress": False,
}
"""Options of `cwfed.fit` for a run of seconds."""


class TinyNet(nn.Module):
    """Convolution, BatchNorm, dropout and two linear layers: one of everything, small."""

    head_name = "out"

    def __init__(self, num_classes, in_channels, image_size, dropout=0.0):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, 4, 3, stride=2)
        self.norm = nn.BatchNorm2d(4)
        self.dropout = nn.Dropout(dropout)
        side = (image_size - 3) // 2 + 1
        self.hidden = nn.Linear(4 * side * side, 8)
        self.out = nn.Linear(8, num_classes)

    def forward(self, x):
        x = torch.relu(self.norm(self.conv(x))).flatten(1)
        return self.out(torch.relu(self.hidden(self.dropout(x))))


def small_experiment(aggregator=None, objectives=None, **changes):
    settings = {
        "data": SyntheticImages(num_classes=4, samples_per_class=40, image_size=8),
        "partition": Dirichlet(num_clients=5, alpha=0.3),
        "model": partial(TinyNet, dropout=changes.pop("dropout", 0.2)),
        "algorithm": Algorithm(
            "test", aggregator or CwFedAvg(), [WDR()] if objectives is None else objectives
        ),
        "rounds": 3,
        "wdr_lambda": 2.0,
        "client": LocalTraining(
            batch_size=8, optimizer=lambda params: torch.optim.SGD(params, lr=0.05)
        ),
        "trainer": TrainerOptions(accelerator="cpu", precision="64-true", engine="sequential"),
    }
    return Experiment(**settings | changes)


class Keep(LoopCallback):
    """Keeps what a loop tells its callbacks."""

    def __init__(self):
        self.records, self.states = [], []

    def on_round(self, record, state):
        self.records.append(record)
        self.states.append(state)


def run(experiment, callbacks=(), state=None):
    prepared = experiment.prepare()
    loop = prepared.loop(callbacks)
    return loop.run(state or loop.initial_state(prepared.initialisation()))


def assert_same(a, b):
    """Assert that two mappings of tensors are equal to the bit."""
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name


def read_rounds_of(folder):
    """Return the rounds of a run folder, their checksums checked and aside."""
    return read_lines(folder / "rounds.jsonl")


def write_rounds(folder, lines):
    """Write rounds into a run folder as a run would."""
    (folder / "rounds.jsonl").write_text("".join(map(line_text, lines)))


def change_json(path, **changes):
    """Change fields of a JSON file that has a checksum, as its writer would."""
    write_sealed(path, json.loads(path.read_text()) | changes)

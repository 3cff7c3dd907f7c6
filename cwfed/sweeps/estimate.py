"""Estimates the time of a job: from finished jobs where there are some, else from its arithmetic.

Legend: M clients, D parameters.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from importlib import import_module
from statistics import median
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from cwfed.contract.inspection import build_model
from cwfed.sweeps.jobs import Job
from cwfed.sweeps.profiles import SHAPES, Shape

_FLOPS_PER_SECOND = 10e9
"""Of one core on small batches, overheads included: a guess until a first job has finished."""

_BANKS = 5
"""Models of every client that a run holds at its peak: received, uploads, mixed, saved, scored."""

_PROCESS_BYTES = 700e6
_TRAINED = 0.75


class Estimator:
    """Estimates seconds of jobs, better with each finished one.

    Args:
        lines: Lines of the ledger and of other finished runs.
    """

    def __init__(self, lines: Iterable[Mapping[str, Any]] = ()) -> None:
        self._measured: dict[str, float] = {}
        self._rates: list[float] = []
        self._sizes: dict[str, tuple[float, float]] = {}
        for line in lines:
            self.learn(line)

    def learn(self, line: Mapping[str, Any]) -> None:
        """Take a finished run into account."""
        seconds = line["metrics"].get("seconds")
        if not seconds or not line["rounds"]:
            return
        per_round = seconds / line["rounds"]
        self._measured[line["cell"]] = per_round
        work = self._size(line["cell"], line["config"])[0]
        if work:
            self._rates.append(per_round / work)

    def seconds(self, job: Job) -> float:
        """Return the seconds that a job takes from its start."""
        per_round = self._measured.get(job.cell)
        if per_round is None:
            work = self._size(job.cell, job.config)[0]
            per_round = work * (median(self._rates) if self._rates else 1 / _FLOPS_PER_SECOND)
        return per_round * job.rounds

    def memory(self, job: Job) -> float:
        """Return about how many bytes of memory a job takes at its peak."""
        return self._size(job.cell, job.config)[1]

    def _size(self, cell: str, config: Mapping[str, Any]) -> tuple[float, float]:
        if cell not in self._sizes:
            self._sizes[cell] = measure(config)
        return self._sizes[cell]


def measure(config: Mapping[str, Any]) -> tuple[float, float]:
    """Return floating point operations a round and bytes at the peak; 0 operations if unknown.

    Args:
        config: A resolved configuration.
    """
    shape = _shape(config["data"])
    if shape is None:
        return 0.0, _PROCESS_BYTES
    model, flops = _model_cost(config["model"], shape)
    numbers = sum(value.numel() for value in model.state_dict().values())
    clients = config["partition"]["init_args"].get("num_clients", 1)
    epochs = _epochs(config)
    steps = shape.samples * _TRAINED * epochs * config["participation"]
    # Scoring what was received and what was trained: forward passes over the test parts.
    scoring = 2 * shape.samples * (1 - _TRAINED) / 3
    return flops * (steps + scoring), _PROCESS_BYTES + 4 * numbers * clients * _BANKS


def _shape(data: Mapping[str, Any]) -> Shape | None:
    arguments = data.get("init_args") or {}
    if data["class_path"].endswith("SyntheticImages"):
        classes = arguments["num_classes"]
        return Shape(
            classes * arguments["samples_per_class"],
            classes,
            arguments["channels"],
            arguments["image_size"],
        )
    return SHAPES.get(data["class_path"].rpartition(".")[2])


def _model_cost(choice: Mapping[str, Any], shape: Shape) -> tuple[torch.nn.Module, float]:
    """Count a forward and a backward pass of one image, without computing anything."""
    module, _, name = choice["class_path"].rpartition(".")
    factory = partial(getattr(import_module(module), name), **(choice.get("init_args") or {}))
    images = (shape.channels, shape.side, shape.side)
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        model = build_model(factory, images, shape.classes)
        model(torch.empty(2, *images)).sum().backward()
    return model, counter.get_total_flops() / 2


def _epochs(config: Mapping[str, Any]) -> int:
    client = config["client"]
    given = {"head": client.get("head_epochs")}
    phases = config["algorithm"].get("phases") or [{}]
    return sum(
        given.get(phase.get("trainable")) or phase.get("epochs") or client["local_epochs"]
        for phase in phases
    )


def clock(seconds: float) -> str:
    """Return a duration for people: ``45 s``, ``12 min``, ``3 h 20 min``, ``2 days 4 h``."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    if minutes < 90:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {rest} min"
    return f"{hours // 24} days {hours % 24} h"

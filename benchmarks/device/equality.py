"""Compares the engines on this machine's device: the first part of `benchmarks.device`.

``python -m benchmarks.device.equality -o OUT`` runs small federations on generated images, with
clients of unequal sizes, by the sequential engine and by each variant of the vectorized one, and
compares all that a round leaves behind. In float64 a difference above the tolerance is a FAIL and
the exit code 1; float32 (without TF32, on a GPU only) is shown and not judged, since rounding
differs from kernel to kernel.
"""

import argparse
import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cwfed.aggregators import CwFedAvg, FedAvg, FedNH
from cwfed.clients import OptimizerFactory, TrainingPhase
from cwfed.data.partitioners import Partitioner
from cwfed.data.sources import SyntheticImages
from cwfed.engines import SequentialEngine, VectorizedEngine
from cwfed.engines.base import Engine, Precision
from cwfed.engines.vectorized.timing import VARIANTS, Variant
from cwfed.federated import (
    Algorithm,
    FederatedState,
    LocalTraining,
    LoopCallback,
    TrainerOptions,
)
from cwfed.models import PrototypeHead
from cwfed.objectives import WDR, Proximal
from cwfed.runs import Experiment, PreparedRun
from cwfed.sweeps.deadline import Deadline, duration, process_age

SIZES = (72, 15, 40, 8, 56, 25, 40)
"""Samples of each client; a fourth are for testing, and a batch has 8."""

TOLERANCE = 1e-9
_CHUNK = 3
_SHARE = 0.85
"""Of the time: nothing is begun later, since it may take a while."""


class SmallNet(nn.Module):
    """Convolution without bias, BatchNorm, and two linear layers.

    A bias before BatchNorm has no gradient but rounding, which Adam would enlarge.
    """

    head_name = "head"

    def __init__(self, num_classes: int, in_channels: int, image_size: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels, 6, 3, stride=2, bias=False)
        self.norm = nn.BatchNorm2d(6)
        self.hidden = nn.Linear(6 * ((image_size - 1) // 2) ** 2, 16)
        self.head = nn.Linear(16, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Map images ``[B, C, H, W]`` to logits ``[B, K]``."""
        x = F.relu(self.norm(self.conv(images))).flatten(1)
        logits: Tensor = self.head(F.relu(self.hidden(x)))
        return logits


class Ragged(Partitioner):
    """Gives client i the next ``SIZES[i]`` images of a shuffled data set."""

    num_clients = len(SIZES)

    def split(self, labels_N: Tensor, num_classes: int, seed: int) -> list[np.ndarray]:
        """See `Partitioner.split`."""
        order = np.random.Generator(np.random.PCG64(seed)).permutation(len(labels_N))
        return [np.sort(part) for part in np.split(order, np.cumsum(SIZES)[:-1])]


@dataclass(frozen=True)
class Method:
    """A model and its optimiser."""

    algorithm: Callable[[], Algorithm]
    optimizer: OptimizerFactory = lambda params: torch.optim.SGD(params, lr=0.05)


def _ditto() -> Algorithm:
    personal = TrainingPhase("personal", "personal", objectives=[Proximal(0.1)])
    return Algorithm("ditto", FedAvg(), phases=[TrainingPhase(), personal])


METHODS = {
    "fedavg, momentum": Method(
        lambda: Algorithm("fedavg", FedAvg()), partial(torch.optim.SGD, lr=0.05, momentum=0.9)
    ),
    "cwfedavg, WDR": Method(lambda: Algorithm("cwfedavg", CwFedAvg(), [WDR(2.0)])),
    "ditto, two phases": Method(_ditto),
    "fednh, prototypes": Method(lambda: Algorithm("fednh", FedNH(), head=PrototypeHead())),
    "fedavg, Adam": Method(
        lambda: Algorithm("fedavg", FedAvg()), partial(torch.optim.Adam, lr=0.01)
    ),
}


class _Watch(LoopCallback):
    """Counts captured steps while the engine still has them."""

    captured = 0

    def on_end(self, state: FederatedState) -> None:
        """Count."""
        engine = self.engine
        self.captured = engine.captured if isinstance(engine, VectorizedEngine) else 0

    def __init__(self, engine: Engine) -> None:
        self.engine = engine


@dataclass(frozen=True)
class Line:
    """A row of the table: one variant of the vectorized engine against the sequential one."""

    method: str
    variant: Variant
    capture: bool
    precision: Precision
    captured: int
    difference: float

    def verdict(self, tolerance: float) -> str:
        """Return PASS, FAIL, or a dash where differences are not judged."""
        if self.precision != "64-true":
            return "-"
        return "PASS" if self.difference <= tolerance else "FAIL"

    def markdown(self, tolerance: float) -> str:
        """Return the row."""
        steps = f"{self.captured} graphs" if self.captured else "none"
        wanted = "captured" if self.capture else "eager"
        cells = [self.method, *self.variant, self.precision, wanted, steps]
        return f"| {' | '.join(cells)} | {self.difference:.1e} | {self.verdict(tolerance)} |\n"


HEADER = (
    "| method | kernel | layout | precision | steps asked for | CUDA graphs | "
    "largest difference | verdict |\n|---|---|---|---|---|---|---|---|\n"
)


def prepare(name: str, precision: Precision, device: str, rounds: int) -> PreparedRun:
    """Return a run of one of `METHODS`."""
    method = METHODS[name]
    return Experiment(
        SyntheticImages(4, sum(SIZES) // 4, 8, 3),
        Ragged(),
        SmallNet,
        method.algorithm(),
        rounds=rounds,
        client=LocalTraining(8, 1, method.optimizer),
        trainer=TrainerOptions(device, precision, engine="sequential"),
    ).prepare()


def final_state(run: PreparedRun, engine: Engine) -> tuple[FederatedState, int]:
    """Return what the last round leaves, and how many steps were captured."""
    watch = _Watch(engine)
    loop = run.loop([watch])
    loop.engine = engine
    return loop.run(loop.initial_state(run.initialisation())), watch.captured


def largest_difference(a: FederatedState, b: FederatedState) -> float:
    """Return the largest difference of two states: models, the server's tensors, scores.

    Infinite where only one of two numbers is finite.
    """
    worst = 0.0
    for field in ("uploads", "received", "anchors", "personal", "server", "post_local"):
        ours, theirs = getattr(a, field), getattr(b, field)
        for name in theirs:
            x, y = ours[name].double(), theirs[name].double()
            difference = torch.where((x == y) | (x.isnan() & y.isnan()), 0.0, (x - y).abs())
            worst = max(worst, difference.nan_to_num(torch.inf).max().item())
    return worst


def compare(
    run: PreparedRun, reference: FederatedState, name: str, variant: Variant, *, capture: bool
) -> Line:
    """Return the line of one variant of the vectorized engine."""
    device, precision = run.trainer.accelerator, run.trainer.precision
    work = replace(run.workload(), memory_format=variant[1])
    engine = VectorizedEngine(work, device, precision, kernel=variant[0], chunk=_CHUNK)
    engine.capture = engine.capture if capture else None
    state, captured = final_state(run, engine)
    difference = largest_difference(state, reference)
    return Line(name, variant, capture, precision, captured, difference)


def main(arguments: Sequence[str] | None = None, age: float = 0.0) -> int:
    """Compare, print and write ``equality.md``; return 1 if something is not equal or fails."""
    options = _parser().parse_args(arguments)
    deadline = Deadline(_SHARE * options.seconds, age)
    logging.basicConfig(stream=sys.stdout, format="%(name)s: %(message)s")
    torch.set_num_threads(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    precisions: tuple[Precision, ...] = ("64-true", "32-true") if device == "cuda" else ("64-true",)
    rounds = 2 if options.toy else 3
    with (options.output / "equality.md").open("w", encoding="utf-8") as file:

        def say(text: str) -> None:
            for stream in (file, sys.stdout):
                stream.write(text)
                stream.flush()

        say(f"Sequential against vectorized engine on {describe_device()}.\n\n{HEADER}")
        codes = [
            _judge(prepare(name, precision, device, rounds), name, options, deadline, say)
            for precision in precisions
            for name in METHODS
        ]
    return max(codes)


def _judge(
    run: PreparedRun,
    name: str,
    options: argparse.Namespace,
    deadline: Deadline,
    say: Callable[[str], None],
) -> int:
    """Write a method's lines, on a GPU captured and eager; return 1 if one fails."""
    device, precision = run.trainer.accelerator, run.trainer.precision
    variants = VARIANTS[:2] if options.toy else VARIANTS
    captures = (True, False) if device == "cuda" else (False,)
    reference, _ = final_state(run, SequentialEngine(run.workload(), device, precision))
    code = 0
    for variant, capture in product(variants, captures):
        if deadline.left() < 0:
            say(f"| {name} | {' | '.join(variant)} | {precision} | no time is left | | | |\n")
            continue
        try:
            line = compare(run, reference, name, variant, capture=capture)
        except Exception as error:  # a kernel can fail in many ways on a device never seen before
            what = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            say(f"| {name} | {' | '.join(variant)} | {precision} | {what} | | | FAIL |\n")
            code = 1
            continue
        say(line.markdown(options.tolerance))
        code = max(code, int(line.verdict(options.tolerance) == "FAIL"))
    return code


def describe_device() -> str:
    """Return the device and the versions that decide its numbers."""
    if not torch.cuda.is_available():
        return f"the CPU, torch {torch.__version__}"
    cudnn = torch.backends.cudnn.version()
    name = torch.cuda.get_device_name()
    return f"{name}, torch {torch.__version__}, CUDA {torch.version.cuda}, cuDNN {cudnn}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.device.equality", description=__doc__
    )
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--seconds", type=duration, default=600.0, help="time for all of it")
    parser.add_argument("--tolerance", type=float, default=TOLERANCE)
    parser.add_argument("--toy", action="store_true")
    return parser


if __name__ == "__main__":
    sys.exit(main(age=process_age()))

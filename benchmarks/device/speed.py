"""Times training steps on this machine's device: the second part of `benchmarks.device`.

``python -m benchmarks.device.speed --setting cnn4_20 -o OUT`` times stacked steps by each variant
of the vectorized engine, a few clients by the sequential engine, and a plain PyTorch loop over the
same clients, on generated images. Rows go to ``speed.md`` and ``speed.jsonl`` as they come.

Shares of the peak: the least work of a step (`benchmarks.device.limits.step_cost`) times the
clients, over the time, over what the device reaches on one large product and one large copy.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.device.equality import describe_device
from benchmarks.device.limits import Cost, Peak, measure_peak, now, step_cost
from cwfed.aggregators import FedAvg
from cwfed.data.partitioners import IID
from cwfed.data.sources import SyntheticImages
from cwfed.engines import SequentialEngine, VectorizedEngine
from cwfed.engines.base import MatmulPrecision
from cwfed.engines.precision import matmul_precision
from cwfed.engines.vectorized.resident import ResidentData
from cwfed.engines.vectorized.timing import VARIANTS, Variant, step_seconds
from cwfed.federated import Algorithm, LocalTraining, TrainerOptions
from cwfed.functional.stacking import take_rows
from cwfed.models import CNN4, ResNet18
from cwfed.records.atomic import append_atomic
from cwfed.runs import Experiment, PreparedRun
from cwfed.sweeps.deadline import Deadline, duration, process_age

BATCH = 10
PLAIN = "plain PyTorch loop"
_SHARE = 0.85
"""Of the time: nothing is begun later, since it may take a while."""

_ALONE = 4
"""Clients that loops over clients are timed with; they pay the same for each."""


@dataclass(frozen=True)
class Setting:
    """A setting to be trained.

    Attributes:
        model: The network.
        classes: K.
        size: Height and width of the images.
        clients: M.
        steps: Steps that are timed.
    """

    model: Callable[..., nn.Module]
    classes: int
    size: int
    clients: int
    steps: int = 20

    def prepare(self, device: str) -> PreparedRun:
        """Return a run of FedAvg with as many training batches a client as there are steps."""
        # A fourth is for testing.
        samples = self.clients * -(-self.steps * BATCH * 4 // 3) + self.clients
        return Experiment(
            SyntheticImages(self.classes, -(-samples // self.classes), self.size, 3),
            IID(self.clients),
            self.model,
            Algorithm("fedavg", FedAvg()),
            client=LocalTraining(BATCH, 1),
            trainer=TrainerOptions(device, engine="sequential"),
        ).prepare()


SETTINGS: Mapping[str, Setting] = {
    "cnn4_20": Setting(CNN4, 100, 32, 20),
    "cnn4_100": Setting(CNN4, 100, 32, 100),
    "resnet18_20": Setting(ResNet18, 200, 64, 20),
    "toy": Setting(CNN4, 4, 16, 3, 2),
}

HEADER = (
    "| setting | products | how | clients at once | CUDA graphs | ms a step of all of them | "
    "client-steps a second | plain loop = 1 | of peak FLOP/s | of peak bandwidth |\n"
    f"|{'---|' * 10}\n"
)


@dataclass(frozen=True)
class Row:
    """One way of training, measured.

    Attributes:
        how: Engine and variant.
        clients: Clients that a step trains.
        graphs: Captured CUDA graphs.
        seconds: Of one step of those clients.
    """

    how: str
    clients: int
    graphs: int
    seconds: float


def plain_loop(run: PreparedRun, device: torch.device, steps: int) -> Row:
    """Time client after client in plain PyTorch, on images that are on the device already."""
    data = ResidentData(run.data, device)
    clients = range(min(_ALONE, run.data.num_clients))
    model = run.workload().model.to(device).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.005)

    plans = [run.data.training_loader(client, 1).plan[:steps] for client in clients]
    indices = [index.to(device) for plan in plans for index in plan]

    def train() -> None:
        for index in indices:
            images, targets = data.batch(index)
            optimizer.zero_grad()
            F.cross_entropy(model(images), targets).backward()
            optimizer.step()

    train()
    start = now(device)
    train()
    return Row(PLAIN, 1, 0, (now(device) - start) / len(indices))


def sequential(run: PreparedRun, products: MatmulPrecision) -> Row:
    """Time a few clients' Lightning fits."""
    engine = SequentialEngine(run.workload(), run.trainer.accelerator, matmul_precision=products)
    clients = range(min(_ALONE, run.data.num_clients))
    bank = take_rows(run.initialisation(), clients)
    (phase, objective) = run.experiment.phases[0]
    steps = sum(len(run.data.training_loader(client, 1).plan) for client in clients)

    def fit() -> None:
        engine.fit(1, clients, bank, bank, phase, objective)

    fit()
    device = torch.device(run.trainer.accelerator)
    start = now(device)
    fit()
    return Row("sequential engine", 1, 0, (now(device) - start) / steps)


def vectorized(run: PreparedRun, products: MatmulPrecision, variant: Variant, steps: int) -> Row:
    """Time the steps of as many stacked clients as fit."""
    kernel, memory_format = variant
    work = replace(run.workload(), memory_format=memory_format)
    engine = VectorizedEngine(
        work, run.trainer.accelerator, matmul_precision=products, kernel=kernel
    )
    try:
        seconds = step_seconds(engine, *run.experiment.phases[0], steps)
        assert engine.chunk is not None
        clients = min(engine.chunk, run.data.num_clients)
        return Row(f"{kernel}, {memory_format}", clients, engine.captured, seconds)
    finally:
        engine.close()


def measurements(
    setting: Setting, run: PreparedRun, products: MatmulPrecision, variants: Sequence[Variant]
) -> Iterator[tuple[str, Callable[[], Row]]]:
    """Yield what to measure, the plain loop first."""
    device = torch.device(run.trainer.accelerator)
    yield PLAIN, partial(plain_loop, run, device, setting.steps)
    for variant in variants:
        yield ", ".join(variant), partial(vectorized, run, products, variant, setting.steps)
    yield "sequential engine", partial(sequential, run, products)


def describe(row: Row, plain: Row | None, cost: Cost, peak: Peak) -> dict[str, Any]:
    """Return a row's figures by name."""
    rate = row.clients / row.seconds
    return {
        "how": row.how,
        "clients": row.clients,
        "cuda_graphs": row.graphs,
        "step_seconds": row.seconds,
        "client_steps_per_second": rate,
        "over_plain_loop": rate * plain.seconds if plain else None,
        "share_of_peak_flops": rate * cost.flops / peak.flops,
        "share_of_peak_bandwidth": rate * cost.bytes / peak.bandwidth,
    }


def markdown(name: str, products: str, figures: Mapping[str, Any]) -> str:
    """Return a line of ``speed.md``."""
    ratio = figures["over_plain_loop"]
    cells = [
        name,
        products,
        figures["how"],
        str(figures["clients"]),
        str(figures["cuda_graphs"] or "none"),
        f"{1000 * figures['step_seconds']:.3f}",
        f"{figures['client_steps_per_second']:.0f}",
        "n/a" if ratio is None else f"{ratio:.2f} x",
        f"{figures['share_of_peak_flops']:.1%}",
        f"{figures['share_of_peak_bandwidth']:.1%}",
    ]
    return f"| {' | '.join(cells)} |\n"


def measure(
    name: str, products: MatmulPrecision, run: PreparedRun, options: argparse.Namespace
) -> int:
    """Measure and write the rows at one precision of products; return 1 if one failed."""
    setting, device, code = SETTINGS[name], torch.device(run.trainer.accelerator), 0
    peak, cost = measure_peak(device, toy=options.toy), cost_of(run, device)
    about = {"setting": name, "products": products, "device": describe_device()}
    figures_file = options.output / "speed.jsonl"
    _append(figures_file, {**about, "peak": asdict(peak), "step": asdict(cost)})
    plain: Row | None = None
    variants = VARIANTS[1:3] if options.toy else VARIANTS
    for how, call in measurements(setting, run, products, variants):
        if options.deadline.left() < 0:
            write(options.output, f"| {name} | {products} | {how}: no time is left |{' |' * 7}\n")
            continue
        try:
            row = call()
        except Exception as error:  # a kernel can fail in many ways on a device never seen before
            text = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            write(options.output, f"| {name} | {products} | {how} failed: {text} |{' |' * 7}\n")
            code = 1
            continue
        plain = row if how == PLAIN else plain
        figures = describe(row, plain, cost, peak)
        _append(figures_file, {**about, **figures})
        write(options.output, markdown(name, products, figures))
    return code


def _append(path: Path, line: Mapping[str, Any]) -> None:
    append_atomic(path, json.dumps(line, allow_nan=False) + "\n")


def cost_of(run: PreparedRun, device: torch.device) -> Cost:
    """Return the least work of one step of one client."""
    images, targets = ResidentData(run.data, device).batch(
        run.data.training_loader(0, 1).plan[0].to(device)
    )
    return step_cost(run.workload().model.to(device).train(), images, targets)


def write(output: Path, text: str) -> None:
    """Append to ``speed.md`` and print."""
    with (output / "speed.md").open("a", encoding="utf-8") as file:
        file.write(text)
    sys.stdout.write(text)
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None, age: float = 0.0) -> int:
    """Measure one setting at each precision of products; return 1 if something failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.device.speed", description=__doc__)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--setting", choices=SETTINGS, required=True)
    parser.add_argument("--seconds", type=duration, default=600.0, help="time for all of it")
    parser.add_argument("--toy", action="store_true")
    options = parser.parse_args(arguments)
    options.deadline = Deadline(_SHARE * options.seconds, age)
    torch.set_num_threads(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if not (options.output / "speed.md").exists():
        write(options.output, f"Batches of {BATCH} on {describe_device()}.\n\n{HEADER}")
    run = SETTINGS[options.setting].prepare(device)
    products: tuple[MatmulPrecision, ...] = ("highest",) if options.toy else ("highest", "high")
    codes = []
    for precision in products:
        with matmul_precision(precision):
            codes.append(measure(options.setting, precision, run, options))
    return max(codes)


if __name__ == "__main__":
    sys.exit(main(age=process_age()))

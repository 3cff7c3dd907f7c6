"""Times a federated round, engine by engine, beside plain PyTorch loops.

``python -m benchmarks.speed`` measures, on generated images of the shapes of MNIST and CIFAR-10,
a round of FedAvg with the four-layer CNN: every contender in a process of its own, one round of
each in turn, medians over the turns. Only ratios within one run mean something on a busy machine.
``--data_dir DIR`` takes as many images of the data sets themselves.
``--scaling`` measures instead how a round grows with the number of clients at fixed samples each.
"""

import argparse
import multiprocessing
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from time import perf_counter

import torch

from benchmarks.plain import TensorLoop, TupleLoop
from cwfed.aggregators import FedAvg
from cwfed.data.images import ImageData
from cwfed.data.partitioners import IID
from cwfed.data.sources import CIFAR10, MNIST, Source, SyntheticImages
from cwfed.engines.selection import describe_engine
from cwfed.federated import Algorithm, FederatedState, LoopCallback, TrainerOptions
from cwfed.federated.record import RoundRecord
from cwfed.models import CNN4
from cwfed.runs import Experiment, PreparedRun

SHAPES = {"MNIST": (1, 28), "CIFAR-10": (3, 32)}
"""Channels and image size."""

ENGINES = ("sequential", "parallel", "vectorized")
REAL = {"MNIST": MNIST, "CIFAR-10": CIFAR10}
Seconds = dict[str, float]
EVALUATIONS = ("evaluate_received", "evaluate_post_local")


class Spaced(Source):
    """Some images of another source, evenly spaced over its order, so of all classes.

    Args:
        source: The whole data set.
        count: How many images.
    """

    def __init__(self, source: Source, count: int) -> None:
        self.whole, self.count, self.name = source, count, source.name

    def load(self, data_dir: Path | None = None, *, cache_dir: Path | None = None) -> ImageData:
        """Return the images.

        Raises:
            ValueError: There are fewer.
        """
        data = self.whole.load(data_dir, cache_dir=cache_dir)
        if not 0 < self.count <= len(data):
            raise ValueError(f"samples: expected at most {len(data)} in all, got {self.count}")
        kept = torch.arange(self.count) * len(data) // self.count
        images, labels = data.images_NCHW[kept], data.labels_N[kept]
        return replace(data, images_NCHW=images, labels_N=labels, source_order=None)


@dataclass(frozen=True)
class Setting:
    """A setting to be trained.

    Attributes:
        shape: Key of `SHAPES`.
        clients: M.
        samples: Samples of a client, training and test together.
        data_dir: Folder of the real data sets; None takes generated images.
    """

    shape: str
    clients: int = 20
    samples: int = 1000
    data_dir: str | None = None

    @property
    def name(self) -> str:
        """Name of the images for people."""
        return self.shape if self.data_dir is None else f"{self.shape}, real images"

    def source(self) -> Source:
        """Return where the images come from, as many as the clients need."""
        total = self.clients * self.samples
        if self.data_dir is not None:
            return Spaced(REAL[self.shape](), total)
        channels, size = SHAPES[self.shape]
        return SyntheticImages(10, total // 10, size, channels)

    def prepare(self, engine: str) -> PreparedRun:
        """Return a run of FedAvg on it."""
        return Experiment(
            self.source(),
            IID(self.clients),
            CNN4,
            Algorithm("fedavg", FedAvg()),
            rounds=1000,
            trainer=TrainerOptions("cpu", engine=engine),  # type: ignore[arg-type]
        ).prepare(Path(self.data_dir) if self.data_dir else None)

    def steps(self) -> int:
        """Return the training steps of a round."""
        train = self.samples - self.samples // 4
        return self.clients * (train // 10)


class Paced(LoopCallback):
    """Reports each round's seconds and waits to be asked for the next."""

    def __init__(self, pipe: Connection) -> None:
        self.pipe = pipe

    def on_round(self, record: RoundRecord, state: FederatedState) -> None:
        """Answer, then wait."""
        self.pipe.send(dict(record.seconds))
        self.pipe.recv()


def run_engine(setting: Setting, engine: str, pipe: Connection) -> None:
    """Serve rounds of the package's own loop with one engine."""
    torch.set_num_threads(1)
    run = setting.prepare(engine)
    pipe.send(describe_engine(run.trainer))
    loop = run.loop([Paced(pipe)])
    loop.run(loop.initial_state(run.initialisation()))


def run_plain(setting: Setting, loop: type[TensorLoop], pipe: Connection) -> None:
    """Serve rounds of a plain loop with PyTorch's own choice of threads."""
    run = setting.prepare("sequential")
    contender = loop(run.data, run.model)
    pipe.send(f"{torch.get_num_threads()} threads")
    while True:
        pipe.send(contender.round())
        pipe.recv()


def contenders(setting: Setting, engines: Sequence[str]) -> dict[str, Callable[[Connection], None]]:
    """Return what is measured, by name."""
    plain = {
        "plain loop, tensors": partial(run_plain, setting, TensorLoop),
        "plain loop, list of tuples": partial(run_plain, setting, TupleLoop),
    }
    return {**plain, **{name: partial(run_engine, setting, name) for name in engines}}


def measure(
    served: Mapping[str, Callable[[Connection], None]], turns: int
) -> dict[str, tuple[str, list[Seconds]]]:
    """Return each contender's description and the seconds of its rounds, taken in turn."""
    context = multiprocessing.get_context("spawn")
    pipes: dict[str, Connection] = {}
    described: dict[str, str] = {}
    processes = []
    for name, serve in served.items():
        pipe, theirs = context.Pipe()
        process = context.Process(target=serve, args=(theirs,))
        process.start()
        processes.append(process)
        pipes[name] = pipe
        described[name] = pipe.recv()
        pipe.recv()  # the initialisation, or a first round to warm up
    rounds: dict[str, list[Seconds]] = {name: [] for name in served}
    for turn in range(turns + 1):
        for name, pipe in pipes.items():
            pipe.send("go")
            seconds = pipe.recv()
            if turn:  # the first one warms up
                rounds[name].append(seconds)
    for process in processes:
        process.kill()
        process.join()
    return {name: (described[name], rounds[name]) for name in served}


def typical(rounds: Sequence[Seconds]) -> tuple[float, float, float]:
    """Return the median seconds of training, of one evaluation and of the round."""
    fits = [seconds["fit"] for seconds in rounds]
    passes = [sum(seconds[phase] for phase in EVALUATIONS) / 2 for seconds in rounds]
    return median(fits), median(passes), median(sum(seconds.values()) for seconds in rounds)


def speed_table(setting: Setting, engines: Sequence[str], turns: int) -> str:
    """Return the Markdown table of one shape."""
    measured = measure(contenders(setting, engines), turns)
    times = {name: typical(rounds) for name, (_, rounds) in measured.items()}
    plain, tuples = times["plain loop, tensors"][0], times["plain loop, list of tuples"][2]
    lines = [
        f"| {setting.name}, {setting.clients} clients, {setting.steps()} steps | ms a step | one "
        "evaluation, share of the round | training, plain loop = 1 | round, list of tuples = 1 |",
        "|---|---|---|---|---|",
    ]
    for name, (fit, evaluation, whole) in times.items():
        lines.append(
            f"| {name} ({measured[name][0]}) | {1000 * fit / setting.steps():.2f} | "
            f"{evaluation / whole:.1%} | {plain / fit:.2f} x | {tuples / whole:.2f} x |"
        )
    return "\n".join(lines) + "\n"


def product_limit(setting: Setting, turns: int) -> float:
    """Return the milliseconds that the matrix products of one step take on one thread."""
    channels, size = SHAPES[setting.shape]
    first = size - 4
    second = first // 2 - 4
    flat = 64 * (second // 2) ** 2
    layers = [  # rows, inner, columns; the first has no gradient of its input
        (10 * first**2, 25 * channels, 32, 2),
        (10 * second**2, 25 * 32, 64, 3),
        (10, flat, 512, 3),
        (10, 512, 10, 3),
    ]
    pairs = [
        (torch.randn(rows, inner), torch.randn(inner, columns), times)
        for rows, inner, columns, times in layers
    ]

    def products() -> float:
        start = perf_counter()
        for left, right, times in pairs:
            for _ in range(times):
                torch.mm(left, right)
        return perf_counter() - start

    return 1000 * median(products() for _ in range(20 * turns))


def scaling_table(
    engine: str, counts: Sequence[int], samples: int, turns: int, data_dir: str | None = None
) -> str:
    """Return the Markdown table of rounds by number of clients."""
    lines = [
        f"| clients ({samples} samples each, {engine}) | seconds a round | ms a client |",
        "|---|---|---|",
    ]
    settings = [Setting("CIFAR-10", clients, samples, data_dir) for clients in counts]
    served = {str(s.clients): partial(run_engine, s, engine) for s in settings}
    for name, (_, rounds) in measure(served, turns).items():
        whole = typical(rounds)[2]
        lines.append(f"| {name} | {whole:.2f} | {1000 * whole / int(name):.1f} |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed", description=__doc__)
    parser.add_argument("--turns", type=int, default=5, help="rounds of each contender")
    parser.add_argument("--samples", type=int, default=1000, help="samples of a client")
    parser.add_argument("--clients", type=int, nargs="+", default=[20])
    parser.add_argument("--engines", nargs="+", default=list(ENGINES), choices=ENGINES)
    parser.add_argument("--shapes", nargs="+", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument("--scaling", action="store_true")
    parser.add_argument("--data_dir", metavar="DIR", help="real images; default: generated ones")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    out = sys.stdout
    out.write(f"{platform.processor() or platform.machine()}, torch {torch.__version__}\n\n")
    if options.scaling:
        for engine in options.engines:
            sizes = (options.clients, options.samples, options.turns)
            out.write(scaling_table(engine, *sizes, options.data_dir) + "\n")
        return 0
    for shape in options.shapes:
        setting = Setting(shape, options.clients[0], options.samples, options.data_dir)
        out.write(speed_table(setting, options.engines, options.turns))
        limit = product_limit(replace(setting), options.turns)
        out.write(f"\nMatrix products alone, one core: {limit:.2f} ms a step.\n\n")
        out.flush()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

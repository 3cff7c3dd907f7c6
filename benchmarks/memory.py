"""Measures the memory of a cohort: the peak of whole rounds, checkpoints included.

``python -m benchmarks.memory`` runs two rounds of the federated loop for 500 clients with the
four-layer CNN for CIFAR-10 (1.76 GB a bank), with an engine that returns random models instead of
training, and prints the peak of the process's physical memory for each method. Checkpoints are
written into a temporary folder: have disk space for two. Linux.

Legend: M clients, K classes.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from benchmarks.aggregation import METHODS, header
from benchmarks.measure import (
    MODELS,
    RandomClients,
    bytes_of,
    cohort,
    in_new_process,
    random_bank,
    resident,
)
from cwfed.aggregators import ServerContext
from cwfed.clients import TrainingPhase
from cwfed.data.federated import Part
from cwfed.engines import Engine, Fitted
from cwfed.federated import FederatedLoop, FederatedState, LoopCallback
from cwfed.federated.record import RoundRecord
from cwfed.federated.sampler import UniformSampler
from cwfed.functional.distribution import label_distribution
from cwfed.functional.stacking import Bank, replicate, row
from cwfed.objectives import CrossEntropy, Objective
from cwfed.runs.checkpoint import save_checkpoint

ROUNDS = 2


class RandomEngine(Engine):
    """Returns random models and scores.

    Args:
        server: What the server knows.
    """

    def __init__(self, server: ServerContext) -> None:
        self.clients = RandomClients(server)

    def fit(
        self,
        round_: int,
        clients: Sequence[int],
        start: Bank,
        anchors: Bank,
        phase: TrainingPhase,
        objective: Objective,
    ) -> Fitted:
        """See `Engine.fit`."""
        return Fitted(random_bank(row(start, 0), len(clients)), [0.0] * len(clients))

    def evaluate(self, clients: Sequence[int], models: Bank, part: Part) -> Tensor:
        """See `Engine.evaluate`."""
        return torch.ones(len(clients), 3, dtype=torch.float64)

    def class_means(self, clients: Sequence[int], models: Bank) -> tuple[Tensor, Tensor]:
        """See `Engine.class_means`."""
        return self.clients.class_means(torch.as_tensor(clients), models)


class Checkpoints(LoopCallback):
    """Saves every state.

    Args:
        folder: Where.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_round(self, record: RoundRecord, state: FederatedState) -> None:
        """Save the state."""
        save_checkpoint(self.folder, state, "benchmark", keep=1)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print a table; return 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    parser.add_argument("--model", choices=MODELS, default="cnn4_cifar10")
    parser.add_argument("--clients", type=int, default=500)
    parser.add_argument("--participation", type=float, default=1.0)
    names = ("fedavg", "cwfedavg output", "cwfedavg all", "fedamp")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=names)
    options = parser.parse_args(arguments)
    columns = ("method", "clients", "participation", "a bank, GB", "peak, GB")
    sys.stdout.write(f"{header(columns)}\n")
    for name in options.methods:
        asked = (name, options.model, options.clients, options.participation)
        bank, peak = in_new_process(peak_of_rounds, *asked)
        cells = (name, options.clients, options.participation, f"{bank / 1e9:.2f}")
        sys.stdout.write(f"| {' | '.join(map(str, cells))} | {peak / 1e9:.2f} |\n")
        sys.stdout.flush()
    return 0


def peak_of_rounds(name: str, model: str, clients: int, participation: float) -> tuple[int, int]:
    """Return the bytes of a bank and the peak of the process over its rounds."""
    torch.set_num_threads(1)
    template, _ = cohort(model, 1)
    _, server = cohort(model, 2)
    counts_MK = torch.randint(0, 50, (clients, server.label_counts_MK.shape[1])) + 1
    server = type(server)(counts_MK.sum(1), counts_MK, server.model, server.sizes)
    with TemporaryDirectory() as folder:
        loop = FederatedLoop(
            RandomEngine(server),
            METHODS[name](),
            server,
            UniformSampler(clients, participation, seed=0),
            label_distribution(counts_MK),
            ROUNDS,
            [(TrainingPhase(), Objective([CrossEntropy()]))],
            callbacks=[Checkpoints(Path(folder))],
        )
        loop.run(loop.initial_state(replicate(row(template, 0), clients)))
    return clients * bytes_of(template), resident(peak=True)


if __name__ == "__main__":
    sys.exit(main())

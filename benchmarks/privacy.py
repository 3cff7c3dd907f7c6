"""Measures what an upload tells about the labels of the client that sent it.

``python -m benchmarks.privacy --config quickstart --rounds 20`` trains methods round by round and,
after some rounds, looks at the uploads as a curious server would: it knows the model that it sent,
the learning rate and the number of samples, and estimates every client's label distribution p_i.
Options that ``--help`` does not list go to ``cwfed fit``. Printed are, as means over clients and
seeds, the total variation distance between p_i and the estimate (0: read exactly, 1: nothing in
common) and how well the estimate tells classes that the client holds from those that it does not
(area under the ROC curve; 0.5: not at all). Written for all clients taking part in every round.

Legend: M clients, K classes, F features.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import nan
from pathlib import Path
from statistics import fmean

import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor

from cwfed.config.files import UsageError, order_arguments
from cwfed.config.parser import add_fit_options, build, make_parser, parse
from cwfed.federated import FederatedLoop, FederatedState, LoopCallback
from cwfed.federated.record import RoundRecord
from cwfed.functional.distribution import norm_distribution
from cwfed.runs import Experiment

METHODS = ("fedavg", "cwfedavg_no_wdr", "cwfedavg")


@dataclass(frozen=True)
class Observation:
    """The output layers that the server holds after a round.

    Attributes:
        weight_MKF: Uploaded weights.
        bias_change_MK: Uploaded biases less those that the clients received.
        steps_M: Local steps of every client.
        lr: Learning rate.
    """

    weight_MKF: Tensor
    bias_change_MK: Tensor
    steps_M: Tensor
    lr: float


def from_norms(seen: Observation) -> Tensor:
    """Return p~ of the uploads, the norms of the output layer's rows over their sum, ``[M, K]``."""
    return norm_distribution(seen.weight_MKF.double())


def from_bias(seen: Observation) -> Tensor:
    """Return p as the change of the biases tells it, ``[M, K]``.

    A step of SGD on cross-entropy moves bias j by lr times the share of j among the labels less the
    mean predicted probability of j. The server does not know the predictions and takes them for
    uniform, as they are in the first steps; negative shares count as 0.
    """
    moved_MK = seen.bias_change_MK.double() / (seen.lr * seen.steps_M.double()[:, None])
    shares_MK = (moved_MK + 1 / moved_MK.shape[1]).clamp_min(0)
    return shares_MK / shares_MK.sum(1, keepdim=True)


def uniform(seen: Observation) -> Tensor:
    """Return the guess of somebody who has seen nothing, ``[M, K]``."""
    shape = seen.bias_change_MK.shape
    return torch.full(shape, 1 / shape[1], dtype=torch.float64)


ATTACKS = {
    "norms of the rows (p~)": from_norms,
    "change of the biases": from_bias,
    "nothing (uniform)": uniform,
}


def total_variation(p_MK: Tensor, guess_MK: Tensor) -> Tensor:
    """Return ``1/2 sum_j |p_ij - guess_ij|`` by client, ``[M]``."""
    return (p_MK - guess_MK).abs().sum(1) / 2


def held_or_not(p_MK: Tensor, guess_MK: Tensor) -> Tensor:
    """Return by client how well a guess tells held classes from others, ``[M]``.

    The area under the ROC curve: the probability that a held class is guessed higher than one that
    is not held, ties counting half; NaN for a client that holds all classes.
    """
    held_MK = p_MK > 0
    areas = [
        nan if held_K.all() else roc_auc_score(held_K.numpy(), guess_K.numpy())
        for held_K, guess_K in zip(held_MK, guess_MK, strict=True)
    ]
    return torch.tensor(areas, dtype=torch.float64)


class Observer(LoopCallback):
    """Attacks the uploads after some rounds.

    Args:
        experiment: The run.
        head: Name of the output layer.
        steps_M: Local steps of every client in a round.
        rounds: After which rounds.
    """

    def __init__(
        self, experiment: Experiment, head: str, steps_M: Tensor, rounds: Sequence[int]
    ) -> None:
        self.rounds = rounds
        self.head = head
        self.steps_M = steps_M
        self.lr = learning_rate(experiment)
        self.scores: dict[tuple[int, str], tuple[float, float]] = {}
        self.loop: FederatedLoop
        self.sent_MK: Tensor

    def on_start(self, loop: FederatedLoop, state: FederatedState) -> None:
        """Keep the loop, which knows p."""
        self.loop = loop

    def on_round(self, record: RoundRecord, state: FederatedState) -> None:
        """Score each attack on the uploads of this round."""
        bias, weight = f"{self.head}.bias", f"{self.head}.weight"
        if record.round in self.rounds:
            change_MK = state.uploads[bias] - self.sent_MK
            seen = Observation(state.uploads[weight], change_MK, self.steps_M, self.lr)
            for name, attack in ATTACKS.items():
                p_MK, guess_MK = self.loop.p_MK.double(), attack(seen)
                areas = held_or_not(p_MK, guess_MK)
                distance = total_variation(p_MK, guess_MK).mean().item()
                self.scores[record.round, name] = distance, areas.nanmean().item()
        self.sent_MK = state.received[bias]


def learning_rate(experiment: Experiment) -> float:
    """Return the learning rate of local training."""
    optimizer = experiment.client.optimizer([torch.nn.Parameter(torch.zeros(1))])
    return float(optimizer.param_groups[0]["lr"])


def observe(
    arguments: Sequence[str], data_dir: Path | None, rounds: Sequence[int]
) -> dict[tuple[int, str], tuple[float, float]]:
    """Run an experiment; return distance and area by round and attack.

    Raises:
        UsageError: An option of ``cwfed fit`` is wrong.
    """
    parser = make_parser("fit", "")
    add_fit_options(parser)
    experiment, _ = build(parser, parse(parser, order_arguments(arguments)))
    run = experiment.prepare(data_dir)
    observer = Observer(experiment, run.contract.head, run.faults().steps_M, rounds)
    loop = run.loop([observer])
    loop.run(loop.initial_state(run.initialisation()))
    return observer.scores


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print a table; return 0, or 2 for a user's mistake."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.privacy",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--methods", nargs="+", default=METHODS, metavar="METHOD")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--after", type=int, nargs="+", help="rounds to look at: 1, ..., the last")
    parser.add_argument("--seeds", type=int, nargs="+", default=(0,))
    parser.add_argument("--data_dir", type=Path)
    options, others = parser.parse_known_args(arguments)
    last = options.rounds
    after = options.after or sorted({1, max(last // 4, 1), last})
    if not all(1 <= round_ <= last for round_ in after):
        parser.error(f"--after: expected rounds from 1 to --rounds {last}, got {after}")
    try:
        for line in table(options, others, after):
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
    except UsageError as error:
        parser.error(str(error))
    return 0


def table(
    options: argparse.Namespace, others: Sequence[str], after: Sequence[int]
) -> Iterator[str]:
    """Yield the lines of a Markdown table, a row a method and attack."""
    columns = ["method", "read from", *(f"round {r}: distance (area)" for r in after)]
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"
    for method in options.methods:
        runs = []
        for seed in options.seeds:
            asked = ["--algorithm", method, "--seed", str(seed), "--rounds", str(options.rounds)]
            last = ["--evaluate_every", str(max(options.rounds, 1))]
            runs.append(observe([*others, *asked, *last], options.data_dir, after))
        for attack in ATTACKS:
            cells = [mean_cell(runs, round_, attack) for round_ in after]
            yield f"| {method} | {attack} | {' | '.join(cells)} |"


def mean_cell(
    runs: Sequence[Mapping[tuple[int, str], tuple[float, float]]], round_: int, attack: str
) -> str:
    """Return a cell: means over the seeds."""
    distance, area = zip(*(run[round_, attack] for run in runs), strict=True)
    return f"{fmean(distance):.3f} ({fmean(area):.3f})"


if __name__ == "__main__":
    sys.exit(main())

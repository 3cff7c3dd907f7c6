"""Facts of one run, as a page shows them: names, hashes, figures.

Legend: M clients.
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cwfed.records.identity import chosen, config_hash
from cwfed.records.manifest import Manifest
from cwfed.records.names import PARTITION
from cwfed.records.regulariser import largest_weight
from cwfed.records.result import make_result
from cwfed.records.round_lines import METRICS
from cwfed.records.run import Run

CHOICES = ("last", "best")
NOT_THE_METHOD = ("seed", "data", "partition", "rounds", "val_fraction")
"""Options of a run that are no part of how it trains."""


@dataclass(frozen=True, eq=False)
class Facts:
    """A run and what follows from its files.

    Attributes:
        run: The run.
        name: Name of the folder, or as much of its path as tells it from others.
        dataset: Name of the data set.
        dataset_hash: Hash of the data set's content; None where the folder does not say.
        partition_hash: Hash of who holds which samples; None where the folder does not say.
        figures: Figures as in ``result.json``, of as many rounds as there are; None before any.
        test_M: Test samples by client; None where the folder does not say.
        notes: What is missing, a sentence each.
    """

    run: Run
    name: str
    dataset: str
    dataset_hash: str | None
    partition_hash: str | None
    figures: Mapping[str, Any] | None
    test_M: list[int] | None
    notes: list[str]

    @property
    def finished(self) -> bool:
        """True if the run came to its end."""
        return self.run.result is not None

    @property
    def rounds(self) -> int:
        """Rounds that are done."""
        return int(self.run.lines[-1]["round"]) if self.run.lines else 0

    @property
    def planned(self) -> int:
        """Rounds that were asked for."""
        return int(self.run.config["rounds"])

    @property
    def clients(self) -> int | None:
        """Number of clients; None before the first line."""
        lines = [line for line in self.run.lines if line["received"]]
        return len(lines[0]["received"]["correct"]) if lines else None

    @property
    def partition_key(self) -> str:
        """The partition's hash, or what stands for it where the folder does not say."""
        return self.partition_hash or str(self.run.path)

    @property
    def setting(self) -> str:
        """Key of what runs must share to be compared: data, kind of partition, rounds.

        Where the folder does not name its data or partition, the run stands for itself.
        """
        if self.dataset_hash is None or self.partition_hash is None:
            return str(self.run.path.resolve())
        partition = self.run.config["partition"]
        # A partition out of a file is that one and no recipe for others.
        fixed = (partition.get("init_args") or {}).get("path") is not None
        keys = [
            self.dataset_hash,
            chosen({"partition": partition}),
            self.run.config.get("val_fraction"),
            self.planned,
            self.partition_hash if fixed else None,
        ]
        return json.dumps(keys, sort_keys=True)

    @property
    def variant(self) -> str:
        """Key of how the run trains: its configuration, less data, partition, rounds and seed."""
        return config_hash(
            {name: value for name, value in self.run.config.items() if name not in NOT_THE_METHOD}
        )

    @property
    def wdr(self) -> float:
        """Weight of the weight distribution regulariser as it trained; 0 without it."""
        return largest_weight(self.run.config)

    def accuracy(self, metric: str, choice: str) -> float | None:
        """Return a pooled test accuracy, as a fraction."""
        quoted = self.quoted(metric, choice)
        return float(quoted["accuracy"]) if quoted else None

    def quoted(self, metric: str, choice: str) -> Mapping[str, Any] | None:
        """Return a quoted accuracy with its round, as ``result.json`` has it."""
        quoted: Mapping[str, Any] | None = (self.figures or {}).get(metric, {}).get(choice)
        return quoted

    def correct_M(self, metric: str, choice: str) -> list[int] | None:
        """Return correct predictions by client in the round that a choice quotes."""
        quoted = self.quoted(metric, choice)
        if not quoted or quoted["round"] >= len(self.run.lines):
            return None
        scored = self.run.lines[quoted["round"]][metric]
        return list(scored["correct"]) if scored else None

    def worst10(self, metric: str) -> float | None:
        """Return the mean accuracy of the lowest tenth of the clients after the last round."""
        fairness = (self.figures or {}).get(metric, {}).get("fairness")
        return fairness["worst10"] if fairness else None

    @property
    def excluded(self) -> Counter[str]:
        """Participations that were left out, over all rounds, by reason."""
        lost = [line.get("excluded") or {} for line in self.run.lines]
        return Counter(str(reason) for one in lost for reason in one.values())

    @property
    def asked(self) -> int:
        """Participations in all: clients that were asked to train, over all rounds."""
        return sum(len(line["participants"]) for line in self.run.lines)

    @property
    def left_out(self) -> float | None:
        """Share of the participations that were left out; None before any."""
        return self.excluded.total() / self.asked if self.asked else None

    @property
    def megabytes(self) -> tuple[float, float] | None:
        """Megabytes (10**6 bytes) up and down a client and round; None before any round."""
        if not self.figures or not self.rounds:
            return None
        sent = self.figures["bytes"]
        return (
            sent["up"]["per_client_and_round"] / 1e6,
            sent["down"]["per_client_and_round"] / 1e6,
        )

    @property
    def seconds(self) -> float | None:
        """Seconds a round, evaluations included; None before any round."""
        spent = [sum(line["seconds"].values()) for line in self.run.lines if line["round"]]
        return sum(spent) / len(spent) if spent else None


def read_facts(run: Run, name: str) -> Facts:
    """Work out what a page says of a run."""
    notes: list[str] = []
    partition = _partition(run, notes)
    figures = run.result or (make_result(run.lines, {}) if run.lines else None)
    dataset = (run.result or {}).get("dataset") or partition.get("dataset") or run.dataset
    tests: list[int] | None = partition.get("test")
    scored = next((line for line in run.lines if line[METRICS[0]]), None)
    if tests and scored and len(tests) != len(scored[METRICS[0]]["correct"]):
        notes.append("Its partition and its rounds have different numbers of clients.")
        tests = None
    return Facts(
        run,
        name,
        str(dataset),
        partition.get("dataset_hash"),
        partition.get("hash"),
        figures,
        tests,
        notes,
    )


def _partition(run: Run, notes: list[str]) -> dict[str, Any]:
    path = run.path / PARTITION
    if not path.exists():
        notes.append(f"{PARTITION} is missing: nothing can be said by client, nor compared.")
        return {}
    try:
        manifest = Manifest.load(path)
    except ValueError as error:
        notes.append(
            f"{PARTITION} is damaged: nothing can be said by client, nor compared ({error})."
        )
        return {}
    return {
        "hash": manifest.hash,
        "dataset": manifest.dataset_name,
        "dataset_hash": manifest.dataset_hash,
        "test": [len(client.test) for client in manifest.clients],
    }


def short_names(runs: list[Run]) -> list[str]:
    """Return names of runs: their folders', with as many parents as tell equal ones apart."""
    parts = [run.path.resolve().parts for run in runs]
    depth = [1] * len(runs)
    for _ in range(max((len(part) for part in parts), default=0)):
        names = ["/".join(part[-deep:]) for part, deep in zip(parts, depth, strict=True)]
        clashing = {name for name in names if names.count(name) > 1}
        if not clashing:
            break
        depth = [deep + (name in clashing) for deep, name in zip(depth, names, strict=True)]
    return ["/".join(part[-deep:]) for part, deep in zip(parts, depth, strict=True)]

"""Measures how much figures differ over partitions and seeds, and the tolerance that follows.

A published figure is one number. Ours differs from it, even if all is the same, as one run differs
from another. Two single runs differ by less than ``1.96 sqrt(2)`` standard deviations of one with
probability 0.95 (ISO 5725: the reproducibility limit): that is what a tolerance can be.

For P partitions with n seeds each, from a one-way analysis of variance: the variance between seeds
is the mean square within partitions; that between partitions is what the mean square between them
has above it, over n; one run on one partition has the sum of both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from statistics import fmean, variance
from typing import Any

from cwfed.config.files import UsageError
from cwfed.report.published import Tolerance
from cwfed.sweeps.summary import Entry, Section
from cwfed.sweeps.tables import Table

LIMIT = 1.96 * sqrt(2)


@dataclass(frozen=True)
class Spread:
    """Spread of one method's accuracy on one setting.

    Attributes:
        config: The setting's configuration.
        method: The method's title.
        rounds: Rounds of every run.
        values: Percent: for each partition one accuracy a seed.
    """

    config: str
    method: str
    rounds: int
    values: tuple[tuple[float, ...], ...]

    @property
    def mean(self) -> float:
        """Mean over all runs."""
        return fmean(map(fmean, self.values))

    @property
    def seeds(self) -> float:
        """Standard deviation of a run on a given partition."""
        return sqrt(fmean(map(variance, self.values)))

    @property
    def partitions(self) -> float:
        """Standard deviation that the partition adds; 0 where it adds nothing that is seen."""
        excess = variance(map(fmean, self.values)) - self.seeds**2 / len(self.values[0])
        return sqrt(max(excess, 0.0))

    @property
    def total(self) -> float:
        """Standard deviation of a run on any partition."""
        return sqrt(self.seeds**2 + self.partitions**2)

    @property
    def limit(self) -> float:
        """The difference that two runs stay below with probability 0.95."""
        return LIMIT * self.total

    @property
    def tolerance(self) -> Tolerance:
        """The limit, rounded up to a tenth of a point, and where it is from."""
        return Tolerance(
            ceil(round(10 * self.limit, 6)) / 10,
            f"two runs of {self.method} differ by less in 95 of 100 cases ({self.config}, "
            f"{len(self.values)} partitions x {len(self.values[0])} seeds, {self.rounds} rounds)",
        )


def measure_spread(table: Table, section: Section) -> list[Spread]:
    """Return the spread of every method in every setting; partitions with equal seeds only.

    Args:
        table: Columns that share a ``config`` are partitions of one setting.
        section: The runs, all of as many rounds.

    Raises:
        UsageError: A setting has fewer than two partitions or seeds, or seeds are missing.
    """
    groups: dict[tuple[str, str], dict[str, Entry]] = {}
    for entry in section.entries:
        if entry.metric in entry.row.metrics:
            key = (entry.column.config, f"{entry.row.title}, {entry.metric.replace('_', '-')}")
            groups.setdefault(key, {})[entry.column.name] = entry
    wanted: Mapping[str, int] = {
        config: sum(column.config == config for column in table.columns.values())
        for config, _ in groups
    }
    return [
        Spread(config, method, section.rounds, _balanced(by_column, wanted[config], config, method))
        for (config, method), by_column in groups.items()
    ]


def _balanced(
    entries: Mapping[str, Entry], wanted: int, config: str, method: str
) -> tuple[tuple[float, ...], ...]:
    runs = {name: entry for name, entry in entries.items() if entry.values}
    seeds = {entry.seeds for entry in runs.values()}
    hashes = {line["partition_hash"] for entry in runs.values() for line in entry.lines}
    if len(runs) != wanted or len(seeds) != 1 or len(hashes) != wanted or wanted < 2:
        got = ", ".join(f"{name}: {len(entry.seeds)}" for name, entry in runs.items()) or "none"
        raise UsageError(
            f"spread: expected runs of {method} on {config} on {max(wanted, 2)} partitions with "
            f"the same seeds on each, got seeds by column {got}"
        )
    if len(seeds.pop()) < 2:
        raise UsageError(f"spread: expected two seeds or more of {method} on {config}, got one")
    return tuple(entry.values for entry in runs.values())


def spread_markdown(spreads: Sequence[Spread]) -> str:
    """Return a table, and for each setting the widest limit as a line of a table's file."""
    head = ("setting", "method", "rounds", "partitions x seeds", "mean", "between seeds",
            "between partitions", "one run", "95 % limit of a difference")  # fmt: skip
    rows: list[Sequence[Any]] = [head, ["---"] * len(head)]
    rows += [
        (
            each.config, each.method, each.rounds, f"{len(each.values)} x {len(each.values[0])}",
            *(f"{v:.2f}" for v in (each.mean, each.seeds, each.partitions, each.total, each.limit)),
        )
        for each in spreads
    ]  # fmt: skip
    lines = [f"| {' | '.join(map(str, row))} |" for row in rows]
    lines += ["", "Accuracies in percent, standard deviations and limit in points.", ""]
    widest: dict[str, Spread] = {}
    for each in spreads:
        widest[each.config] = max(widest.get(each.config, each), each, key=lambda s: s.limit)
    for each in widest.values():
        tolerance = each.tolerance
        lines.append(
            f'    tolerance: {{points: {tolerance.points:g}, source: "{tolerance.source}"}}'
        )
    return "\n".join(lines) + "\n"

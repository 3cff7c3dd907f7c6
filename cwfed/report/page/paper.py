"""Published figures beside one's own: a table of the paper and the runs of its cells.

The table says which methods and settings its figures belong to; who knows how a configuration is
resolved says which runs these are (`Identify`).
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cwfed.analysis.facts import Facts
from cwfed.analysis.settings import mean_std, partition_text
from cwfed.records.identity import cell_hash
from cwfed.report.tables import Published, Table


@dataclass(frozen=True)
class Cell:
    """Row and column of a figure of the table.

    Attributes:
        algorithm: Name of the method's configuration.
        config: Name of the setting's configuration.
        options: Further options, by dotted name.
    """

    algorithm: str
    config: str
    options: Mapping[str, Any]


Identify = Callable[[Cell], Sequence[str]]
"""Returns the `cell_key` of each configuration that a cell stands for, one a partition."""

_Groups = Mapping[str, Sequence[Facts]]


def cell_key(config: Mapping[str, Any]) -> str:
    """Return the hash of a resolved configuration, whatever its seed and number of rounds."""
    return cell_hash({**config, "evaluate_every": None})


def fill_table(table: Table, every: Sequence[Facts], identify: Identify) -> dict[str, Any]:
    """Put runs beside the published figures.

    Args:
        table: The table.
        every: All runs; only finished ones count.
        identify: Says which configuration a cell stands for.

    Returns:
        Plain values for the page: a row for each method and way of scoring, with a cell a column.

    Raises:
        ValueError: A cell does not resolve.
    """
    return {
        "title": table.title,
        "source": table.source,
        "protocol_rounds": table.protocol_rounds,
        "choice": table.choice,
        "columns": [_head(table, name) for name in table.columns],
        "sibling": table.sibling_title,
        "rows": _fill_rows(table, every, identify),
        "notes": [*table.tolerance_notes(), *table.notes],
    }


def _head(table: Table, name: str) -> dict[str, Any]:
    """Return a column's title, and whether the sibling protocol has figures for it."""
    figures = [value for (_, column), value in table.sibling.items() if column == name]
    return {
        "title": table.columns[name].title,
        "sibling": any(value is not None for value in figures),
    }


def _fill_rows(table: Table, every: Sequence[Facts], identify: Identify) -> list[dict[str, Any]]:
    finished = [facts for facts in every if facts.finished]
    runs: dict[str, list[Facts]] = defaultdict(list)
    for facts in finished:
        runs[cell_key(facts.run.config)].append(facts)
    names = {facts.run.algorithm for facts in finished}
    filled = []
    for row in table.rows.values():
        # To resolve a configuration takes a while: only where there may be a run of it.
        wanted = row.algorithm in names or row.algorithm.endswith((".yaml", ".yml"))
        keys = {
            name: identify(Cell(row.algorithm, column.config, table.cell_options(row.name, name)))
            for name, column in table.columns.items()
            if wanted
        }
        for metric in row.metrics:
            cells = [
                _fill_cell(
                    table, (row.name, name), [runs[key] for key in keys.get(name, ())], metric
                )
                for name in table.columns
            ]
            filled.append({"method": row.title, "metric": metric, "cells": cells})
    return filled


def _fill_cell(
    table: Table, place: tuple[str, str], partitions: Sequence[Sequence[Facts]], metric: str
) -> dict[str, Any]:
    published = table.published(*place)
    groups: dict[tuple[int, int, str | None], dict[int, Facts]] = defaultdict(dict)
    for number, runs in enumerate(partitions):
        for facts in runs:
            key = (facts.rounds, number, facts.dataset_hash)
            groups[key].setdefault(facts.run.seed, facts)
    ordered = sorted(groups.items(), key=lambda item: -item[0][0])
    return {
        "paper": published.value,
        "approx": published.approx,
        "tolerance": published.tolerance.points,
        "sibling": table.sibling.get(place),
        "ours": [
            _entry(table, list(by_seed.values()), metric, published) for _, by_seed in ordered
        ],
    }


def _entry(
    table: Table, runs: Sequence[Facts], metric: str, published: Published
) -> dict[str, Any]:
    """Return the mean of runs that differ in the seed alone, and how it compares."""
    accuracies = [facts.accuracy(metric, table.choice) for facts in runs]
    ours = mean_std(100 * value for value in accuracies if value is not None)
    # Of more rounds than the protocol's, too, the best is another number.
    scaled = runs[0].rounds != table.protocol_rounds
    return {
        **ours,
        "rounds": runs[0].rounds,
        "partition": partition_text(runs[0].run.config),
        "scaled": scaled,
        "difference": published.difference(ours["mean"]),
        "verdict": published.judge(ours["mean"], scaled=scaled),
    }

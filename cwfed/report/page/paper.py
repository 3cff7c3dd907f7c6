"""Published figures beside one's own: a table of the paper, read from plain YAML.

The file says which methods and settings its figures belong to; who knows how a configuration is
resolved says which runs these are (`Identify`).
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cwfed.federated.folder import config_hash
from cwfed.report.page.facts import Facts
from cwfed.report.page.settings import mean_std
from cwfed.results import METRICS, read_yaml

_METRICS: Mapping[str, tuple[str, ...]] = {
    **{metric: (metric,) for metric in METRICS},
    "both": METRICS,
}
_CHOICES = ("best", "last", "val_selected")
_LEFT_OPEN = ("seed", "rounds", "evaluate_every")


@dataclass(frozen=True)
class Cell:
    """What a figure of the table belongs to.

    Attributes:
        algorithm: Name of the method's configuration.
        config: Name of the setting's configuration.
        options: Further options, by dotted name.
    """

    algorithm: str
    config: str
    options: Mapping[str, Any]


Identify = Callable[[Cell], str]
"""Returns the `cell_key` of the configuration that a cell stands for."""


@dataclass(frozen=True)
class PaperTable:
    """A table file: see `read_table`."""

    path: Path
    values: Mapping[str, Any]

    def take(self, name: str, kind: type | tuple[type, ...], default: Any = ...) -> Any:
        """Return a field of a kind.

        Raises:
            ValueError: It is missing or of another kind.
        """
        return _take(self.values, name, kind, f"{self.path}: ", default)


def cell_key(config: Mapping[str, Any]) -> str:
    """Return the hash of a resolved configuration, whatever its seed and number of rounds."""
    return config_hash({**config, **dict.fromkeys(_LEFT_OPEN)})


def read_table(path: Path) -> PaperTable:
    """Read a table file: ``title``, ``columns``, ``rows``, ``paper`` and what they need.

    Raises:
        ValueError: The file cannot be read, or something is wrong in it.
    """
    values = read_yaml(path)
    if not isinstance(values, dict):
        raise ValueError(f"{path}: expected a table's mapping, got {type(values).__name__}")
    table = PaperTable(path, values)
    _check_table(table)
    _check_figures(table)
    return table


def _check_table(table: PaperTable) -> None:
    where = f"{table.path}: "
    _take(table.values, "title", str, where)
    _take(table.values, "protocol_rounds", int, where, 1000)
    _take(table.values, "notes", list, where, [])
    _one_of(_take(table.values, "choice", str, where, "best"), _CHOICES, f"{where}choice")
    _check_common(table.values, where)
    for group, field in (("columns", "config"), ("rows", "metric")):
        for name, entry in _take(table.values, group, dict, where).items():
            own = f"{where}{group}.{name}"
            _take(_mapping(entry, own), field, str, f"{own}.")
            _check_common(entry, f"{own}.")
    for name, row in table.values["rows"].items():
        _one_of(row["metric"], _METRICS, f"{where}rows.{name}.metric")
        for column, options in _take(row, "cells", dict, f"{where}rows.{name}.", {}).items():
            _mapping(options, f"{where}rows.{name}.cells.{column}")


def _check_common(values: Mapping[str, Any], where: str) -> None:
    """Check what a table, its columns and its rows may all have."""
    _take(values, "options", dict, where, {})
    if not _is_number(tolerance := values.get("tolerance", 1.0)):
        raise ValueError(f"{where}tolerance: expected a number, got {tolerance!r:.60}")


def fill_table(table: PaperTable, every: Sequence[Facts], identify: Identify) -> dict[str, Any]:
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
    columns = table.values["columns"]
    return {
        "title": table.values["title"],
        "source": str(table.values.get("source", "")),
        "protocol_rounds": table.take("protocol_rounds", int, 1000),
        "choice": table.take("choice", str, "best"),
        "columns": [str(column.get("title", name)) for name, column in columns.items()],
        "rows": _fill_rows(table, every, identify),
        "notes": [str(note) for note in table.take("notes", list, [])],
    }


def _fill_rows(
    table: PaperTable, every: Sequence[Facts], identify: Identify
) -> list[dict[str, Any]]:
    finished = [facts for facts in every if facts.finished]
    runs: dict[str, list[Facts]] = defaultdict(list)
    for facts in finished:
        runs[cell_key(facts.run.config)].append(facts)
    names = {facts.run.algorithm for facts in finished}
    columns, filled = table.values["columns"], []
    for name, row in table.values["rows"].items():
        # To resolve a configuration takes a while: only where there may be a run of it.
        wanted = str(row.get("algorithm", name)) in names
        keys = [identify(_cell(table, name, c)) if wanted else "" for c in columns]
        figures = table.take("paper", dict, {}).get(name) or [None] * len(columns)
        for metric in _METRICS[row["metric"]]:
            cells = [
                _fill_cell(table, column, figure, runs.get(key, []), metric)
                for column, figure, key in zip(columns.values(), figures, keys, strict=True)
            ]
            filled.append({"method": str(row.get("title", name)), "metric": metric, "cells": cells})
    return filled


def _cell(table: PaperTable, row_name: str, column_name: str) -> Cell:
    row, column = table.values["rows"][row_name], table.values["columns"][column_name]
    options = {
        **(table.values.get("options") or {}),
        **(column.get("options") or {}),
        **(row.get("options") or {}),
        **((row.get("cells") or {}).get(column_name) or {}),
    }
    return Cell(str(row.get("algorithm", row_name)), column["config"], options)


def _fill_cell(
    table: PaperTable, column: Mapping[str, Any], figure: Any, runs: Sequence[Facts], metric: str
) -> dict[str, Any]:
    own = figure if isinstance(figure, dict) else {"value": figure}
    tolerance = own.get("tolerance", column.get("tolerance", table.values.get("tolerance", 1.0)))
    published = own.get("value")
    groups: dict[tuple[int, str | None], dict[int, Facts]] = defaultdict(dict)
    for facts in runs:
        groups[(facts.rounds, facts.dataset_hash)].setdefault(facts.run.seed, facts)
    ordered = sorted(groups.items(), key=lambda item: -item[0][0])
    return {
        "paper": published,
        "approx": bool(own.get("approx", False)),
        "tolerance": tolerance,
        "ours": [
            _entry(table, list(by_seed.values()), metric, published, tolerance)
            for _, by_seed in ordered
        ],
    }


def _entry(
    table: PaperTable,
    runs: Sequence[Facts],
    metric: str,
    published: float | None,
    tolerance: float,
) -> dict[str, Any]:
    """Return the mean of runs that differ in the seed alone, and how it compares."""
    choice = table.take("choice", str, "best")
    accuracies = [facts.accuracy(metric, choice) for facts in runs]
    ours = mean_std(100 * value for value in accuracies if value is not None)
    reduced = runs[0].rounds < table.take("protocol_rounds", int, 1000)
    mean = ours["mean"]
    difference = None if mean is None or published is None else mean - published
    return {
        **ours,
        "rounds": runs[0].rounds,
        "reduced": reduced,
        "difference": difference,
        "verdict": None if reduced else _judge(difference, tolerance),
    }


def _judge(difference: float | None, tolerance: float) -> str | None:
    if difference is None:
        return None
    # To a thousandth of a point: floating point must not decide at the edge of a tolerance.
    inside = round(abs(difference), 3) <= tolerance
    return "within tolerance" if inside else "outside tolerance"


def _check_figures(table: PaperTable) -> None:
    columns, rows = table.values["columns"], table.values["rows"]
    for name, figures in table.take("paper", dict, {}).items():
        where = f"{table.path}: paper.{name}"
        _one_of(name, rows, where)
        if not isinstance(figures, list) or len(figures) != len(columns):
            raise ValueError(
                f"{where}: expected a list of {len(columns)} figures, got {figures!r:.60}"
            )
        for figure in figures:
            value = figure.get("value") if isinstance(figure, dict) else figure
            if value is not None and not _is_number(value):
                raise ValueError(f"{where}: expected numbers or null, got {value!r:.60}")
            if isinstance(figure, dict):
                _check_common(figure, f"{where}.")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _take(
    values: Mapping[str, Any],
    name: str,
    kind: type | tuple[type, ...],
    where: str,
    default: Any = ...,
) -> Any:
    value = values.get(name, default)
    if not isinstance(value, kind):
        got = "nothing" if value is ... else repr(value)[:60]
        expected = kind.__name__ if isinstance(kind, type) else "another kind"
        raise ValueError(f"{where}{name}: expected {expected}, got {got}")
    return value


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{where}: expected a mapping, got {value!r:.60}")
    return value


def _one_of(name: Any, known: Any, where: str) -> None:
    if name not in known:
        raise ValueError(f"{where}: expected one of {', '.join(map(str, known))}; got {name!r}")

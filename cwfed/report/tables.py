"""Tables of published figures: a YAML file is a grid of methods (rows) and settings (columns).

A table needs no code. All there is to say::

    title: Table 9, CIFAR-10 with few clients      # required
    source: Where the published figures stand      # needed with `paper`
    protocol_rounds: 1000                          # rounds of the published figures (default 1000)
    choice: best                                   # best (default), last or val_selected, which
                                                   # needs the option val_fraction
    tolerance: 1.0                                 # percentage points, for verdicts (default 1), or
                                                   # measured: {points: 1.7, source: how}
    options: {val_fraction: 0.1}                   # options of `cwfed fit`, dotted, for all cells
    columns:                                       # required
      few:
        config: cifar10_practical                  # required: as `cwfed fit --config`
        title: 5 clients                           # default: the name
        tolerance: 0.5                             # instead of the table's
        options: {partition.num_clients: 5}        # for this column
        generated: {partition.num_clients: 4}      # beside them on the smoke profile's small data
    rows:                                          # required
      fedavg: {metric: received}                   # received, post_local or both: required
      cwfedavg_output:
        algorithm: cwfedavg                        # as --algorithm; default: the row's name
        title: cwFedAvg (output)                   # default: the name
        metric: received
        options: {}                                # for this row
        cells: {few: {wdr_lambda: 20}}             # for single cells, by column
    first: [cwfedavg_output, fedavg]               # rows to run before the others
    paper:                                         # by row, one entry a column
      fedavg: [60.68]                              # null: not known, printed as n/a
      cwfedavg_output: [{value: 91, approx: true, tolerance: 2}]    # given as "about"; a row of
                                                   # metric both: the figure stands beside both
    sibling: {source: …, rounds: 2000, values: {fedavg: [55.09]}}   # a second yardstick
    heatmaps: [fedavg, cwfedavg_output]            # rows whose norms a report draws side by side
    notes: [Printed under the table.]
    rounds: {cpu: 100}                             # by profile, instead of the profile's
    seeds: {cpu: [0, 1]}

Options count in the order table, column, row, cell, profile: the later wins; seed, rounds and
run_dir are none of them. Cells that resolve to the same configuration share one run. Figures are
test accuracies in percent.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cwfed.messages.texts import require_name
from cwfed.report.fields import Fields, check, choose
from cwfed.report.published import Published, Tolerance, take_published, take_tolerance

CHOICES = ("best", "last", "val_selected")
METRICS: Mapping[str, tuple[str, ...]] = {
    "received": ("received",),
    "post_local": ("post_local",),
    "both": ("received", "post_local"),
}
Options = Mapping[str, Any]


@dataclass(frozen=True)
class Column:
    """A setting: data, partition, model."""

    name: str
    title: str
    config: str
    tolerance: Tolerance
    options: Options
    generated: Options


@dataclass(frozen=True)
class Row:
    """A method, and which of a run's accuracies it is judged by."""

    name: str
    title: str
    algorithm: str
    metrics: tuple[str, ...]
    options: Options
    cells: Mapping[str, Options]


@dataclass(frozen=True)
class Table:
    """A grid of cells; see the module for the file it is read from.

    Attributes:
        paper: Published figures by row and column.
        sibling: Figures of other papers, by row and column.
        sibling_title: Where those are from.
        heatmaps: Rows whose output layers are drawn side by side.
        rounds: By name of a profile.
        seeds: By name of a profile.
    """

    name: str
    title: str
    source: str
    protocol_rounds: int
    choice: str
    options: Options
    columns: Mapping[str, Column]
    rows: Mapping[str, Row]
    first: tuple[str, ...]
    paper: Mapping[tuple[str, str], Published]
    sibling: Mapping[tuple[str, str], float | None]
    sibling_title: str
    heatmaps: tuple[str, ...]
    notes: tuple[str, ...]
    rounds: Mapping[str, int] = field(default_factory=dict)
    seeds: Mapping[str, list[int]] = field(default_factory=dict)

    def published(self, row: str, column: str) -> Published:
        """Return a cell's published figure; its value is None where there is none."""
        return self.paper.get((row, column)) or Published(None, self.columns[column].tolerance)

    def tolerance_notes(self) -> list[str]:
        """Return where tolerances are from, for those that say so."""
        named: dict[Tolerance, list[str]] = {}
        for name, column in self.columns.items():
            named.setdefault(column.tolerance, []).append(name)
        for (row, name), published in self.paper.items():
            if published.tolerance != self.columns[name].tolerance:
                named.setdefault(published.tolerance, []).append(f"{row}/{name}")
        return [f"Tolerance of {', '.join(n)}: {t}." for t, n in named.items() if t.source]

    def cell_options(self, row: str, column: str) -> dict[str, Any]:
        """Return a cell's options: the table's, the column's, the row's and its own, in order."""
        own = self.rows[row]
        return {
            **self.options,
            **self.columns[column].options,
            **own.options,
            **own.cells.get(column, {}),
        }


def read_table(path: Path) -> Table:
    """Read a table, and check whatever is in it.

    Raises:
        ValueError: Something is wrong; the message names file and field.
    """
    # Imported here: a list of the tables' names needs none of what results need.
    from cwfed.records.files import read_yaml

    fields = Fields(read_yaml(path), f"{path}: ")
    tolerance = take_tolerance(fields, Tolerance(1.0))
    columns = _each(fields, "columns", lambda name, own: _column(name, own, tolerance))
    rows = _each(fields, "rows", lambda name, own: _row(name, own, columns))
    paper = _paper(fields, rows, columns)
    sibling = Fields(fields.take("sibling", "a mapping", {"values": {}}), f"{path}: sibling.")
    choice = choose(fields.take("choice", "a text", "best"), CHOICES, f"{path}: choice")
    table = Table(
        path.stem,
        fields.take("title", "a text"),
        fields.take("source", "a text", *([] if paper else [""])),
        fields.take("protocol_rounds", "an integer >= 1", 1000),
        choice,
        fields.take("options", "a mapping", {}),
        columns,
        rows,
        _some_rows(fields, "first", rows),
        paper,
        _sibling(sibling, rows, columns),
        _sibling_title(sibling),
        _some_rows(fields, "heatmaps", rows),
        _notes(fields),
        _by_profile(fields, "rounds", "an integer >= 1"),
        _by_profile(fields, "seeds", "a list of integers >= 0"),
    )
    fields.finish()
    sibling.finish()
    return table


def _each(fields: Fields, name: str, read: Any) -> dict[str, Any]:
    values = fields.take(name, "a mapping")
    if not values:
        raise ValueError(f"{fields.where}{name}: expected at least one, got an empty mapping")
    made = {}
    for key, value in values.items():
        # Cells are called row/column, and their files by these names.
        require_name(f"{fields.where}{name}", key)
        own = Fields(value, f"{fields.where}{name}.{key}.")
        made[key] = read(key, own)
        own.finish()
    return made


def _column(name: str, own: Fields, tolerance: Tolerance) -> Column:
    return Column(
        name,
        own.take("title", "a text", name),
        own.take("config", "a text"),
        take_tolerance(own, tolerance),
        own.take("options", "a mapping", {}),
        own.take("generated", "a mapping", {}),
    )


def _row(name: str, own: Fields, columns: Mapping[str, Column]) -> Row:
    metric = choose(own.take("metric", "a text", ""), [*METRICS], f"{own.where}metric")
    cells = own.take("cells", "a mapping", {})
    for column, options in cells.items():
        choose(column, [*columns], f"{own.where}cells")
        check(options, "a mapping", f"{own.where}cells.{column}")
    return Row(
        name,
        own.take("title", "a text", name),
        own.take("algorithm", "a text", name),
        METRICS[metric],
        own.take("options", "a mapping", {}),
        cells,
    )


def _some_rows(fields: Fields, kind: str, rows: Mapping[str, Row]) -> tuple[str, ...]:
    names = fields.take(kind, "a list", [])
    return tuple(choose(str(name), [*rows], f"{fields.where}{kind}") for name in names)


def _grid(
    values: Mapping[str, Any], rows: Mapping[str, Row], columns: Mapping[str, Column], where: str
) -> dict[tuple[str, str], Any]:
    grid: dict[tuple[str, str], Any] = {}
    for row, entries in values.items():
        choose(row, [*rows], where)
        if len(check(entries, "a list", f"{where}.{row}")) != len(columns):
            raise ValueError(
                f"{where}.{row}: expected {len(columns)} entries, one a column, got {len(entries)}"
            )
        grid |= {(row, column): value for column, value in zip(columns, entries, strict=True)}
    return grid


def _paper(
    fields: Fields, rows: Mapping[str, Row], columns: Mapping[str, Column]
) -> dict[tuple[str, str], Published]:
    where = f"{fields.where}paper"
    grid = _grid(fields.take("paper", "a mapping", {}), rows, columns, where)
    return {
        (row, column): take_published(value, columns[column].tolerance, f"{where}.{row}.{column}")
        for (row, column), value in grid.items()
    }


def _notes(fields: Fields) -> tuple[str, ...]:
    notes = fields.take("notes", "a list", [])
    return tuple(check(note, "a text", f"{fields.where}notes") for note in notes)


def _sibling(
    own: Fields, rows: Mapping[str, Row], columns: Mapping[str, Column]
) -> dict[tuple[str, str], float | None]:
    grid = _grid(own.take("values", "a mapping"), rows, columns, f"{own.where}values")
    for (row, column), value in grid.items():
        if value is not None:
            check(value, "a percentage", f"{own.where}values.{row}.{column}")
    return grid


def _sibling_title(own: Fields) -> str:
    source = own.take("source", "a text", "")
    rounds = own.take("rounds", "an integer >= 1", None)
    return f"{source}, {rounds:,} rounds" if rounds else source


def _by_profile(fields: Fields, name: str, kind: str) -> dict[str, Any]:
    values: dict[str, Any] = fields.take(name, "a mapping", {})
    return {
        profile: check(value, kind, f"{fields.where}{name}.{profile}")
        for profile, value in values.items()
    }

"""Content of a table: figures of finished runs beside published ones, with a verdict each.

Runs of fewer rounds than the protocol's, or on generated data, never stand in the same section as
those that follow it, and are never judged against published figures.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Any

from cwfed.analysis.ranking import Ranking, rank
from cwfed.analysis.words import seeds_text
from cwfed.records.round_lines import METRICS
from cwfed.sweeps.tables import Column, Published, Row, Table

SCALED, MISSING, UNKNOWN = "scaled", "missing", "n/a"

Cells = Mapping[tuple[str, str], str]
"""Hash of a cell's configuration, by row and column."""


@dataclass(frozen=True)
class Entry:
    """One number of a table.

    Attributes:
        metric: ``received`` or ``post_local``.
        values: Percent, one a seed.
        lines: The runs, as lines of the ledger.
        leads: It is the best of those that it can be compared with.
    """

    row: Row
    column: Column
    metric: str
    values: tuple[float, ...]
    lines: tuple[Mapping[str, Any], ...]
    published: Published
    sibling: float | None
    verdict: str
    leads: bool = False

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds of the runs, ascending."""
        return tuple(line["seed"] for line in self.lines)

    @property
    def mean(self) -> float | None:
        """Mean over seeds."""
        return fmean(self.values) if self.values else None

    @property
    def std(self) -> float | None:
        """Sample standard deviation over seeds (ddof 1); None for fewer than two."""
        return stdev(self.values) if len(self.values) > 1 else None

    @property
    def difference(self) -> float | None:
        """Ours less the published figure, in percentage points."""
        return self.published.difference(self.mean)


@dataclass(frozen=True, eq=False)
class Section:
    """The entries of a table at one number of rounds.

    Attributes:
        scaled: Not the protocol's rounds, or not its data.
        generated: Not its data.
        note: What bold figures mean, where they need not be the highest.
    """

    table: Table
    rounds: int
    scaled: bool
    generated: bool
    entries: tuple[Entry, ...]
    note: str = ""

    @property
    def label(self) -> str:
        """The words that every heading of these figures has."""
        if not self.scaled:
            return f"{self.rounds:,} rounds"
        label = f"{self.rounds:,} of {self.table.protocol_rounds:,} rounds"
        return f"{label}, generated data" if self.generated else label

    def columns(self) -> list[Column]:
        """Return the columns that have entries."""
        return list({entry.column.name: entry.column for entry in self.entries}.values())

    @property
    def partitions(self) -> str:
        """The partitions of the runs; empty where there are no runs."""
        said = sorted({partition_text(line) for line in self.runs()} - {""})
        return f"Partition: {'; '.join(said)}." if said else ""

    def runs(self) -> list[Mapping[str, Any]]:
        """Return the runs behind the figures, each once."""
        return list({line["key"]: line for entry in self.entries for line in entry.lines}.values())


def partition_text(line: Mapping[str, Any]) -> str:
    """Return in words how the partition of a run came about; empty where the line does not say.

    Args:
        line: The run, as a line of the ledger.
    """
    origin = line.get("partition")
    if origin:
        kind = origin.get("partitioner", "unknown")
        others = [f"{name} {value}" for name, value in origin.items() if name != "partitioner"]
        return ", ".join(map(str, [kind, *others]))
    kind = str((line["config"].get("partition") or {}).get("class_path") or "").rpartition(".")[2]
    if kind == "FromManifest":
        return "from a file"
    return f"{kind}, drawn from the run's seed" if kind else ""


def judge(mean: float | None, published: Published, *, scaled: bool) -> str:
    """Return the verdict on a figure.

    Args:
        mean: Ours, in percent; None if there is none.
        published: What it is held against.
        scaled: It does not follow the protocol.
    """
    why_not = MISSING if mean is None else SCALED if scaled else UNKNOWN
    return published.judge(mean, scaled=scaled) or why_not


def sections(
    table: Table, cells: Cells, lines: Iterable[Mapping[str, Any]], *, generated: bool
) -> list[Section]:
    """Sort finished runs into a table's sections: the full protocol first, then scaled ones.

    Args:
        table: The table.
        cells: Its cells.
        lines: Lines of the ledger and of other finished runs.
        generated: The cells are those on generated data.
    """
    wanted = set(cells.values())
    found: dict[int, dict[str, dict[int, Mapping[str, Any]]]] = {}
    for line in lines:
        if line["cell"] in wanted:
            at_rounds = found.setdefault(line["rounds"], {})
            at_rounds.setdefault(line["cell"], {}).setdefault(line["seed"], line)
    full = table.protocol_rounds
    order = [] if generated else [full]
    order += sorted((rounds for rounds in found if rounds not in order), reverse=True)
    return [
        _section(table, cells, found.get(rounds, {}), rounds, generated=generated)
        for rounds in order
    ]


def _section(
    table: Table,
    cells: Cells,
    runs: Mapping[str, Mapping[int, Mapping[str, Any]]],
    rounds: int,
    *,
    generated: bool,
) -> Section:
    scaled = generated or rounds != table.protocol_rounds
    entries = []
    for column in table.columns.values():
        seen: set[str] = set()
        for row in table.rows.values():
            cell = cells[row.name, column.name]
            # Scaled sections show both metrics: two readings of one run would be the same rows.
            if scaled and cell in seen:
                continue
            # What is missing is told by the section of the full protocol.
            if scaled and not generated and not runs.get(cell):
                continue
            seen.add(cell)
            lines = [line for _, line in sorted(runs.get(cell, {}).items())]
            for metric in METRICS if scaled else row.metrics:
                entries.append(_entry(table, row, column, metric, lines, scaled=scaled))
    groups = _compared(entries, scaled=scaled)
    leaders = {number for ranked in groups.values() for number in ranked.leaders}
    marked = [replace(entry, leads=n in leaders) for n, entry in enumerate(entries)]
    note = _note(entries, groups)
    return Section(table, rounds, scaled, generated, tuple(marked), note)


def _entry(
    table: Table,
    row: Row,
    column: Column,
    metric: str,
    lines: Sequence[Mapping[str, Any]],
    *,
    scaled: bool,
) -> Entry:
    quoted = [line for line in lines if line["metrics"][metric][table.choice]]
    values = tuple(100 * line["metrics"][metric][table.choice]["accuracy"] for line in quoted)
    published = table.published(row.name, column.name)
    sibling = table.sibling.get((row.name, column.name))
    if metric not in row.metrics:
        published, sibling = Published(None, published.tolerance), None
    verdict = judge(fmean(values) if values else None, published, scaled=scaled)
    return Entry(row, column, metric, values, tuple(quoted), published, sibling, verdict)


_Groups = dict[tuple[str, str], Ranking[int]]
"""Rankings of entries, by their place, for each column and, where both are shown, metric."""


def _compared(entries: Sequence[Entry], *, scaled: bool) -> _Groups:
    groups: dict[tuple[str, str], dict[int, dict[int, float | None]]] = {}
    for number, entry in enumerate(entries):
        figures: dict[int, float | None] = dict(zip(entry.seeds, entry.values, strict=True))
        group = (entry.column.name, entry.metric if scaled else "")
        groups.setdefault(group, {})[number] = figures
    return {group: rank(scores) for group, scores in groups.items()}


def _note(entries: Sequence[Entry], groups: _Groups) -> str:
    """Return on which seeds columns are ranked whose methods have not all the same."""
    titles = {entry.column.name: entry.column.title for entry in entries}
    texts = []
    for (column, metric), ranked in groups.items():
        rows = {*ranked.apart, *(number for number, _ in ranked.order)}
        if len({entries[number].seeds for number in rows}) < 2:
            continue
        on = f"on {seeds_text(ranked.seeds)}" if ranked.order else "no seed in common"
        apart = ", ".join(
            f"{entries[n].row.title} has {seeds_text(own)}" for n, (own, _) in ranked.apart.items()
        )
        group = f"{titles[column]}{', ' * bool(metric)}{metric.replace('_', '-')}"
        texts.append(f"{group}: {on}{f' (not ranked: {apart})' if apart else ''}")
    return f"Bold: the best of the methods that can be compared. {'; '.join(texts)}." * bool(texts)


def remarks(table: Table, cells: Cells, lines: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return what a reader must know of the runs: partitions that differ, runs set aside."""
    column_of = {cell: column for (_, column), cell in cells.items()}
    partitions: dict[tuple[str, int], set[str]] = {}
    aside = 0
    for line in lines:
        column = column_of.get(line["cell"])
        if column:
            partitions.setdefault((column, line["seed"]), set()).add(line["partition_hash"])
        elif line.get("table") == table.name:
            aside += 1
    notes = [
        f"Column {column}, seed {seed}: the runs do not share one partition ("
        f"{', '.join(sorted(each[:8] for each in hashes))}); they cannot be compared."
        for (column, seed), hashes in sorted(partitions.items())
        if len(hashes) > 1
    ]
    if aside:
        notes.append(f"{aside} runs of other configurations of this table are set aside.")
    return notes

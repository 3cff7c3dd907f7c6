"""Tables as files: figures from the ledger and from run folders, beside the published ones."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.curves import plot_column
from benchmarks.finished import describe_run, find_finished
from benchmarks.formats import latex, markdown, to_csv
from benchmarks.jobs import Resolver, expand
from benchmarks.ledger import read_ledger
from benchmarks.profiles import Profile
from benchmarks.summary import Cells, Section, remarks, sections
from benchmarks.tables import Table
from cwfed.results import write_atomic

Line = dict[str, Any]


def gather(ledger: Path, runs: Path | None) -> list[Line]:
    """Return all finished runs: the ledger's lines, then those of folders that it does not have.

    Raises:
        UsageError: The ledger is damaged.
        ValueError: A run folder is.
    """
    lines = read_ledger(ledger)
    known = {line["key"] for line in lines}
    folders = find_finished(runs) if runs else {}
    return lines + [
        describe_run(paths[0], {}) for key, paths in sorted(folders.items()) if key not in known
    ]


def cells_of(table: Table, profile: Profile, resolver: Resolver) -> Cells:
    """Return the hashes of a table's cells."""
    jobs = expand(table, profile, resolver, seeds=[0])
    return {(job.row, job.column): job.cell for job in jobs}


def write_report(
    tables: Sequence[Table],
    profile: Profile,
    lines: Sequence[Line],
    output: Path,
    resolver: Resolver,
) -> list[Path]:
    """Write each table as .md, .tex and .csv, and its curves as .png; return the files."""
    output.mkdir(parents=True, exist_ok=True)
    written = []
    for table in tables:
        cells = cells_of(table, profile, resolver)
        found = sections(table, cells, lines, generated=profile.generated)
        plots = _plot(found, output)
        texts = {
            "md": markdown(table, found, remarks(table, cells, lines), plots),
            "tex": latex(found),
            "csv": to_csv(found),
        }
        for suffix, text in texts.items():
            path = output / f"{table.name}.{suffix}"
            write_atomic(path, text)
            written.append(path)
        written += [output / name for names in plots.values() for name in names]
    return written


def _plot(found: Sequence[Section], output: Path) -> dict[Section, list[str]]:
    plots: dict[Section, list[str]] = {}
    for section in found:
        kind = "-generated" * section.generated
        for column in section.table.columns.values():
            name = f"{section.table.name}-{column.name}-{section.rounds}r{kind}.png"
            if plot_column(section, column, output / name):
                plots.setdefault(section, []).append(name)
    return plots

"""Tables as files: figures from the ledger and from run folders, beside the published ones."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cwfed.records.atomic import write_atomic
from cwfed.sweeps.curves import plot_column
from cwfed.sweeps.finished import describe_run
from cwfed.sweeps.formats import latex, markdown, to_csv
from cwfed.sweeps.jobs import Resolver, expand
from cwfed.sweeps.ledger import read_ledger
from cwfed.sweeps.norms import Folders, plot_norms
from cwfed.sweeps.profiles import Profile
from cwfed.sweeps.summary import Cells, Section, remarks, sections
from cwfed.sweeps.tables import Table

Line = dict[str, Any]


def gather(ledger: Path, folders: Folders, damaged: list[str]) -> list[Line]:
    """Return all finished runs: the ledger's lines, then those of folders that it does not have.

    Args:
        ledger: The ledger; may be missing.
        folders: Finished runs by key; of those of one key, the first that is whole counts.
        damaged: Takes a sentence for each folder that is passed over since it is damaged.

    Raises:
        UsageError: The ledger is damaged.
    """
    lines = read_ledger(ledger)
    known = {line["key"] for line in lines}
    for key, paths in sorted(folders.items()):
        if key not in known:
            lines += _described(paths, damaged)
    return lines


def _described(paths: Sequence[Path], damaged: list[str]) -> list[Line]:
    """Return the line of the first run that is whole, if there is one."""
    for path in paths:
        try:
            return [describe_run(path, {})]
        except ValueError as error:
            damaged.append(str(error))
    return []


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
    folders: Folders,
) -> list[Path]:
    """Write each table as .md, .tex and .csv, its curves and norms as .png; return the files.

    Args:
        tables: Which.
        profile: Which settings.
        lines: Finished runs, see `gather`.
        output: Where to write.
        resolver: Resolves configurations.
        folders: Where runs are whose norms can be drawn.
    """
    output.mkdir(parents=True, exist_ok=True)
    written = []
    for table in tables:
        cells = cells_of(table, profile, resolver)
        found = sections(table, cells, lines, generated=profile.generated)
        plots, missing = _plot(found, folders, output)
        texts = {
            "md": markdown(table, found, [*remarks(table, cells, lines), *missing], plots),
            "tex": latex(found),
            "csv": to_csv(found),
        }
        for suffix, text in texts.items():
            path = output / f"{table.name}.{suffix}"
            write_atomic(path, text)
            written.append(path)
        written += [output / name for names in plots.values() for name in names]
    return written


def _plot(
    found: Sequence[Section], folders: Folders, output: Path
) -> tuple[dict[Section, list[str]], list[str]]:
    """Draw all figures; return their names by section, and why some are missing."""
    plots: dict[Section, list[str]] = {}
    missing = []
    for section in found:
        kind = "-generated" * section.generated
        for column in section.columns():
            name = f"{section.table.name}-{column.name}-{section.rounds}r{kind}"
            if not plot_column(section, column, output / f"{name}.png"):
                continue
            plots.setdefault(section, []).append(f"{name}.png")
            if section.table.heatmaps:
                reasons = plot_norms(section, column, folders, output / f"{name}-norms.png")
                missing += reasons
                plots[section] += [f"{name}-norms.png"] * (not reasons)
    return plots, missing

"""Heat maps of the output layers' norms: what runs show of their clients' label distributions.

Drawn from run folders, since the ledger keeps no norms.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from cwfed.plots import figure_bytes
from cwfed.records.atomic import write_atomic
from cwfed.records.run import Run
from cwfed.report.plots import heatmap_figure
from cwfed.sweeps.summary import Section
from cwfed.sweeps.tables import Column

Folders = Mapping[str, Sequence[Path]]
"""Folders of finished runs, by hash of their configuration."""


def plot_norms(section: Section, column: Column, folders: Folders, path: Path) -> list[str]:
    """Draw the label distributions beside p~ of the rows that the table names, in one figure.

    All panels show the lowest seed that every row has: other seeds divide the data otherwise.

    Args:
        section: Finished runs at one number of rounds.
        column: Whose runs.
        folders: Where the runs are.
        path: The figure, written if every row has a run.

    Returns:
        What keeps the figure from being drawn, a sentence each; nothing if it is drawn.
    """
    found = {row: _runs(section, column, row, folders) for row in section.table.heatmaps}
    shared = set.intersection(*(set(runs) for runs in found.values()))
    if shared:
        runs = [of_row[min(shared)] for of_row in found.values()]
        write_atomic(path, figure_bytes(heatmap_figure(runs)))
        return []
    missing = [row for row, runs in found.items() if not runs]
    what = f"{', '.join(missing)}: no run folder with snapshots" if missing else "no shared seed"
    return [f"Norms of column {column.name}, {section.label}, are not drawn; {what}."]


def _runs(section: Section, column: Column, row: str, folders: Folders) -> dict[int, Run]:
    """Return the runs of a cell that have snapshots, by seed."""
    lines = {
        line["seed"]: line["key"]
        for entry in section.entries
        if entry.column == column and entry.row.name == row
        for line in entry.lines
    }
    runs = {}
    for seed, key in lines.items():
        # Of copies of a run, an older one may lack snapshots.
        copies = map(Run.load, folders.get(key, ()))
        run = next((copy for copy in copies if copy.snapshot_rounds), None)
        if run:
            runs[seed] = run
    return runs

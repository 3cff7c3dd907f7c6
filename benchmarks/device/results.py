"""Results of cells: a table and an archive, small enough to be carried away."""

import io
import os
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.device.fits import Fit, seconds_of
from cwfed.records.atomic import write_atomic
from cwfed.records.result import select
from cwfed.records.round_lines import METRICS, read_lines

KEPT = ("config.yaml", "rounds.jsonl", "result.json", "clients.csv", "partition.json")
MOST_BYTES = 16 * 2**20
_LABELS = {"received": "received", "post_local": "after local training"}

HEADER = (
    "| cell | state | rounds | "
    + " | ".join(f"{_LABELS[m]}, best (round) | {_LABELS[m]}, last" for m in METRICS)
    + f" | seconds a round |\n|{'---|' * (4 + 2 * len(METRICS))}\n"
)


@dataclass
class Cell:
    """A run of the table: a method on a configuration.

    Attributes:
        name: ``config/algorithm``.
        folder: Its run folder.
        state: ``waiting``, ``running``, ``finished``, ``unfinished``, ``failed`` or
            ``not started``.
        why: More about the state.
        fit: Its process, once there is one.
    """

    name: str
    folder: Path
    state: str = "waiting"
    why: str = ""
    fit: Fit | None = field(default=None, repr=False)

    @property
    def config(self) -> str:
        """Return the name of its configuration."""
        return self.name.rpartition("/")[0]

    @property
    def algorithm(self) -> str:
        """Return the name of its method."""
        return self.name.rpartition("/")[2]

    def lines(self) -> list[dict[str, Any]]:
        """Return its rounds so far."""
        return read_lines(self.folder / "rounds.jsonl")


def table(cells: Sequence[Cell], rounds: int) -> str:
    """Return a Markdown table: finished cells, then those cut short, then the others."""
    order = ("finished", "running", "unfinished", "failed", "waiting", "not started")
    ordered = sorted(cells, key=lambda cell: order.index(cell.state))
    return HEADER + "".join(_row(cell, rounds) for cell in ordered)


def _row(cell: Cell, rounds: int) -> str:
    lines = cell.lines()
    state = f"{cell.state}: {cell.why}" if cell.why else cell.state
    if cell.state in ("running", "unfinished") and lines:
        state += ", figures so far"
    accuracies = [
        text for metric in METRICS for text in _accuracies(select(lines, metric) if lines else {})
    ]
    seconds = seconds_of(lines)
    reached = lines[-1]["round"] if lines else 0
    pace = "n/a" if seconds is None else f"{seconds:.3f}"
    return f"| {' | '.join([cell.name, state, f'{reached} of {rounds}', *accuracies, pace])} |\n"


def _accuracies(chosen: Mapping[str, Any]) -> tuple[str, str]:
    best, last = chosen.get("best"), chosen.get("last")
    if not best or not last:
        return "n/a", "n/a"
    return f"{100 * best['accuracy']:.2f} ({best['round']})", f"{100 * last['accuracy']:.2f}"


def publish(cells: Sequence[Cell], rounds: int, about: str, output: Path) -> None:
    """Write ``cells.md`` and ``cells.tar.gz``, each whole or as it was."""
    write_atomic(output / "cells.md", f"{about}\n\n{table(cells, rounds)}")
    archive = _archive(cells, KEPT)
    if len(archive) > MOST_BYTES:
        # A partition can be made again from the configuration; rounds cannot.
        archive = _archive(cells, KEPT[:-1])
    # Hidden, so that what a kill leaves behind is not taken for a result.
    unfinished = output / ".cells.tar.gz"
    unfinished.write_bytes(archive)
    os.replace(unfinished, output / "cells.tar.gz")


def _archive(cells: Sequence[Cell], names: Sequence[str]) -> bytes:
    memory = io.BytesIO()
    with tarfile.open(fileobj=memory, mode="w:gz") as archive:
        for cell in cells:
            for name in names:
                if (cell.folder / name).is_file():
                    _add(
                        archive,
                        cell.folder / name,
                        f"{cell.folder.parent.name}/{cell.folder.name}/{name}",
                    )
    return memory.getvalue()


def _add(archive: tarfile.TarFile, path: Path, name: str) -> None:
    # Read first: a file that grows meanwhile would not have the size in its header.
    content = path.read_bytes()
    info = tarfile.TarInfo(name)
    info.size, info.mtime = len(content), int(path.stat().st_mtime)
    archive.addfile(info, io.BytesIO(content))

"""The shipped tables, and those of a user, as jobs.

The format of a table's file is described at the top of `cwfed.report.tables`, which reads it.

Paths (``config``, ``algorithm``, options) and modules of your own (``class_path: mine.HalfWay``)
are looked for from the folder in which the command is given, not from that of the table. A run is
known by its options: neither the code of your classes nor the place of a data set or manifest is
part of them. After a change of code give the method another name, or new ``--runs`` and
``--ledger``; cells that differ only in a path belong into tables with ``--runs`` and ``--ledger``
of their own (a run on another partition is noticed and refused).
"""

from collections.abc import Mapping
from pathlib import Path

from benchmarks.fields import choose, usage_errors
from benchmarks.profiles import PROFILES
from cwfed.config.files import UsageError, user_path
from cwfed.report.tables import Column, Published, Row, Table, read_table

__all__ = ["Column", "Published", "Row", "Table", "load_table", "load_tables", "shipped"]

FOLDER = Path(__file__).parent / "tables"


def shipped() -> dict[str, Path]:
    """Return the files of the shipped tables by name."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.yaml"))}


def load_tables(names: list[str]) -> list[Table]:
    """Read tables by name or path; no names mean all shipped ones.

    Raises:
        UsageError: There is no such table, or something is wrong in it.
    """
    files = shipped()
    return [load_table(_file(name, files)) for name in names or files]


def _file(name: str, files: Mapping[str, Path]) -> Path:
    path = user_path(name, "table")
    if path.is_file():
        return path
    if name not in files and (path.suffix or path.name != name):
        raise UsageError(f"table: expected the path of an existing YAML file, got {name!r}")
    return files[choose(name, [*files, "PATH.yaml"], "table")]


def load_table(path: Path) -> Table:
    """Read a table.

    Raises:
        UsageError: Something is wrong; the message names file and field.
    """
    with usage_errors():
        table = read_table(path)
    for name, by_profile in (("rounds", table.rounds), ("seeds", table.seeds)):
        for profile in by_profile:
            choose(profile, [*PROFILES], f"{path}: {name}")
    return table

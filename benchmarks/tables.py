"""The shipped tables, and those of a user, as jobs.

The format of a table's file is described at the top of `cwfed.report.tables`, which reads it.
"""

from pathlib import Path

from benchmarks.fields import choose, usage_errors
from benchmarks.profiles import PROFILES
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
    return [
        load_table(Path(name) if Path(name).is_file() else files[choose(name, [*files], "table")])
        for name in names or files
    ]


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

"""Tables as jobs: shipped ones, and those of a user.

The format of a table's file is described at the top of `cwfed.report.tables`, which reads it.

Paths (``config``, ``algorithm``, options) and modules of your own (``class_path: mine.HalfWay``)
are looked for from the folder in which the command is given, not from that of the table. A run is
known by its options: neither the code of your classes nor the place of a data set or manifest is
part of them. After a change of code give the method another name, or new ``--runs`` and
``--ledger``; cells that differ only in a path belong into tables with ``--runs`` and ``--ledger``
of their own (a run on another partition is noticed and refused).
"""

from pathlib import Path

from cwfed.report.tables import Column, Published, Row, Table, read_table
from cwfed.sweeps.fields import choose, usage_errors
from cwfed.sweeps.profiles import PROFILES

__all__ = ["Column", "Published", "Row", "Table", "load_table"]


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

"""A suite of tables: which are shipped with a command, and where its finished runs are kept."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cwfed.config.files import UsageError, user_path
from cwfed.report.tables import Table
from cwfed.sweeps.fields import choose
from cwfed.sweeps.tables import load_table


@dataclass(frozen=True)
class Suite:
    """Tables that belong to a command, and the ledger of their runs.

    Tables of a user's own are no part of it: what they make is kept beside their runs.

    Attributes:
        command: What a person types, such as ``cwfed tables``.
        folder: Folder of the shipped tables' YAML files; None where none is shipped.
        ledger: File that keeps finished runs of the shipped tables; None where none is shipped.
    """

    command: str
    folder: Path | None = None
    ledger: Path | None = None

    def shipped(self) -> dict[str, Path]:
        """Return the files of the shipped tables by name."""
        return (
            {path.stem: path for path in sorted(self.folder.glob("*.yaml"))} if self.folder else {}
        )

    def load_tables(self, names: Sequence[str]) -> list[Table]:
        """Read tables by name or path; no names mean all shipped ones.

        Raises:
            UsageError: There is no such table, or something is wrong in it.
        """
        files = self.shipped()
        if not names and not files:
            raise UsageError("table: expected the path of a YAML file, got none")
        return [load_table(self.find(name)) for name in names or files]

    def find(self, name: str) -> Path:
        """Return the file of a table, by its name or path.

        Raises:
            UsageError: There is no such table.
        """
        path, files = user_path(name, "table"), self.shipped()
        if path.is_file():
            return path
        if name not in files and (not files or path.suffix or path.name != name):
            raise UsageError(f"table: expected the path of an existing YAML file, got {name!r}")
        return files[choose(name, [*files, "PATH.yaml"], "table")]

    def ledger_of(self, names: Sequence[str], runs: Path) -> Path:
        """Return where finished runs of some tables are kept.

        Args:
            names: Names or paths of the tables; none means all shipped ones.
            runs: Folder of the runs.
        """
        own = any(self.find(name) not in self.shipped().values() for name in names)
        return runs / "ledger.jsonl" if own or self.ledger is None else self.ledger

"""``cwfed tables``: grids of methods and settings, as jobs that can be stopped and repeated."""

from collections.abc import Sequence

from cwfed.sweeps.main import main as run_command
from cwfed.sweeps.suite import Suite

_DESCRIPTION = """\
Runs grids of methods and settings, and writes them as tables.

  cwfed tables run mine.yaml --profile cpu           run what is not done yet
  cwfed tables status mine.yaml                      what is done, failed, left
  cwfed tables report mine.yaml -o DIR               Markdown, LaTeX, CSV and curves
  cwfed tables verify mine.yaml/ROW/COLUMN           run a number again and compare

A table is a YAML file of your own; its format stands at the top of cwfed/report/tables.py. Give a
command's tables before --only and --seeds, which take several values.
"""


def tables(arguments: Sequence[str]) -> int:
    """Run a command for tables of a user's own."""
    return run_command(Suite("cwfed tables"), _DESCRIPTION, arguments)

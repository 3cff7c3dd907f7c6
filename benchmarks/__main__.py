"""``python -m benchmarks``: the tables of the paper as jobs that can be stopped, repeated, checked.

  list [TABLE]                      the tables, their columns and methods; the profiles
  run TABLE --profile cpu           run what is not done yet
  status TABLE --profile cpu        what is done, failed, left
  report TABLE -o DIR               Markdown, LaTeX, CSV and curves
  spread                            how much runs differ over partitions and seeds
  verify TABLE/ROW/COLUMN           run a number of the ledger again and compare
  dashboard TABLE --project P       a W&B workspace and report of runs made with --wandb P

A TABLE is the name of a shipped table or the path of a YAML file of your own (its format stands
at the top of cwfed/report/tables.py); none means all shipped tables. Give a command's tables before
--only and --seeds, which take several values. For tables that others wrote: `--trusted_modules A B`
(see `cwfed fit --help`). Exit codes: 0, 1 (a job failed, a number does not match), 2 (a mistake),
130 (Ctrl-C).
"""

import sys
from collections.abc import Sequence

from benchmarks.suite import SUITE
from cwfed.sweeps.main import main as run_command


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return its exit code: 0, 1 (failed, mismatch), 2 (a mistake) or 130."""
    return run_command(SUITE, str(__doc__), arguments)


if __name__ == "__main__":
    sys.exit(main())

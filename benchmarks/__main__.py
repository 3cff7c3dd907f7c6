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

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from benchmarks.options import add_commands, list_tables
from cwfed.config.files import UsageError
from cwfed.config.trust import VARIABLE, restrict_imports, searching, take_trusted
from cwfed.launch.exit_codes import INTERRUPTED, USAGE_ERROR
from cwfed.messages.terminal import Terminal
from cwfed.messages.texts import one_line


class _Parser(argparse.ArgumentParser):
    """A parser whose complaints are one line."""

    def error(self, message: str) -> NoReturn:
        """Raise a UsageError."""
        raise UsageError(message)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return its exit code: 0, 1 (failed, mismatch), 2 (a mistake) or 130."""
    parser = _Parser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_commands(parser)
    command = "benchmarks"
    try:
        trusted, rest = take_trusted(sys.argv[1:] if arguments is None else arguments)
        options = parser.parse_args(rest)
        command = f"benchmarks {options.command}"
        with searching(trusted):
            return _run(options, trusted)
    except (UsageError, ValueError, OSError) as error:
        Terminal(stderr=True).say(f"{command}: error: {one_line(str(error))}")
        return USAGE_ERROR
    except SystemExit as stop:
        # --help ends like this.
        return int(stop.code or 0)
    except KeyboardInterrupt:
        return INTERRUPTED


def _run(options: argparse.Namespace, trusted: Sequence[str] | None) -> int:
    """Hold this process and those that it starts to the trusted modules; run the command."""
    if trusted is not None:
        restrict_imports(trusted)
        os.environ[VARIABLE] = " ".join(trusted)
    if options.command == "list":
        return list_tables(options.tables)
    # Imported here, since it takes seconds, and a mistyped option should not.
    from benchmarks.commands import COMMANDS

    return COMMANDS[options.command](options)


if __name__ == "__main__":
    sys.exit(main())

"""A command for tables of runs, whichever tables it knows."""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from cwfed.config.files import UsageError
from cwfed.config.trust import VARIABLE, restrict_imports, searching, take_trusted
from cwfed.launch.exit_codes import INTERRUPTED, USAGE_ERROR
from cwfed.messages.terminal import Terminal
from cwfed.messages.texts import one_line
from cwfed.sweeps.options import add_commands, list_tables
from cwfed.sweeps.suite import Suite


class _Parser(argparse.ArgumentParser):
    """A parser whose complaints are one line."""

    def error(self, message: str) -> NoReturn:
        """Raise a UsageError."""
        raise UsageError(message)


def main(suite: Suite, description: str, arguments: Sequence[str] | None = None) -> int:
    """Run a command; return its exit code: 0, 1 (failed, mismatch), 2 (a mistake) or 130.

    Args:
        suite: The tables that the command knows.
        description: What it says of itself.
        arguments: What was typed after its name; None takes the process's.
    """
    parser = _Parser(
        prog=suite.command,
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_commands(parser, suite)
    name = command = suite.command.removeprefix("python -m ")
    try:
        trusted, rest = take_trusted(sys.argv[1:] if arguments is None else arguments)
        options = parser.parse_args(rest)
        command = f"{name} {options.command}"
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
        return list_tables(options.suite, options.tables)
    # Imported here, since it takes seconds, and a mistyped option should not.
    from cwfed.sweeps.commands import COMMANDS

    return COMMANDS[options.command](options)

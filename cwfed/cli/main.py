"""``cwfed fit``, ``partition``, ``plot``, ``report`` and ``tables``."""

import os
import sys
from argparse import ArgumentParser as TopParser
from argparse import RawDescriptionHelpFormatter
from collections.abc import Sequence
from importlib import import_module

from cwfed import __version__
from cwfed.config.files import UsageError
from cwfed.config.guard import DEBUG, explain_os
from cwfed.config.trust import restrict_imports, searching, take_trusted
from cwfed.launch.exit_codes import FAILED, INTERRUPTED, USAGE_ERROR
from cwfed.messages.shortage import shortage
from cwfed.messages.showing import showing_messages
from cwfed.messages.terminal import Terminal
from cwfed.messages.texts import one_line

_DESCRIPTION = """\
Personalised federated learning: cwFedAvg and its rivals.

  cwfed fit --config cifar100_practical              train
  cwfed fit --config mnist_practical --algorithm fedavg --rounds 5 --run_dir runs/fedavg
  cwfed fit --resume runs/fedavg                     continue after an interruption
  cwfed partition --config mnist_practical --plot split.png
  cwfed report runs -o report.html                   a page of all runs below a folder
  cwfed plot heatmap runs/fedavg                     draw a run
  cwfed tables run mine.yaml                         run a grid of methods and settings

`cwfed fit --help` lists every option; `--print_config` shows the configuration it resolves to.
"""

LONGEST_MESSAGE = 1000

COMMANDS = {
    "fit": ("fit", "fit"),
    "partition": ("partition", "partition"),
    "plot": ("plot", "plot"),
    "report": ("report", "report"),
    "tables": ("tables", "tables"),
}
"""Module and function of each command."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return its exit code: 0, 2 for a user's mistake, 130 when interrupted.

    1 is for what broke: a full disk, memory that is used up.
    """
    top = TopParser(
        prog="cwfed", description=_DESCRIPTION, formatter_class=RawDescriptionHelpFormatter
    )
    top.add_argument("--version", action="version", version=f"cwfed {__version__}")
    top.add_argument("command", choices=tuple(COMMANDS), help="what to do")
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given:
        top.print_help(sys.stderr)
        return USAGE_ERROR
    try:
        with showing_messages():
            return _run(top.parse_args(given[:1]).command, given[1:])
    except SystemExit as stop:
        # --help and --print_config end like this, and argparse's own complaints.
        return int(stop.code or 0)


def _run(command: str, arguments: Sequence[str]) -> int:
    try:
        if command == "tables":  # has commands of its own, whose processes must know whom to trust
            return int(import_module("cwfed.cli.tables").tables(arguments))
        trusted, arguments = take_trusted(arguments)
        with searching(trusted):
            # Imported here, since they take seconds and --help and --version need neither.
            module, name = COMMANDS[command]
            run = getattr(import_module(f"cwfed.cli.{module}"), name)
            if trusted is not None:
                restrict_imports(trusted)
            return int(run(arguments))
    except UsageError as error:
        _complain(command, str(error))
        return USAGE_ERROR
    except KeyboardInterrupt:
        _complain(command, "interrupted before the first round")
        return INTERRUPTED
    except Exception as error:
        lacking = shortage(error)
        if lacking is None and isinstance(error, OSError) and error.errno is not None:
            lacking = f"cannot go on: {explain_os(error)}"
        if lacking is None or os.environ.get(DEBUG):
            raise
        _complain(command, lacking)
        return FAILED


def _complain(command: str, message: str) -> None:
    text = one_line(message)
    short = text if len(text) <= LONGEST_MESSAGE else f"{text[:LONGEST_MESSAGE]} …"
    line = f"cwfed {command}: error: {short}"
    try:
        Terminal(stderr=True).say(line)
    except MemoryError:
        os.write(2, f"{line}\n".encode())

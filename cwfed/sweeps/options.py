"""The options of commands for tables; read in no time, since nothing here needs PyTorch."""

from argparse import ArgumentParser, ArgumentTypeError
from math import inf, nan
from pathlib import Path

from cwfed.messages.terminal import Terminal
from cwfed.sweeps.deadline import duration
from cwfed.sweeps.profiles import PROFILES
from cwfed.sweeps.suite import Suite

RUNS = Path("runs") / "benchmarks"
_DEFAULT = "default: %(default)s"
_LEDGER = (
    "file that keeps finished runs; default: that of the shipped tables; for tables of your own "
    "and the profile smoke, ledger.jsonl in the folder of the runs"
)


def add_commands(parser: ArgumentParser, suite: Suite) -> None:
    """Add the commands and their options.

    Args:
        parser: The parser.
        suite: The tables that it is for.
    """
    parser.set_defaults(suite=suite)
    table = "path of a table's YAML file"
    if suite.folder:
        table = "name of a shipped table, or path of a YAML file; none: all shipped tables"
    commands = parser.add_subparsers(dest="command", required=True)
    listing = commands.add_parser("list", help="the tables and profiles")
    listing.add_argument("tables", nargs="*", metavar="TABLE", help=table)
    for name, about in (
        ("run", "run what is not done yet"),
        ("status", "what is done, failed, left"),
        ("report", "write tables and curves"),
    ):
        command = commands.add_parser(name, help=about)
        command.add_argument("tables", nargs="*", metavar="TABLE", help=table)
        _add_profile(command)
        command.add_argument("--runs", default=str(RUNS), help=f"folder of the runs; {_DEFAULT}")
        command.add_argument("--ledger", default=None, help=_LEDGER)
        if name == "report":
            command.add_argument("-o", "--output", required=True, help="folder for the files")
        else:
            _add_selection(command)
        if name == "run":
            _add_running(command)
    _add_spread(commands.add_parser("spread", help="how much runs differ that should not"))
    _add_verify(commands.add_parser("verify", help="run a number again and compare"))
    _add_dashboard(commands.add_parser("dashboard", help="a W&B workspace and report"), table)


def list_tables(suite: Suite, names: list[str]) -> int:
    """Print tables, all shipped ones if none is named, and the profiles."""
    terminal = Terminal()
    tables = suite.load_tables(names) if names or suite.folder else []
    if tables:
        terminal.say("Tables:")
    for table in tables:
        size = f"{len(table.rows)} methods x {len(table.columns)} columns"
        terminal.say(f"  {table.name:22} {table.title} ({size})")
        terminal.say(f"  {'':22} columns: {', '.join(table.columns)}")
        terminal.say(f"  {'':22} methods: {', '.join(table.rows)}")
    terminal.say("Profiles:")
    for profile in PROFILES.values():
        terminal.say(f"  {profile.name:22} {profile.about}")
    return 0


def shard(text: str) -> tuple[int, int]:
    """Read ``i/n``, counted from 1.

    Raises:
        ArgumentTypeError: It is something else.
    """
    index, slash, count = text.partition("/")
    if slash and index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count):
        return int(index), int(count)
    raise ArgumentTypeError(f"expected i/n with 1 <= i <= n, such as 2/4, got {text!r}")


def natural(text: str) -> int:
    """Read an integer >= 0.

    Raises:
        ArgumentTypeError: It is something else.
    """
    if not text.isdecimal():
        raise ArgumentTypeError(f"expected an integer >= 0, got {text!r}")
    return int(text)


def positive(text: str) -> int:
    """Read an integer >= 1.

    Raises:
        ArgumentTypeError: It is something else.
    """
    if not text.isdecimal() or not int(text):
        raise ArgumentTypeError(f"expected an integer >= 1, got {text!r}")
    return int(text)


def points(text: str) -> float:
    """Read percentage points: a finite number >= 0.

    Raises:
        ArgumentTypeError: It is something else.
    """
    try:
        value = float(text)
    except ValueError:
        value = nan
    if not 0 <= value < inf:
        raise ArgumentTypeError(f"expected a finite number >= 0, got {text!r}")
    return value


def _add_profile(command: ArgumentParser) -> None:
    profiles = f"one of {', '.join(PROFILES)}; default: cpu"
    command.add_argument("--profile", default="cpu", help=profiles)


def _add_selection(command: ArgumentParser) -> None:
    command.add_argument(
        "--only",
        nargs="+",
        metavar="METHOD/COLUMN",
        help="cells such as fedavg/mnist; fedavg: a method in all columns; /mnist: a column",
    )
    instead = "instead of those of the table or profile"
    command.add_argument("--seeds", nargs="+", type=natural, metavar="SEED", help=instead)
    command.add_argument("--rounds", type=positive, help=instead)
    command.add_argument("--data_dir", metavar="DIR", help="folder of the data, as for cwfed fit")
    command.add_argument(
        "--shard", type=shard, help="i/n: the i-th of n disjoint parts, for array jobs"
    )


def _add_running(command: ArgumentParser) -> None:
    command.add_argument(
        "--budget",
        type=duration,
        metavar="TIME",
        help="stop after 90s, 30m or 8h (a mere number: seconds); the same command continues",
    )
    jobs = f"processes at a time, one a GPU; {_DEFAULT}"
    command.add_argument("--jobs", type=positive, default=1, help=jobs)
    command.add_argument("--retry", action="store_true", help="run failed jobs again")
    command.add_argument("--wandb", metavar="PROJECT", help="log the runs to Weights & Biases")
    command.add_argument("--wandb.entity", dest="wandb_entity", metavar="ENTITY")
    command.add_argument(
        "--wandb.mode", dest="wandb_mode", choices=("online", "offline", "disabled")
    )


def _add_dashboard(command: ArgumentParser, table: str) -> None:
    command.add_argument("tables", nargs="*", metavar="TABLE", help=table)
    _add_profile(command)
    command.add_argument("--project", required=True, help="the W&B project that holds the runs")
    command.add_argument("--entity", help="the user or team; default: the account's")
    where = command.add_mutually_exclusive_group()
    where.add_argument(
        "--print", action="store_true", help="print what would be sent, send nothing"
    )
    where.add_argument(
        "-o", "--output", metavar="FILE", help="write what would be sent, send nothing"
    )


def _add_spread(command: ArgumentParser) -> None:
    command.add_argument(
        "table",
        nargs="?",
        default="study_spread",
        metavar="TABLE",
        help=f"columns of one config are partitions of one setting; {_DEFAULT}",
    )
    _add_profile(command)
    command.add_argument("--rounds", type=positive, help="of the runs; default: the most there are")
    command.add_argument("--runs", default=str(RUNS), help=f"folder of the runs; {_DEFAULT}")
    command.add_argument("--ledger", default=None, help=_LEDGER)
    command.add_argument("-o", "--output", metavar="FILE", help="write it as .md, too")


def _add_verify(command: ArgumentParser) -> None:
    command.add_argument(
        "target",
        metavar="KEY|TABLE/ROW/COLUMN",
        help="the beginning of a line's key, as reports print it, or a cell; TABLE may be a path",
    )
    command.add_argument("--rounds", type=positive, help="only the first rounds")
    command.add_argument("--seed", type=natural, help="which, where a cell has several")
    command.add_argument(
        "--profile",
        help=f"the cell as this profile has it, one of {', '.join(PROFILES)}; default: any of them",
    )
    command.add_argument("--data_dir", metavar="DIR", help="folder of the data, as for cwfed fit")
    command.add_argument("--ledger", help=_LEDGER)
    command.add_argument(
        "--tolerance",
        type=points,
        default=1.5,
        help=f"percentage points, on another kind of machine; {_DEFAULT}",
    )
    for name, what in (("data", "data source"), ("partition", "partitioner (FromManifest)")):
        command.add_argument(
            f"--{name}.path",
            dest=f"{name}_path",
            metavar="PATH",
            help=f"for a run whose {what} reads a file; the ledger keeps hashes, not places",
        )

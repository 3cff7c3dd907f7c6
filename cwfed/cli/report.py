"""``cwfed report``: a page of one or many runs."""

from collections.abc import Mapping, Sequence
from typing import Any

from cwfed.cli.plain_parser import PlainParser
from cwfed.config.files import UsageError, as_arguments, order_arguments, output_file, user_path
from cwfed.config.guard import setting_up
from cwfed.config.parser import absolute_paths, add_fit_options, make_parser, parse, plain
from cwfed.data.partitioners.released import published_counterpart
from cwfed.messages.terminal import Terminal
from cwfed.report.page.discover import find_runs
from cwfed.report.page.html import write_page
from cwfed.report.page.paper import Cell, cell_key
from cwfed.report.page.payload import make_payload
from cwfed.report.tables import read_table
from cwfed.runs.experiment import blaming

_DESCRIPTION = """\
Write a page about one or many runs: tables, curves, clients, partitions and weight norms in one
HTML file that opens without a network. Folders are searched for runs.
"""


def report(arguments: Sequence[str]) -> int:
    """Write the page; return the exit code."""
    given = _parser().parse_args(list(arguments))
    terminal, notices = Terminal(), Terminal(stderr=True)
    with setting_up():
        output = output_file("--output", given.output, (".html", ".htm"))
        paths = [user_path(text, "RUN") for text in given.runs]
        with blaming("--paper"):
            tables = [read_table(user_path(text, "--paper")) for text in given.paper]
        found = find_runs(paths)
        for sentence in found.skipped:
            notices.say(sentence)
        payload = make_payload(found, tables, CellReader())
        size = write_page(payload, output)
    count = len(found.runs)
    terminal.say(f"{count} run{'s' * (count != 1)}, {size / 1e6:.1f} MB: {output}")
    return 0


class CellReader:
    """Tells which configuration a cell of a table stands for, as ``cwfed fit`` would read it."""

    def __init__(self) -> None:
        self.parser = make_parser("fit", "")
        add_fit_options(self.parser)

    def __call__(self, cell: Cell) -> list[str]:
        """Return the cell's keys: on its own partition and, if there is one, on the published.

        Raises:
            UsageError: The cell does not resolve.
        """
        config = self._resolve(cell, cell.options)
        keys = [cell_key(config)]
        if published := published_counterpart(config["partition"]):
            others = {k: v for k, v in cell.options.items() if k.partition(".")[0] != "partition"}
            arguments = {f"partition.{k}": v for k, v in published["init_args"].items()}
            chosen = {**others, "partition": published["class_path"], **arguments}
            keys.append(cell_key(self._resolve(cell, chosen)))
        return keys

    def _resolve(self, cell: Cell, options: Mapping[str, Any]) -> dict[str, Any]:
        arguments = ["--config", cell.config, "--algorithm", cell.algorithm]
        try:
            config = parse(self.parser, order_arguments([*arguments, *as_arguments(options)]))
            absolute_paths(config)
        except UsageError as error:
            raise UsageError(f"--paper: {cell.algorithm} on {cell.config}: {error}") from error
        return plain(self.parser, config)


def _parser() -> PlainParser:
    parser = PlainParser(prog="cwfed report", description=_DESCRIPTION)
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a run folder, or a folder of runs")
    parser.add_argument(
        "-o", "--output", default="report.html", help="the page; default: report.html"
    )
    parser.add_argument(
        "--paper",
        action="append",
        default=[],
        metavar="FILE",
        help="a table of published figures to stand beside the runs; can be repeated",
    )
    return parser

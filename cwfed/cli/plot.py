"""``cwfed plot``: figures of finished and running runs."""

from argparse import Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cwfed.cli.plain_parser import PlainParser
from cwfed.config.files import UsageError, output_file, user_path
from cwfed.config.guard import setting_up
from cwfed.messages.terminal import Terminal
from cwfed.plots.style import SUFFIXES, figure_bytes
from cwfed.records.atomic import write_atomic
from cwfed.records.round_lines import METRICS
from cwfed.records.run import Run
from cwfed.report import plots as figures
from cwfed.tracking.figure_writer import FIGURES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS: dict[str, Callable[..., "Figure"]] = {
    "heatmap": figures.heatmap_figure,
    "scatter": figures.scatter_figure,
    "mixing": figures.mixing_figure,
    "curves": figures.curves_figure,
    "clients": figures.clients_figure,
}
_WITH_ROUND = ("heatmap", "scatter", "mixing")
_WITH_METRIC = ("clients",)

_DESCRIPTION = """\
Draw runs.

  cwfed plot heatmap RUN [RUN…]   label distributions beside the norms of the output layers
  cwfed plot scatter RUN [RUN…]   the same, one against the other
  cwfed plot mixing RUN [RUN…]    who learned from whom
  cwfed plot curves RUN [RUN…]    accuracy and mean R over the rounds
  cwfed plot clients RUN [RUN…]   accuracy over the clients, a box for each run
"""


def plot(arguments: Sequence[str]) -> int:
    """Draw runs into a file."""
    options = _parser().parse_args(list(arguments))
    with setting_up():
        runs = [Run.load(user_path(text, "RUN")) for text in options.runs]
        path = _output(options, runs[0])
        figure = KINDS[options.kind](runs, **_choices(options))
        path.parent.mkdir(exist_ok=True)
        write_atomic(path, figure_bytes(figure, path.suffix))
    Terminal().say(f"drawn in {path}")
    return 0


def _parser() -> PlainParser:
    parser = PlainParser(
        prog="cwfed plot", description=_DESCRIPTION, formatter_class=RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=list(KINDS), help="what to draw")
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run folder")
    parser.add_argument(
        "--round",
        type=int,
        help=f"which round, for {', '.join(_WITH_ROUND)}; default: the last with a snapshot",
    )
    parser.add_argument(
        "--metric", choices=METRICS, help="which accuracy, for clients; default: received"
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help=f"a .png or .pdf; default: KIND.png below {FIGURES}/ in the first run folder",
    )
    return parser


def _choices(options: Namespace) -> dict[str, Any]:
    """Return what the kind of figure takes beside the runs.

    Raises:
        UsageError: An option is given that it does not take.
    """
    chosen: dict[str, Any] = {}
    for option, name, kinds in (
        ("round", "round_", _WITH_ROUND),
        ("metric", "metric", _WITH_METRIC),
    ):
        value = getattr(options, option)
        if value is None:
            continue
        if options.kind not in kinds:
            raise UsageError(
                f"--{option}: expected only with {' or '.join(kinds)}, got it with {options.kind}"
            )
        chosen[name] = value
    return chosen


def _output(options: Namespace, first: Run) -> Path:
    if options.output is None:
        return first.path / FIGURES / f"{options.kind}.png"
    return output_file("--output", options.output, SUFFIXES)

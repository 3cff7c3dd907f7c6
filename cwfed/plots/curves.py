"""Curves over the rounds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cwfed.plots.style import COLOURS, SMALL, new_figure, plain_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Line = Mapping[int, float]
"""Value by round."""


@dataclass(frozen=True)
class Curves:
    """Curves of one run.

    Attributes:
        label: Name of the run.
        accuracy: By metric (``received``, ``post_local``), the accuracy by round, in [0, 1].
        mean_r: Mean R by round.
    """

    label: str
    accuracy: Mapping[str, Line]
    mean_r: Line = field(default_factory=dict)


# After local training is what comes second: dashed.
_DASHES: Mapping[str, Any] = {"received": "-", "post_local": "--"}
_MOST_INSIDE = 4
"""Runs whose names find room among the curves; more stand beside them."""
_MARKERS = ("", "o", "s", "^")
_NAMES = {"received": "received", "post_local": "after local training"}


def curves_figure(runs: Sequence[Curves], *, title: str = "") -> "Figure":
    """Draw test accuracy, and mean R beside it where there is any, over the rounds.

    Args:
        runs: At least one; each has a colour.
        title: Above the panels.

    Raises:
        ValueError: There is no run, or none has a scored round.
    """
    if not any(line for run in runs for line in run.accuracy.values()):
        raise ValueError("runs: expected at least one scored round, got none")
    both = any(run.mean_r for run in runs)
    beside = len(runs) > _MOST_INSIDE
    figure = new_figure((9.0 if both else 5.6) + 1.6 * beside, 3.6 + 0.1 * max(len(runs) - 14, 0))
    panels = figure.subplots(1, 1 + both, squeeze=False, width_ratios=(1.5, 1.0)[: 1 + both])[0]
    panels[0].set_ylabel("test accuracy, %")
    for index, run in enumerate(runs):
        _draw_accuracy(panels[0], run, _style(index))
        if both:
            panels[1].plot(list(run.mean_r), list(run.mean_r.values()), **_style(index))
    if both:
        panels[1].set_ylabel("mean R")
        panels[1].set_ylim(bottom=0)
    for axes in panels:
        axes.set_xlabel("round")
        plain_axes(axes)
        _whole_rounds(axes)
    _legend(panels[0], runs)
    if title:
        figure.suptitle(title, fontsize=11)
    return figure


def _style(index: int) -> dict[str, Any]:
    """Return colour and marker of a run: a palette that is used up starts again with markers."""
    lap, place = divmod(index, len(COLOURS))
    marker = _MARKERS[lap % len(_MARKERS)]
    return {"color": COLOURS[place], "linewidth": 1.6, "marker": marker, "markersize": 3}


def _draw_accuracy(axes: "Axes", run: Curves, style: dict[str, Any]) -> None:
    for metric, line in run.accuracy.items():
        values = [100 * value for value in line.values()]
        # A line of one point would be invisible.
        marker = "o" if len(line) == 1 else style["marker"]
        dashes = _DASHES.get(metric, ":")
        axes.plot(list(line), values, **style | {"linestyle": dashes, "marker": marker})


def _whole_rounds(axes: "Axes") -> None:
    from matplotlib.ticker import MaxNLocator

    axes.margins(x=0.02)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, steps=[1, 2, 5, 10]))


def _legend(axes: "Axes", runs: Sequence[Curves]) -> None:
    from matplotlib.lines import Line2D

    metrics = list(dict.fromkeys(name for run in runs for name in run.accuracy))
    handles = [Line2D([], [], **_style(index)) for index in range(len(runs))]
    dashes = [Line2D([], [], color="0.3", linestyle=_DASHES.get(name, ":")) for name in metrics]
    labels = [run.label for run in runs] + [_NAMES.get(name, name) for name in metrics]
    if len(runs) <= _MOST_INSIDE:
        axes.legend(handles + dashes, labels, frameon=False, fontsize=SMALL, loc="best")
    else:
        assert axes.figure is not None
        axes.figure.legend(
            handles + dashes, labels, frameon=False, fontsize=SMALL, loc="outside right upper"
        )

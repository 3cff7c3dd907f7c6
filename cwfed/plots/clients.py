"""Accuracy over the clients.

Legend: M clients.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from cwfed.plots.style import COLOURS, new_figure, plain_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_GOLDEN = (5**0.5 - 1) / 2


def clients_figure(
    accuracies: Mapping[str, np.ndarray], *, metric: str = "received", title: str = ""
) -> "Figure":
    """Draw a box plot over the clients for each run, with a dot for each client.

    Args:
        accuracies: Test accuracy in [0, 1] by client, ``[M]``, by name of the run; at least one.
            NaN, a client without test samples, is left out.
        metric: What is scored, for the axis.
        title: Above.

    Raises:
        ValueError: There is no run, or one has no accuracy at all.
    """
    if not accuracies:
        raise ValueError("accuracies: expected at least one run, got none")
    columns = []
    for name, values in accuracies.items():
        values_M = np.asarray(values, dtype=np.float64)
        columns.append(100 * values_M[~np.isnan(values_M)])
        if not len(columns[-1]):
            raise ValueError(f"{name}: expected an accuracy for at least one client, got none")
    figure = new_figure(7.0, 0.62 * len(columns) + 1.4)
    axes = figure.subplots()
    _draw(axes, columns)
    # From top to bottom in the order given.
    axes.set_yticks(range(len(columns)), list(accuracies))
    axes.set_ylim(len(columns) - 0.4, -0.6)
    axes.set_xlabel(f"test accuracy of a client, %, {metric.replace('_', '-')}")
    if title:
        figure.suptitle(title, fontsize=11)
    return figure


def _draw(axes: "Axes", columns: list[np.ndarray]) -> None:
    axes.boxplot(
        columns,
        positions=range(len(columns)),
        orientation="horizontal",
        widths=0.55,
        showfliers=False,  # every client is a dot already
        medianprops={"color": "black", "linewidth": 1.6},
        boxprops={"color": "0.45"},
        whiskerprops={"color": "0.45"},
        capprops={"color": "0.45"},
    )
    for position, values in enumerate(columns):
        # Spread evenly, the same way every time.
        offsets = ((np.arange(len(values)) * _GOLDEN) % 1 - 0.5) * 0.4
        colour = COLOURS[position % len(COLOURS)]
        axes.scatter(
            values, position + offsets, s=16, color=colour, alpha=0.65, linewidths=0, zorder=3
        )
    plain_axes(axes)
    axes.grid(visible=False, axis="y")

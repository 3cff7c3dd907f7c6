"""p against p~: how well the norms of the output layers tell the labels.

Legend: M clients, K classes.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from cwfed.messages.checks import check_matrix
from cwfed.plots.heatmap import Heatmap
from cwfed.plots.style import COLOURS, grid_shape, new_figure, panel_grid, plain_axes, starts_row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def scatter_figure(
    p_MK: Sequence[np.ndarray], panels: Sequence[Heatmap], *, title: str = ""
) -> "Figure":
    """Draw a dot for each client and class: p from the labels, p~ from the output layer.

    On the diagonal the server reads the label distribution exactly.

    Args:
        p_MK: For each panel the labels' distributions, ``[M, K]``.
        panels: p~ of the output layers, ``[M, K]`` each, at least one.
        title: Above the panels.

    Raises:
        ValueError: There is no panel, or the shapes differ.
    """
    if not panels or len(p_MK) != len(panels):
        raise ValueError(f"panels: expected one for each p, got {len(panels)} for {len(p_MK)}")
    rows, columns = grid_shape(len(panels))
    figure = new_figure(3.4 * columns + 0.6, 3.7 * rows + 0.2)
    row = panel_grid(figure, len(panels), sharex=True, sharey=True)
    top = 0.0
    for axes, labels_MK, panel in zip(row, p_MK, panels, strict=True):
        held = check_matrix("p_MK", labels_MK)
        shares = check_matrix(panel.title, panel.values_MK, held.shape)
        _draw(axes, panel.title, held, shares)
        axes.tick_params(labelbottom=True)
        if starts_row(axes):
            axes.set_ylabel("share of the norms, p~")
        top = max(top, 1.05 * float(held.max()), 1.05 * float(shares.max()))
    row[0].set(xlim=(-0.02 * top, top), ylim=(-0.02 * top, top))
    if title:
        figure.suptitle(title, fontsize=11)
    return figure


def _draw(axes: "Axes", title: str, p_MK: np.ndarray, estimated_MK: np.ndarray) -> None:
    axes.axline((0, 0), slope=1, color="0.6", linewidth=1, zorder=1)
    axes.scatter(
        p_MK.ravel(),
        estimated_MK.ravel(),
        s=14,
        color=COLOURS[0],
        alpha=0.25 if p_MK.size > 1000 else 0.5,
        linewidths=0,
        # Thousands of dots would make a PDF of megabytes.
        rasterized=p_MK.size > 5000,
        zorder=2,
    )
    axes.set_title(title, fontsize=9)
    axes.set_xlabel("share of the labels, p")
    axes.set_aspect("equal")
    plain_axes(axes)

"""Heat maps: what the output layers encode beside what the clients hold.

Legend: M clients, K classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cwfed.messages.checks import check_matrix
from cwfed.plots.style import (
    SMALL,
    class_axis,
    client_ticks,
    grid_shape,
    new_figure,
    panel_grid,
    starts_row,
)
from cwfed.records.snapshot import norm_shares

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Heatmap:
    """One panel.

    Attributes:
        title: What it shows.
        values_MK: A distribution over the classes for every client, ``[M, K]``; NaN stays white.
    """

    title: str
    values_MK: np.ndarray

    @classmethod
    def of_norms(cls, title: str, norms_MK: np.ndarray) -> "Heatmap":
        """Return the panel of an output layer: the norms of its rows over their sum, p~."""
        return cls(title, norm_shares(norms_MK))


def heatmap_figure(
    panels: Sequence[Heatmap], *, classes: Sequence[str] = (), title: str = ""
) -> "Figure":
    """Draw distributions over classes by client, side by side on one colour scale.

    The first panel is usually the labels' p, the others p~ of output layers: with the weight
    distribution regulariser they look alike, without it p~ is nearly uniform.

    Args:
        panels: At least one; all ``[M, K]``.
        classes: K names, shown where there is room; empty for numbers.
        title: Above the panels.

    Returns:
        The figure: clients from left to right, classes from top to bottom.

    Raises:
        ValueError: There is no panel, they differ in shape, or the names are not K.

    Example:
        >>> eye = np.eye(3)
        >>> panels = [Heatmap("labels", eye), Heatmap.of_norms("output layer", eye + 1)]
        >>> len(heatmap_figure(panels).axes)  # with the colour bar
        3
    """
    if not panels:
        raise ValueError("panels: expected at least one, got none")
    shape = check_matrix(panels[0].title, panels[0].values_MK).shape
    values = [check_matrix(panel.title, panel.values_MK, shape) for panel in panels]
    if classes and len(classes) != shape[1]:
        raise ValueError(f"classes: expected {shape[1]} names, got {len(classes)}")
    figure = new_figure(*_size(len(panels), *shape))
    row = panel_grid(figure, len(panels), sharey=True)
    top = max(float(matrix[np.isfinite(matrix)].max(initial=0.0)) for matrix in values)
    for axes, panel, matrix in zip(row, panels, values, strict=True):
        _draw(axes, panel.title, matrix, top)
        if starts_row(axes):
            axes.set_ylabel("class")
    class_axis(row[0], shape[1], tuple(classes))
    bar = figure.colorbar(row[0].images[0], ax=list(row), pad=0.015, fraction=0.05)
    bar.set_label("share of a client", fontsize=SMALL)
    bar.ax.tick_params(labelsize=SMALL)
    if title:
        figure.suptitle(title, fontsize=11)
    return figure


def _draw(axes: "Axes", title: str, matrix_MK: np.ndarray, top: float) -> None:
    from matplotlib.colors import PowerNorm

    # The square root keeps small shares apart where one client holds little but one class.
    scale = PowerNorm(0.5, vmin=0, vmax=top or 1.0)
    axes.imshow(matrix_MK.T, cmap="viridis", norm=scale, aspect="auto", interpolation="nearest")
    axes.set_title(title, fontsize=9)
    axes.set_xlabel("client")
    axes.xaxis.set_major_locator(client_ticks(len(matrix_MK)))
    axes.tick_params(labelsize=SMALL)


def _size(panels: int, clients: int, classes: int) -> tuple[float, float]:
    width = min(max(0.17 * clients, 2.6), 5.0)
    height = min(max(0.24 * classes, 2.0), 5.0)
    rows, columns = grid_shape(panels)
    return columns * width + 1.6, rows * (height + 0.8) + 0.3

"""Who learns from whom, as matrices.

Legend: M clients.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from cwfed.messages.checks import check_matrix
from cwfed.plots.style import SMALL, client_ticks, grid_shape, new_figure, panel_grid, starts_row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GROUPS = {"output": "output layer", "base": "first layer"}
"""Names of the matrices in a run's snapshots, in words."""


def mixing_figure(matrices: Mapping[str, np.ndarray], *, title: str = "") -> "Figure":
    """Draw mixing matrices: row i holds the weights of all clients' uploads in what i receives.

    Args:
        matrices: ``[M, M]`` by the title of their panel, at least one; rows usually sum to 1.
        title: Above the panels.

    Returns:
        The figure: from left to right who is learned from, from top to bottom who learns. Each
        panel has a scale of its own, since an average of M clients has weights of about 1 / M.

    Raises:
        ValueError: There is no matrix, or one is not square.

    Example:
        >>> len(mixing_figure({"output layer": np.eye(3)}).axes)  # with the colour bar
        2
    """
    if not matrices:
        raise ValueError("matrices: expected at least one, got none")
    size = len(next(iter(matrices.values())))
    width = min(max(0.17 * size, 2.6), 4.6)
    rows, columns = grid_shape(len(matrices))
    figure = new_figure(columns * (width + 1.1) + 0.4, rows * (width + 0.8) + 0.3)
    row = panel_grid(figure, len(matrices))
    for axes, (name, values) in zip(row, matrices.items(), strict=True):
        _draw(axes, name, check_matrix(name, values, (size, size)))
        if starts_row(axes):
            axes.set_ylabel("who learns")
    if title:
        figure.suptitle(title, fontsize=11)
    return figure


def _draw(axes: "Axes", name: str, matrix_MM: np.ndarray) -> None:
    low, top = min(float(matrix_MM.min()), 0.0), float(matrix_MM.max())
    image = axes.imshow(matrix_MM, cmap="cividis", vmin=low, vmax=top, interpolation="nearest")
    axes.set_title(name, fontsize=9)
    axes.set_xlabel("from whom")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(client_ticks(len(matrix_MM)))
    axes.tick_params(labelsize=SMALL)
    assert axes.figure is not None
    bar = axes.figure.colorbar(image, ax=axes, fraction=0.046, pad=0.03)
    bar.ax.tick_params(labelsize=SMALL)

"""Heat maps for dashboards: what output layers reveal, and who learned from whom.

Legend: M clients, K classes.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TICKS_UP_TO = 20
_GROUPS = {"output": "output layer", "base": "first tensor of the model"}


def draw_distributions(p_MK: np.ndarray, norms_MK: np.ndarray, round_: int) -> np.ndarray:
    """Draw the clients' label distributions beside those that their output layers show.

    Args:
        p_MK: Label distributions, ``[M, K]``.
        norms_MK: Norms of the rows of the output layers' weights, ``[M, K]``.
        round_: The round, for the title.

    Returns:
        The picture, uint8 ``[height, width, 3]``.
    """
    clients, classes = p_MK.shape
    total_M1 = norms_MK.sum(1, keepdims=True)
    uniform_MK = np.full_like(norms_MK, 1 / classes)
    shown_MK = np.divide(norms_MK, total_M1, out=uniform_MK, where=total_M1 > 0)
    figure = _figure(2, classes / clients)
    left, right = figure.subplots(1, 2, sharey=True)
    # One scale for both, or what is faint in one would look strong in the other.
    top = float(max(p_MK.max(), np.nanmax(shown_MK, initial=0)))
    _heat_map(left, p_MK, "labels", ("class", "client"), top)
    _heat_map(right, shown_MK, "norms of the output layer, as shares", ("class", ""), top)
    figure.suptitle(f"Class distributions, round {round_}", fontsize=10)
    return _pixels(figure)


def draw_mixing(mixing: Mapping[str, np.ndarray], round_: int) -> np.ndarray:
    """Draw whose uploads went into what each client received.

    Args:
        mixing: Weights of all uploads (columns) in what each client received (rows), ``[M, M]``,
            by group: ``output``, ``base`` or both.
        round_: The round, for the title.

    Returns:
        The picture, uint8 ``[height, width, 3]``.
    """
    figure = _figure(len(mixing), 1.0)
    axes = np.atleast_1d(figure.subplots(1, len(mixing), sharey=True))
    for number, (group, weights_MM) in enumerate(mixing.items()):
        labels = ("upload of client", "" if number else "received by client")
        _heat_map(axes[number], weights_MM, _GROUPS[group], labels, float(weights_MM.max()))
    figure.suptitle(f"Who learned from whom, round {round_}", fontsize=10)
    return _pixels(figure)


def _figure(panels: int, ratio: float) -> "Figure":
    # Imported here: whoever draws nothing needs no matplotlib.
    from matplotlib.figure import Figure

    width = 3.6 * min(max(ratio, 0.8), 1.6)
    return Figure(figsize=(1.0 + panels * width, 4.0), dpi=110, layout="constrained")


def _heat_map(
    axes: "Axes", values: np.ndarray, title: str, labels: tuple[str, str], top: float
) -> None:
    from matplotlib.ticker import MaxNLocator, MultipleLocator

    image = axes.imshow(values, aspect="auto", interpolation="nearest", vmin=0, vmax=top or 1.0)
    axes.set_title(title, fontsize=9)
    axes.set(xlabel=labels[0], ylabel=labels[1])
    for axis, count in ((axes.xaxis, values.shape[1]), (axes.yaxis, values.shape[0])):
        few = count <= _TICKS_UP_TO
        axis.set_major_locator(MultipleLocator(1) if few else MaxNLocator(10, integer=True))
    axes.tick_params(labelsize=7)
    bar = axes.figure.colorbar(image, ax=axes, fraction=0.05, pad=0.02)
    bar.ax.tick_params(labelsize=7)


def _pixels(figure: "Figure") -> np.ndarray:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()

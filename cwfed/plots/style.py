"""Shared style of the plots: colours, ticks, sizes, and how they become bytes."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from cwfed.messages.texts import shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import Locator

SMALL = 8
"""Points of the tick labels and legends."""

# Okabe and Ito's palette less its yellow, told apart with any colour vision on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
SUFFIXES = (".png", ".pdf")
MOST_ACROSS = 4
_NAMES_UP_TO = 24
_LONGEST_NAME = 16


def new_figure(width: float, height: float) -> "Figure":
    """Return an empty figure, inches; pyplot knows nothing of it."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def grid_shape(panels: int) -> tuple[int, int]:
    """Return rows and columns of so many panels: as many across as a page is wide."""
    columns = min(panels, MOST_ACROSS)
    return -(-panels // columns), columns


def panel_grid(
    figure: "Figure", panels: int, *, sharex: bool = False, sharey: bool = False
) -> "list[Axes]":
    """Add panels row by row.

    Args:
        figure: The figure.
        panels: How many.
        sharex: One scale across for all.
        sharey: One scale upwards for all.
    """
    rows, columns = grid_shape(panels)
    grid = figure.subplots(rows, columns, sharex=sharex, sharey=sharey, squeeze=False).ravel()
    for empty in grid[panels:]:
        empty.remove()
    return list(grid[:panels])


def starts_row(axes: "Axes") -> bool:
    """Return whether a panel is the first of its row: the one that names the axis."""
    place = axes.get_subplotspec()
    return place is not None and place.is_first_col()


def figure_bytes(figure: "Figure", suffix: str = ".png", dpi: int = 150) -> bytes:
    """Return a figure as the content of a file, the same bytes for the same figure.

    Args:
        figure: The figure.
        suffix: ``.png`` or ``.pdf``.
        dpi: Pixels an inch of a PNG.

    Raises:
        ValueError: The suffix is another one.
    """
    if suffix.lower() not in SUFFIXES:
        raise ValueError(f"suffix: expected {' or '.join(SUFFIXES)}, got {suffix!r}")
    kind = suffix.lower().removeprefix(".")
    content = io.BytesIO()
    # Without the date, a figure that has not changed is a file that has not changed.
    metadata: dict[str, Any] | None = {"CreationDate": None} if kind == "pdf" else None
    with plain_text(figure):
        figure.savefig(content, format=kind, dpi=dpi, metadata=metadata)
    return content.getvalue()


@contextmanager
def plain_text(figure: "Figure") -> Iterator[None]:
    """Draw names as they are: two dollar signs in one would be taken for a formula.

    A file ``matplotlibrc`` in the current folder may ask for LaTeX, which would obey them.
    """
    from matplotlib import rc_context
    from matplotlib.text import Text
    from matplotlib.ticker import ScalarFormatter

    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        text.set_parse_math(False)
        text.set_usetex(False)
        # Of a sign that the font lacks, Matplotlib would send a warning, with the sign itself.
        text.set_text(shown(text.get_text()))
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            for formatter in (axis.get_major_formatter(), axis.get_minor_formatter()):
                if isinstance(formatter, ScalarFormatter):
                    formatter.set_usetex(False)
    # Ticks are made while the figure is drawn.
    with rc_context({"text.parse_math": False, "text.usetex": False}):
        yield


def client_ticks(count: int) -> "Locator":
    """Return ticks for clients or classes: each one of a few, round numbers of many."""
    from matplotlib.ticker import MaxNLocator, MultipleLocator

    few = MultipleLocator(1 if count <= 12 else 2)
    return few if count <= 20 else MaxNLocator(10, integer=True, steps=[1, 2, 5, 10])


def class_axis(axes: "Axes", count: int, names: tuple[str, ...]) -> None:
    """Label the y axis by class: by name where there is room for names."""
    if names and len(names) <= _NAMES_UP_TO:
        axes.set_yticks(range(count), [shorten(name) for name in names])
    else:
        axes.yaxis.set_major_locator(client_ticks(count))


def shorten(text: str, most: int = _LONGEST_NAME) -> str:
    """Return a text of at most so many characters; an ellipsis stands for the rest."""
    text = shown(text)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def plain_axes(axes: "Axes") -> None:
    """Take away the frame above and on the right; small ticks, a faint grid behind the data."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=SMALL)
    axes.grid(color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)

"""Curves: accuracy by round, one figure a column of a table."""

from pathlib import Path
from statistics import fmean
from textwrap import fill

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from cwfed.plots.style import COLOURS, figure_bytes
from cwfed.records.atomic import write_atomic
from cwfed.sweeps.summary import Entry, Section
from cwfed.sweeps.tables import Column

# Line styles tell apart what is beyond the palette.
_STYLES = ("-", "--", ":", "-.")
_LABELS = {"received": "received", "post_local": "post-local"}
_TITLE_WIDTH = 90
"""Characters of a title's line, as many as the figure is wide."""
_MARKED = 20
"""Curves of at most so many points show each: a single one has no line to be seen by."""


def mean_curve(entry: Entry) -> tuple[list[int], list[float]]:
    """Return rounds and accuracies in percent, means over the seeds of an entry.

    Rounds without an evaluation, and the initialisation of a metric that it does not have, are
    left out.
    """
    curves = [line["curves"][entry.metric] for line in entry.lines]
    points = [
        (number, 100 * fmean(values))
        for number, values in enumerate(zip(*curves, strict=True))
        if None not in values
    ]
    return [number for number, _ in points], [value for _, value in points]


def plot_column(section: Section, column: Column, path: Path) -> bool:
    """Draw the curves of a column into a PNG; say whether there was anything to draw."""
    shown = [
        entry
        for entry in section.entries
        if entry.column == column and entry.lines and entry.metric in entry.row.metrics
    ]
    if not shown:
        return False
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    for number, entry in enumerate(shown):
        rounds, accuracies = mean_curve(entry)
        style = _STYLES[number // len(COLOURS) % len(_STYLES)]
        label = f"{entry.row.title} ({_LABELS[entry.metric]})"
        colour = COLOURS[number % len(COLOURS)]
        marker = "o" if len(rounds) <= _MARKED else ""
        axes.plot(
            rounds, accuracies, style, color=colour, label=label, linewidth=1.3,
            marker=marker, markersize=3,
        )  # fmt: skip
    axes.set(xlabel="round", ylabel="test accuracy (%)")
    title = f"{section.table.title}: {column.title}, {section.label}"
    # Matplotlib measures the words that it wraps as formulas.
    axes.set_title(fill(title, _TITLE_WIDTH), fontsize=10)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="0.9", linewidth=0.5)
    axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    write_atomic(path, figure_bytes(figure))
    return True

"""Who holds what: a partition as a table for the terminal and as a figure.

Legend: M clients, K classes.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from torch import Tensor

from cwfed.data.manifest import label_counts
from cwfed.functional.skew import Skew, measure_skew
from cwfed.plots.style import SUFFIXES, figure_bytes, new_figure, shorten
from cwfed.records.atomic import write_atomic
from cwfed.records.manifest import PARTS, Manifest

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import Locator

_NUMBERS_UP_TO = 20
_SHADES = "░▒▓█"
_NAMES_UP_TO = 24
# Okabe and Ito's palette, told apart with any colour vision.
_BLUE, _SKY, _ORANGE = "#0072B2", "#56B4E9", "#E69F00"
_PART_COLOURS = {"train": _BLUE, "val": _SKY, "test": _ORANGE}


def skew(manifest: Manifest, labels: Tensor) -> Skew:
    """Measure a partition's skew over all parts together.

    Args:
        manifest: The partition.
        labels: The data set's labels, int64 ``[N]``.

    Returns:
        The measures.

    Raises:
        ValueError: If the labels are not N.
    """
    return measure_skew(label_counts(manifest, labels, PARTS))


def partition_table(
    manifest: Manifest, labels: Tensor, class_names: Sequence[str], width: int
) -> RenderableType:
    """Lay a partition out for the terminal: one client a row, with sizes, and its skew below.

    Up to 20 classes the table shows sample counts where they fit the width; else each client gets
    a strip of shade characters, one for each class or for a few neighbouring ones.

    Args:
        manifest: The partition.
        labels: The data set's labels, int64 ``[N]``.
        class_names: K names.
        width: Columns of the terminal.

    Returns:
        What a rich console prints.

    Raises:
        ValueError: If the labels are not N or the names are not K.
    """
    _check_names(manifest, class_names)
    counts_MK = label_counts(manifest, labels, PARTS).numpy()
    sizes = _sizes(manifest)
    room = width - _sizes_width(sizes)
    cell = max(len(f"{counts_MK.max()}"), len(f"{manifest.num_classes - 1}")) + 1
    if manifest.num_classes <= _NUMBERS_UP_TO and manifest.num_classes * cell <= room:
        body, legend = _numbers(counts_MK, class_names, cell), _names_line(class_names)
    else:
        body, legend = _strips(counts_MK, max(room, 1))
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    for name in ("client", *sizes):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column(body[0], no_wrap=True)
    for client, row in enumerate(body[1:]):
        table.add_row(str(client), *(str(column[client]) for column in sizes.values()), row)
    measured = Text(f"Skew: {measure_skew(label_counts(manifest, labels, PARTS))}")
    return Group(table, Text(), legend, measured)


def plot_partition(
    manifest: Manifest, labels: Tensor, class_names: Sequence[str], path: str | Path
) -> None:
    """Draw a partition: bubbles of clients x classes, under a bar of each client's size.

    The area of a bubble is proportional to the number of samples of that class on that client.

    Args:
        manifest: The partition.
        labels: The data set's labels, int64 ``[N]``.
        class_names: K names.
        path: A ``.png`` or ``.pdf`` file to write; its folder must exist.

    Raises:
        ValueError: If the suffix is another one, the folder is missing, the labels are not N or
            the names are not K.
    """
    target = Path(path)
    if target.suffix.lower() not in SUFFIXES:
        raise ValueError(f"path: expected a file ending in .png or .pdf, got {target.name!r}")
    if not target.parent.is_dir():
        raise ValueError(f"path: expected an existing folder, got {target.parent}")
    _check_names(manifest, class_names)
    counts_MK = label_counts(manifest, labels, PARTS)
    figure = new_figure(*_figure_size(*counts_MK.shape))
    bars, bubbles = figure.subplots(2, 1, sharex=True, height_ratios=(1.0, _ratio(figure)))
    _draw_sizes(bars, _sizes(manifest))
    _draw_bubbles(bubbles, counts_MK.numpy(), class_names)
    clients, classes = counts_MK.shape
    figure.suptitle(f"{manifest.dataset_name}: {clients} clients, {classes} classes", fontsize=11)
    bars.set_title(str(measure_skew(counts_MK)), fontsize=8, color="0.3")
    write_atomic(target, figure_bytes(figure, target.suffix))


def _check_names(manifest: Manifest, class_names: Sequence[str]) -> None:
    if len(class_names) != manifest.num_classes:
        raise ValueError(
            f"class_names: expected {manifest.num_classes} names, got {len(class_names)}"
        )


def _sizes(manifest: Manifest) -> dict[str, np.ndarray]:
    sizes = {
        part: np.array([len(getattr(client, part)) for client in manifest.clients])
        for part in PARTS
    }
    return {part: column for part, column in sizes.items() if part != "val" or column.any()}


def _sizes_width(sizes: dict[str, np.ndarray]) -> int:
    # Each column is as wide as its widest cell and one space.
    widths = [max(len(name), len(str(column.max()))) + 1 for name, column in sizes.items()]
    return len("client ") + sum(widths)


def _numbers(counts_MK: np.ndarray, class_names: Sequence[str], cell: int) -> list[Text]:
    header = Text("".join(f"{class_:>{cell}}" for class_ in range(len(class_names))))
    rows = [Text("".join(f"{n or '·':>{cell}}" for n in row)) for row in counts_MK.tolist()]
    return [header, *rows]


def _names_line(class_names: Sequence[str]) -> Text:
    if all(name == str(class_) for class_, name in enumerate(class_names)):
        return Text("Columns are classes.")
    # No blank within a pair: it stays whole when the line wraps.
    pairs = (f"{class_}:{name}" for class_, name in enumerate(class_names))
    return Text("Classes: " + ", ".join(pairs))


def _strips(counts_MK: np.ndarray, room: int) -> tuple[list[Text], Text]:
    num_classes = counts_MK.shape[1]
    per_bin = -(-num_classes // room)
    starts = np.arange(0, num_classes, per_bin)
    binned = np.add.reduceat(counts_MK, starts, axis=1)
    # Each shade reaches twice as far as the one before: linear shades leave skewed counts all pale.
    edges = [-(-max(int(binned.max()), 1) // share) for share in (8, 4, 2, 1)]
    levels = np.where(binned > 0, np.searchsorted(edges, binned) + 1, 0)
    rows = [Text("".join(("·" + _SHADES)[level] for level in row)) for row in levels.tolist()]
    ranges = [
        f"{shade} {below + 1}–{edge}"
        for shade, below, edge in zip(_SHADES, [0, *edges[:-1]], edges, strict=True)
        if below < edge
    ]
    each = "a class" if per_bin == 1 else f"{per_bin} classes"
    return [_ruler(starts), *rows], Text(f"Each mark is {each}: · 0  {'  '.join(ranges)} samples")


def _ruler(starts: np.ndarray) -> Text:
    ruler = ""
    for position, start in enumerate(starts.tolist()):
        if position % 10 == 0 and position + len(str(start)) <= len(starts):
            ruler = ruler.ljust(position) + str(start)
    return Text(ruler)


def _figure_size(clients: int, classes: int) -> tuple[float, float]:
    width = min(max(0.3 * clients + 2.2, 6.0), 14.0)
    height = min(max(0.28 * classes + 2.0, 4.0), 13.0)
    return width, height


def _ratio(figure: "Figure") -> float:
    # The bars keep about 0.9 inch whatever the height.
    return max((figure.get_figheight() - 1.6) / 0.9 - 1.0, 2.0)


def _draw_sizes(axes: "Axes", sizes: dict[str, np.ndarray]) -> None:
    bottom = np.zeros(len(sizes["train"]), dtype=np.int64)
    for part, column in sizes.items():
        axes.bar(
            np.arange(len(column)),
            column,
            bottom=bottom,
            width=0.8,
            color=_PART_COLOURS[part],
            label=part,
        )
        bottom = bottom + column
    axes.set_ylabel("samples")
    _legend(axes)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)


def _draw_bubbles(axes: "Axes", counts_MK: np.ndarray, class_names: Sequence[str]) -> None:
    clients, classes = counts_MK.shape
    figure_width, figure_height = _figure_size(clients, classes)
    # 72 points an inch. Dense grids let bubbles overlap, or most would be specks.
    cell = 72 * min((figure_width - 2.0) / clients, (figure_height - 2.0) / classes)
    diameter = min(max(1.8 * cell, 9.0), 20.0)
    # Scatter's s is the square of a diameter in points: area follows the count.
    scale = diameter**2 / max(int(counts_MK.max()), 1)
    style: dict[str, Any] = {"color": _BLUE, "alpha": 0.7, "linewidths": 0}
    x, y = np.nonzero(counts_MK)
    axes.scatter(x, y, s=scale * counts_MK[x, y], **style)
    for count in _legend_counts(int(counts_MK.max())):
        axes.scatter([], [], s=scale * count, label=str(count), **style)
    _legend(axes, title="samples", labelspacing=max(diameter / 14, 0.6))
    axes.set(xlabel="client", ylabel="class", xlim=(-0.7, clients - 0.3))
    axes.set_ylim(classes - 0.4, -0.6)
    axes.xaxis.set_major_locator(_ticks(clients))
    if classes <= _NAMES_UP_TO:
        axes.set_yticks(range(classes), [shorten(name) for name in class_names])
    else:
        axes.yaxis.set_major_locator(_ticks(classes))
    axes.grid(color="0.9", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=8)


def _legend(axes: "Axes", **options: Any) -> None:
    axes.legend(
        frameon=False,
        fontsize=8,
        title_fontsize=8,
        loc="upper left",
        bbox_to_anchor=(1.0, 1.0),
        **options,
    )


def _ticks(count: int) -> "Locator":
    from matplotlib.ticker import MaxNLocator, MultipleLocator

    return MultipleLocator(1) if count <= 20 else MaxNLocator(12, integer=True, steps=[1, 2, 5, 10])


def _legend_counts(top: int) -> list[int]:
    # The largest, a quarter and a sixteenth, to one digit: areas the eye can tell apart.
    rough = (max(top // share, 1) for share in (16, 4, 1))
    return sorted(
        {count // 10 ** (len(str(count)) - 1) * 10 ** (len(str(count)) - 1) for count in rough}
    )

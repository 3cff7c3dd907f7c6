"""Figures of runs: what a run folder holds, drawn by `cwfed.plots`."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from cwfed import plots as figures
from cwfed.plots import Curves, Heatmap
from cwfed.plots.mixing import GROUPS
from cwfed.records.names import ROUNDS
from cwfed.records.run import Run
from cwfed.records.snapshot import Snapshot

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Metric = Literal["received", "post_local"]


def heatmap_figure(runs: Run | Sequence[Run], round_: int | None = None) -> "Figure":
    """Draw p of the labels beside p~ of the clients' output layers.

    Args:
        runs: A run, or several side by side, such as one with the weight distribution regulariser
            and one without. Runs on the same division share the panel of the labels.
        round_: The round, by default each run's last with a snapshot.

    Raises:
        ValueError: A run has no label counts, no snapshot of the round, or other numbers of
            clients or classes than the first.
    """
    runs = _several(runs)
    shots = _snapshots(runs, round_)
    _same_shape(runs)
    names = labels_of(runs)
    panels: list[Heatmap] = []
    for run, shot, name in zip(runs, shots, names, strict=True):
        if not panels or not np.array_equal(run.p_MK, runs[0].p_MK):
            panels.append(Heatmap("labels p" if not panels else f"labels p\n{name}", run.p_MK))
        panels.append(_panel(run, shot, name))
    return figures.heatmap_figure(panels, classes=runs[0].classes, title=_title(runs))


def scatter_figure(runs: Run | Sequence[Run], round_: int | None = None) -> "Figure":
    """Draw p of the labels against p~ of the output layers, a dot for each client and class.

    Args:
        runs: A run, or several side by side.
        round_: The round, by default each run's last with a snapshot.

    Raises:
        ValueError: A run has no label counts, or no snapshot of the round.
    """
    runs = _several(runs)
    shots = _snapshots(runs, round_)
    panels = [
        _panel(run, shot, name)
        for run, shot, name in zip(runs, shots, labels_of(runs), strict=True)
    ]
    return figures.scatter_figure([run.p_MK for run in runs], panels, title=_title(runs))


def mixing_figure(runs: Run | Sequence[Run], round_: int | None = None) -> "Figure":
    """Draw who learned from whom, for the output layer and for the first layer.

    Args:
        runs: A run, or several side by side.
        round_: The round, by default each run's last with a snapshot.

    Raises:
        ValueError: A run has no snapshot of the round, or its method mixes nothing in it.
    """
    runs = _several(runs)
    matrices: dict[str, np.ndarray] = {}
    for run, shot, name in zip(runs, _snapshots(runs, round_), labels_of(runs), strict=True):
        if not shot.mixing:
            raise ValueError(
                f"{run.path}: nothing was mixed in round {shot.round}; expected a round after 0 of "
                f"a method whose clients learn from each other"
            )
        for group, matrix in shot.mixing.items():
            matrices[f"{GROUPS.get(group, group)}\n{name}, round {shot.round}"] = matrix
    sizes = {len(matrix) for matrix in matrices.values()}
    if len(sizes) > 1:
        raise ValueError(f"runs: expected one number of clients, got {sorted(sizes)}")
    return figures.mixing_figure(matrices, title=_title(runs))


def curves_figure(runs: Run | Sequence[Run]) -> "Figure":
    """Draw accuracy and mean R over the rounds.

    Args:
        runs: A run or several.

    Raises:
        ValueError: No run has a scored round.
    """
    runs = _several(runs)
    curves = []
    for run, name in zip(runs, labels_of(runs), strict=True):
        accuracy = {
            metric: _column(run, f"{metric}/accuracy") for metric in ("received", "post_local")
        }
        curves.append(Curves(name, accuracy, _column(run, "mean_R")))
    if not any(line for curve in curves for line in curve.accuracy.values()):
        raise ValueError(f"{runs[0].path / ROUNDS}: expected a scored round, got none")
    return figures.curves_figure(curves, title=_title(runs))


def clients_figure(runs: Run | Sequence[Run], metric: Metric = "received") -> "Figure":
    """Draw how the last accuracies are spread over the clients, a box and dots for each run.

    Args:
        runs: A run or several.
        metric: ``received`` or ``post_local``.

    Raises:
        ValueError: The metric is none of these, or a run has no scored round or label counts.
    """
    runs = _several(runs)
    values: dict[str, np.ndarray] = {}
    for run, name in zip(runs, labels_of(runs), strict=True):
        table = run.accuracy(metric)
        if table.empty:
            raise ValueError(f"{run.path}: expected a round with {metric} scores, got none")
        values[f"{name}\nround {table.index[-1]}"] = table.iloc[-1].to_numpy()
    return figures.clients_figure(values, metric=metric, title=_title(runs))


def labels_of(runs: Sequence[Run]) -> list[str]:
    """Return names that tell runs apart: the method; where that is the same, the folder too."""
    count = Counter(run.algorithm for run in runs)
    names = [
        run.algorithm
        if count[run.algorithm] == 1
        else f"{run.algorithm} ({run.path.resolve().name})"
        for run in runs
    ]
    if len(set(names)) == len(names):
        return names
    return [f"{number}: {name}" for number, name in enumerate(names, 1)]


def _several(runs: Run | Sequence[Run]) -> Sequence[Run]:
    found = [runs] if isinstance(runs, Run) else list(runs)
    if not found:
        raise ValueError("runs: expected at least one, got none")
    return found


def _snapshots(runs: Sequence[Run], round_: int | None) -> list[Snapshot]:
    return [run.snapshot(round_) for run in runs]


def _same_shape(runs: Sequence[Run]) -> None:
    for run in runs[1:]:
        if run.p_MK.shape != runs[0].p_MK.shape:
            clients, classes = runs[0].p_MK.shape
            raise ValueError(
                f"{run.path}: expected {clients} clients and {classes} classes as in "
                f"{runs[0].path}, got {run.p_MK.shape[0]} and {run.p_MK.shape[1]}"
            )


def _panel(run: Run, shot: Snapshot, name: str) -> Heatmap:
    distance = np.sqrt(np.square(run.p_MK - shot.p_estimated_MK).sum(1)).mean()
    title = f"{name}, round {shot.round}\nnorms p~, mean R {distance:.3f}"
    return Heatmap(title, shot.p_estimated_MK)


def _column(run: Run, name: str) -> Mapping[int, float]:
    if name not in run.rounds:
        return {}
    column = run.rounds[name].dropna()
    return dict(zip(column.index.tolist(), column.tolist(), strict=True))


def _title(runs: Sequence[Run]) -> str:
    return ", ".join(dict.fromkeys(run.dataset for run in runs))

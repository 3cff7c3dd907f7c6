"""Panels of a W&B dashboard: curves, bars and pictures of what runs log.

The names of metrics are those that ``cwfed fit --logger wandb`` writes.
"""

from collections.abc import Iterator, Sequence
from typing import Any

LABELS = {"received": "received", "post_local": "after local training"}
"""Scores, in words."""

_WIDTH, _HEIGHT = 24, 8
"""Columns of a report's grid, and of these rows those that a panel is high."""


class Panels:
    """Makes panels.

    Args:
        reports: The module ``wandb_workspaces.reports.v2``.
        grouped: Whether a line or bar is the mean over runs with the same job type; else the table
            of runs decides.
    """

    def __init__(self, reports: Any, *, grouped: bool) -> None:
        self.reports = reports
        self.grouping: dict[str, Any] = {}
        if grouped:
            self.grouping = {
                "groupby": reports.Metric("JobType"),
                "groupby_aggfunc": "mean",
                "groupby_rangefunc": "minmax",
            }

    def line(self, title: str, metric: str) -> Any:
        """Return a metric over the rounds."""
        return self.reports.LinePlot(
            title=title,
            x="round",
            y=[metric],
            title_x="round",
            max_runs_to_show=100,
            **self.grouping,
        )

    def bars(self, title: str, metrics: Sequence[str], **options: Any) -> Any:
        """Return summary metrics as bars."""
        return self.reports.BarPlot(
            title=title, metrics=[*metrics], max_bars_to_show=50, **options, **self.grouping
        )

    def curves(self) -> list[Any]:
        """Return the accuracies over the rounds."""
        return [
            self.line(f"Test accuracy, {label}", f"{metric}/accuracy")
            for metric, label in LABELS.items()
        ]

    def best(self, metrics: Sequence[str]) -> Any:
        """Return the best accuracies, received, after local training or both."""
        names = [f"{metric}/best_accuracy" for metric in metrics]
        return self.bars("Best test accuracy", names, range_x=(0, 1))

    def fairness(self) -> list[Any]:
        """Return how accuracies spread over the clients."""
        return [
            self.line("Worst tenth of the clients, received", "received/fairness_worst10"),
            self.line("Standard deviation over clients, received", "received/fairness_std"),
        ]

    def cost(self) -> list[Any]:
        """Return bytes and seconds."""
        return [
            self.bars("Bytes sent by and to clients", ["bytes/total_up", "bytes/total_down"]),
            self.bars("Seconds", ["seconds/total"]),
        ]

    def heat_maps(self) -> Any:
        """Return the pictures, to be moved through by round."""
        return self.reports.MediaBrowser(
            title="Class distributions, and who learned from whom",
            media_keys=["heatmaps/class_distributions", "heatmaps/mixing"],
            num_columns=2,
            mode="gallery",
            gallery_axis="step",
        )

    def laid_out(self, rows: Sequence[Sequence[Any]]) -> Iterator[Any]:
        """Yield panels, those of a row side by side over a report's whole width."""
        for number, row in enumerate(rows):
            width = _WIDTH // len(row)
            for place, panel in enumerate(row):
                panel.layout = self.reports.Layout(
                    x=place * width, y=number * _HEIGHT, w=width, h=_HEIGHT
                )
                yield panel

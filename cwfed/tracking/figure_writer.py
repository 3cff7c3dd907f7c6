"""Figures during training, into the run folder.

Legend: K classes.
"""

from collections.abc import Sequence
from pathlib import Path

from cwfed.federated.callbacks import LoopCallback, is_due
from cwfed.federated.loop import FederatedLoop
from cwfed.federated.record import RoundRecord
from cwfed.federated.state import FederatedState
from cwfed.plots import figure_bytes
from cwfed.records.atomic import make_folder, write_atomic
from cwfed.tracking.heatmaps import distributions_figure
from cwfed.tracking.optional import GoingOn

FIGURES = "figures"


class FigureWriter(LoopCallback):
    """Draws the heat map of the output layers after some rounds, and after the last.

    What goes wrong there never stops the run.

    Args:
        folder: The run folder; the files go to ``figures`` in it.
        every: Rounds between figures; 0 draws none.
        classes: K names.
    """

    def __init__(self, folder: Path, every: int, classes: Sequence[str]) -> None:
        self.folder = folder / FIGURES
        self.every = every
        self.classes = classes
        self._going_on = GoingOn("figures")
        self.loop: FederatedLoop

    def on_start(self, loop: FederatedLoop, state: FederatedState) -> None:
        """Keep the loop, which knows the labels' distributions and the model's names."""
        self.loop = loop

    def on_round(self, record: RoundRecord, state: FederatedState) -> None:
        """Draw the round where it is due."""
        if not is_due(record.round, self.loop.rounds, self.every):
            return
        with self._going_on():
            figure = distributions_figure(record, state, self.loop, self.classes)
            if figure is not None:
                make_folder(self.folder)
                path = self.folder / f"heatmap_{record.round:06d}.png"
                write_atomic(path, figure_bytes(figure))

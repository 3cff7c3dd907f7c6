"""Figures during training, into the run folder.

Legend: M clients, K classes.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cwfed.atomic import make_folder, write_atomic
from cwfed.federated.callbacks import LoopCallback
from cwfed.federated.loop import FederatedLoop
from cwfed.federated.optional import GoingOn
from cwfed.federated.snapshots import row_norms
from cwfed.federated.state import FederatedState
from cwfed.figures import Heatmap, figure_bytes, heatmap_figure
from cwfed.results import RoundRecord

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
        last = self.loop.rounds
        if not self.every or (record.round % self.every and record.round != last):
            return
        with self._going_on():
            self._draw(record, state)

    def _draw(self, record: RoundRecord, state: FederatedState) -> None:
        norms_MK = row_norms(state.uploads[self.loop.server.model.head_weight])
        if not np.isfinite(norms_MK).all():
            return  # a diverged model has nothing to show, and its training goes on
        panels = [
            Heatmap("labels p", self.loop.p_MK.numpy()),
            Heatmap.of_norms(f"norms p~, mean R {record.mean_r:.3f}", norms_MK),
        ]
        figure = heatmap_figure(panels, classes=self.classes, title=f"round {record.round}")
        make_folder(self.folder)
        path = self.folder / f"heatmap_{record.round:06d}.png"
        write_atomic(path, figure_bytes(figure))

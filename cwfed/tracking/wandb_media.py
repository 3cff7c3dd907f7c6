"""Media of a round for Weights & Biases: histograms, heat maps, a table of clients.

Legend: K classes.
"""

from collections.abc import Iterable, Sequence
from io import BytesIO
from typing import Any

from PIL import Image

from cwfed.federated.callbacks import is_due
from cwfed.federated.loop import FederatedLoop
from cwfed.federated.record import RoundRecord
from cwfed.federated.state import FederatedState
from cwfed.plots import figure_bytes
from cwfed.tracking.client_plots import client_histograms, client_table
from cwfed.tracking.heatmaps import distributions_figure, learning_figure

_PICTURES = 20
"""About how many heat maps a run has unless it says otherwise."""


class RoundMedia:
    """Makes them, by the names under which they are logged.

    Args:
        loop: The loop.
        classes: K names.
        every: Rounds between heat maps; None spreads about 20 over the run, 0 draws none.
    """

    def __init__(self, loop: FederatedLoop, classes: Sequence[str], every: int | None) -> None:
        self.loop = loop
        self.classes = classes
        self.every = every

    def of(self, record: RoundRecord, state: FederatedState) -> dict[str, Any]:
        """Return what there is of a round."""
        return {
            **self._histograms(record, state),
            **self._heat_maps(record, state),
            **self._table(record, state),
        }

    def _histograms(self, record: RoundRecord, state: FederatedState) -> dict[str, Any]:
        import wandb

        return {
            f"clients/{name}": wandb.Histogram(np_histogram=histogram)
            for name, histogram in client_histograms(record, state, self.loop).items()
        }

    def _heat_maps(self, record: RoundRecord, state: FederatedState) -> dict[str, Any]:
        import wandb

        if not is_due(record.round, self.loop.rounds, self.every, _PICTURES):
            return {}
        figures = {
            "class_distributions": distributions_figure(record, state, self.loop, self.classes),
            "mixing": learning_figure(record, state, self.loop),
        }
        return {
            f"heatmaps/{name}": wandb.Image(Image.open(BytesIO(figure_bytes(figure))))
            for name, figure in figures.items()
            if figure is not None
        }

    def _table(self, record: RoundRecord, state: FederatedState) -> dict[str, Any]:
        """Return the table of clients, in the last round."""
        import wandb

        if record.round != self.loop.rounds:
            return {}
        columns = client_table(record, state, self.loop)
        rows: list[Iterable[Any]] = [*zip(*columns.values(), strict=True)]
        return {"clients/table": wandb.Table(columns=list(columns), data=rows)}

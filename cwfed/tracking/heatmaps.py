"""Heat maps of a round, as a run and its dashboards show them while it trains.

Legend: M clients, K classes.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from cwfed.federated.loop import FederatedLoop
from cwfed.federated.record import RoundRecord
from cwfed.federated.snapshots import row_norms, snapshot
from cwfed.federated.state import FederatedState
from cwfed.plots import Heatmap, heatmap_figure, mixing_figure
from cwfed.plots.mixing import GROUPS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MIXING = "mixing_"


def distributions_figure(
    record: RoundRecord, state: FederatedState, loop: FederatedLoop, classes: Sequence[str]
) -> "Figure | None":
    """Draw the clients' label distributions beside those that their last uploads show.

    Args:
        record: The round.
        state: The state after it.
        loop: The loop.
        classes: K names.

    Returns:
        The figure; None where a norm is not finite, which shows nothing.
    """
    norms_MK = row_norms(state.uploads[loop.server.model.head_weight])
    if not np.isfinite(norms_MK).all():
        return None
    panels = [
        Heatmap("labels p", loop.p_MK.numpy()),
        Heatmap.of_norms(f"norms p~, mean R {record.mean_r:.3f}", norms_MK),
    ]
    return heatmap_figure(panels, classes=classes, title=f"round {record.round}")


def learning_figure(
    record: RoundRecord, state: FederatedState, loop: FederatedLoop
) -> "Figure | None":
    """Draw whose uploads went into what each client received; None where nothing was mixed."""
    arrays = snapshot(record, state, loop.server.model)
    matrices = {
        GROUPS[name.removeprefix(_MIXING)]: values
        for name, values in arrays.items()
        if name.startswith(_MIXING)
    }
    return mixing_figure(matrices, title=f"round {record.round}") if matrices else None

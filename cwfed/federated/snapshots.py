"""Snapshots of a run for its figures: norms of the output layers, and who learned from whom."""

from pathlib import Path

import numpy as np
from torch import Tensor

from cwfed.contract.spec import ModelSpec
from cwfed.federated.callbacks import LoopCallback, is_due
from cwfed.federated.loop import FederatedLoop
from cwfed.federated.record import RoundRecord
from cwfed.federated.state import FederatedState
from cwfed.records.files import write_arrays
from cwfed.records.names import snapshot_path

AUTOMATIC = 50
"""About how many snapshots a run has unless it says otherwise."""


class SnapshotWriter(LoopCallback):
    """Writes a file of arrays after some rounds, always after round 0 and the last.

    Args:
        folder: The run folder; the files go to ``snapshots`` in it.
        every: Rounds between snapshots; None spreads about 50 over the run, 0 writes none.
    """

    def __init__(self, folder: Path, every: int | None) -> None:
        self.folder = folder
        self.every = every
        self.loop: FederatedLoop

    def on_start(self, loop: FederatedLoop, state: FederatedState) -> None:
        """Keep the loop, which knows the model's names and how many rounds there are."""
        self.loop = loop

    def on_round(self, record: RoundRecord, state: FederatedState) -> None:
        """Write the snapshot of a round where it is due."""
        if self.due(record.round):
            arrays = snapshot(record, state, self.loop.server.model)
            write_arrays(snapshot_path(self.folder, record.round), arrays)

    def due(self, round_: int) -> bool:
        """Return whether a round gets a snapshot."""
        return is_due(round_, self.loop.rounds, self.every, AUTOMATIC)


def snapshot(record: RoundRecord, state: FederatedState, model: ModelSpec) -> dict[str, np.ndarray]:
    """Return what a snapshot holds, by name.

    Args:
        record: The round.
        state: The state after it.
        model: The model's names.

    Returns:
        ``norms_upload`` and ``norms_received``, float32 ``[M, K]``: Euclidean norms of the rows of
        the output layer's weight, in the clients' last uploads and in what they received; and
        ``mixing_output`` and ``mixing_base``, float32 ``[M, M]``, where the method has such a
        matrix for the output layer and for the model's first tensor outside of it.
    """
    arrays = {
        "norms_upload": row_norms(state.uploads[model.head_weight]),
        "norms_received": row_norms(state.received[model.head_weight]),
    }
    head = (model.head_weight, model.head_bias)
    first = next((name for name in model.parameters if name not in head), None)
    for group, name in (("output", model.head_weight), ("base", first)):
        if name is not None and name in record.mixing:
            arrays[f"mixing_{group}"] = as_array(record.mixing[name])
    return arrays


def row_norms(weight_MKF: Tensor) -> np.ndarray:
    """Return the Euclidean norms of the rows, float32 ``[M, K]``."""
    return as_array(weight_MKF.double().norm(dim=2))


def as_array(values: Tensor) -> np.ndarray:
    """Return a tensor as a float32 array of its own."""
    return values.detach().float().cpu().numpy()

"""The federated loop and what surrounds it."""

from cwfed.engines.options import TrainerOptions
from cwfed.federated.callbacks import LoopCallback
from cwfed.federated.experiment import Experiment
from cwfed.federated.loop import FederatedLoop
from cwfed.federated.options import (
    Algorithm,
    CheckpointOptions,
    FaultOptions,
    FiguresOptions,
    LocalTraining,
    ReleasedCode,
    SnapshotOptions,
)
from cwfed.federated.prepared import PreparedRun
from cwfed.federated.state import FederatedState

__all__ = [
    "Algorithm",
    "CheckpointOptions",
    "Experiment",
    "FaultOptions",
    "FederatedLoop",
    "FederatedState",
    "FiguresOptions",
    "LocalTraining",
    "LoopCallback",
    "PreparedRun",
    "ReleasedCode",
    "SnapshotOptions",
    "TrainerOptions",
]

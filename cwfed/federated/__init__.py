"""The federated loop: what a round is, and what happens around it.

Nothing here knows a run folder, a dashboard or the command line.
"""

from importlib import import_module
from typing import Any

from cwfed.engines.options import TrainerOptions
from cwfed.federated.callbacks import LoopCallback
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
from cwfed.federated.state import FederatedState

__all__ = [
    "Algorithm",
    "CheckpointOptions",
    "FaultOptions",
    "FederatedLoop",
    "FederatedState",
    "FiguresOptions",
    "LocalTraining",
    "LoopCallback",
    "ReleasedCode",
    "SnapshotOptions",
    "TrainerOptions",
]


def __getattr__(name: str) -> Any:
    """Load what lived here earlier and is in `cwfed.runs` now."""
    if name in ("Experiment", "PreparedRun"):
        return getattr(import_module("cwfed.runs"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

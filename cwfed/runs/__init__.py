"""A run put together: experiment, folder, checkpoints.

Here lives what makes a run repeatable and resumable; how it is started belongs to its callers.
"""

from cwfed.runs.experiment import Experiment
from cwfed.runs.prepared import PreparedRun

__all__ = ["Experiment", "PreparedRun"]

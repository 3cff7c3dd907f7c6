"""Engines: how a cohort of clients is trained."""

from cwfed.engines.base import Engine, Fitted, Workload
from cwfed.engines.parallel import ParallelEngine
from cwfed.engines.sequential import SequentialEngine
from cwfed.engines.vectorized import VectorizedEngine

__all__ = [
    "Engine",
    "Fitted",
    "ParallelEngine",
    "SequentialEngine",
    "VectorizedEngine",
    "Workload",
]

"""Training of a cohort of clients: the contract of engines, the reference, their selection.

No engine knows what a server does with the models.
"""

from cwfed.engines.base import Engine, EngineFactory, Fitted, Workload
from cwfed.engines.parallel import ParallelEngine
from cwfed.engines.sequential import SequentialEngine
from cwfed.engines.vectorized import VectorizedEngine

__all__ = [
    "Engine",
    "EngineFactory",
    "Fitted",
    "ParallelEngine",
    "SequentialEngine",
    "VectorizedEngine",
    "Workload",
]

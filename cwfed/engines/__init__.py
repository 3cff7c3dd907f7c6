"""Engines: how a cohort of clients is trained."""

from cwfed.engines.base import Engine, Fitted, Workload
from cwfed.engines.sequential import SequentialEngine

__all__ = ["Engine", "Fitted", "SequentialEngine", "Workload"]

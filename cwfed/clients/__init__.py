"""Clients as LightningModules."""

from cwfed.clients.module import ClientModule, OptimizerFactory
from cwfed.clients.phase import TrainingPhase

__all__ = ["ClientModule", "OptimizerFactory", "TrainingPhase"]

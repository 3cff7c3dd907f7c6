"""Clients as LightningModules, whose `training_step` is cross-entropy plus the method's terms.

A client knows its own batches, never the server or other clients.
"""

from cwfed.clients.epoch import WholeTrainingClient
from cwfed.clients.module import ClientModule, OptimizerFactory
from cwfed.clients.phase import TrainingPhase

__all__ = ["ClientModule", "OptimizerFactory", "TrainingPhase", "WholeTrainingClient"]

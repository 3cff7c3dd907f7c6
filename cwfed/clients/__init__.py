"""Clients as LightningModules."""

from cwfed.clients.epoch import WholeTrainingClient
from cwfed.clients.module import ClientModule, OptimizerFactory
from cwfed.clients.phase import TrainingPhase

__all__ = ["ClientModule", "OptimizerFactory", "TrainingPhase", "WholeTrainingClient"]

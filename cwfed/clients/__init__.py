"""Clients as LightningModules."""

from cwfed.clients.module import ClientModule, OptimizerFactory

__all__ = ["ClientModule", "OptimizerFactory"]

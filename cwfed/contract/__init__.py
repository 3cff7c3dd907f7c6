"""Knowledge of a model: its output layer, its blocks, its buffers.

Here lives how that is found out and checked; no model of its own, no training.
"""

"""All clients of a cohort stacked into one training step.

Here lives what is stacked, captured and timed for it; nothing here knows rounds or a server.
"""

from cwfed.engines.vectorized.engine import VectorizedEngine

__all__ = ["VectorizedEngine"]

"""Clients on several CPU cores at once: processes of this machine, and the pool that feeds them.

Nothing here knows how a client trains; that is the sequential engine's.
"""

from cwfed.engines.parallel.engine import ParallelEngine

__all__ = ["ParallelEngine"]

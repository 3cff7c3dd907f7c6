"""Division of a data set among clients: one small class for each protocol.

A partitioner sees labels and numbers of samples, never a model or a round.
"""

from cwfed.data.partitioners.base import Partitioner
from cwfed.data.partitioners.own import IID, Dirichlet, Pathological
from cwfed.data.partitioners.released import ReleasedDirichlet, ReleasedPathological
from cwfed.data.partitioners.saved import FromManifest, FromSource

__all__ = [
    "IID",
    "Dirichlet",
    "FromManifest",
    "FromSource",
    "Partitioner",
    "Pathological",
    "ReleasedDirichlet",
    "ReleasedPathological",
]

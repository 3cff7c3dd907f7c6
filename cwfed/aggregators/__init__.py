"""The server side of every method: one small class a file.

An aggregator knows uploads by name, never a client's data, a model's code or a file.
"""

from cwfed.aggregators.base import Aggregator, ServerContext, ServerState
from cwfed.aggregators.by_hand import aggregate, make_server
from cwfed.aggregators.cfl import CFL
from cwfed.aggregators.cwfedavg import CwFedAvg
from cwfed.aggregators.fedamp import FedAMP
from cwfed.aggregators.fedavg import FedAvg
from cwfed.aggregators.fedfomo import FedFomo
from cwfed.aggregators.fednh import FedNH
from cwfed.aggregators.fedper import FedPer
from cwfed.aggregators.ifca import IFCA
from cwfed.aggregators.local import Local

__all__ = [
    "CFL",
    "IFCA",
    "Aggregator",
    "CwFedAvg",
    "FedAMP",
    "FedAvg",
    "FedFomo",
    "FedNH",
    "FedPer",
    "Local",
    "ServerContext",
    "ServerState",
    "aggregate",
    "make_server",
]

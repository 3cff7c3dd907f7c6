"""Server side of every method."""

from cwfed.aggregators.base import Aggregator, ServerContext, ServerState
from cwfed.aggregators.cwfedavg import CwFedAvg
from cwfed.aggregators.fedavg import FedAvg
from cwfed.aggregators.fedfomo import FedFomo
from cwfed.aggregators.fednh import FedNH
from cwfed.aggregators.fedper import FedPer
from cwfed.aggregators.ifca import IFCA
from cwfed.aggregators.local import Local

__all__ = [
    "IFCA",
    "Aggregator",
    "CwFedAvg",
    "FedAvg",
    "FedFomo",
    "FedNH",
    "FedPer",
    "Local",
    "ServerContext",
    "ServerState",
]

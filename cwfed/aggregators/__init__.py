"""Server side of every method."""

from cwfed.aggregators.base import Aggregator, ServerContext, ServerState
from cwfed.aggregators.cwfedavg import CwFedAvg
from cwfed.aggregators.fedavg import FedAvg
from cwfed.aggregators.fednh import FedNH
from cwfed.aggregators.fedper import FedPer
from cwfed.aggregators.local import Local

__all__ = [
    "Aggregator",
    "CwFedAvg",
    "FedAvg",
    "FedNH",
    "FedPer",
    "Local",
    "ServerContext",
    "ServerState",
]

"""Questions of the server to its clients, before and during the rounds."""

from collections.abc import Sequence
from copy import copy
from typing import cast

import torch
from torch import Tensor

from cwfed.aggregators.banks import take_rows
from cwfed.aggregators.base import Aggregator, ServerContext
from cwfed.data.federated import Part
from cwfed.engines.base import Engine
from cwfed.functional.stacking import Bank, ScatteredRows
from cwfed.objectives.base import Objective


class EngineClients:
    """Answers of clients to the server, computed by the engine.

    Args:
        engine: Scores cohorts.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def loss(self, clients: Tensor, models: Bank, part: str) -> Tensor:
        """See `cwfed.aggregators.base.Clients.loss`."""
        ids = clients.tolist()
        scores = self.engine.evaluate(ids, take_rows(models, ids), cast(Part, part))
        loss = scores[:, 2] / scores[:, 1]
        return torch.where(loss.isfinite(), loss, torch.inf)

    def class_means(self, clients: Tensor, models: Bank) -> tuple[Tensor, Tensor]:
        """See `cwfed.aggregators.base.Clients.class_means`."""
        ids = clients.tolist()
        return self.engine.class_means(ids, take_rows(models, ids))


def cohort_rows(start: Bank, anchors: Bank, clients: Sequence[int]) -> tuple[Bank, Bank]:
    """Return the clients' rows of two banks, ``[m, ...]`` by name; once where they are one bank.

    Anchors are read a client at a time: where a copy would be needed, they stay where they are.
    """
    rows = take_rows(start, clients)
    if anchors is start:
        return rows, rows
    everybody = rows is start
    return rows, anchors if everybody else ScatteredRows(anchors, clients)


def with_server_values(
    objective: Objective, aggregator: Aggregator, server: ServerContext
) -> Objective:
    """Return the objective with what its terms take from the aggregator filled in.

    Raises:
        ValueError: The aggregator does not have it.
    """
    terms = [copy(term) for term in objective.terms]
    for term in terms:
        for name in term.from_server:
            if not hasattr(aggregator, name):
                raise ValueError(
                    f"objectives: {type(term).__name__} takes {name} from its method's aggregator, "
                    f"got {type(aggregator).__name__}, which has none"
                )
            setattr(term, name, aggregator.hyperparameter(name, server))
    return Objective(terms)

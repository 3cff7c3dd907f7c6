"""State that evolves over the rounds of a run: a value that the loop owns and the checkpoint saves.

Legend: M clients.
"""

from dataclasses import dataclass

from torch import Tensor

from cwfed.aggregators.base import ServerState
from cwfed.federated.record import Score
from cwfed.functional.stacking import Bank


@dataclass(frozen=True)
class FederatedState:
    """State after a round; never changed in place.

    Attributes:
        round: The last finished round; 0 is the common initialisation.
        uploads: Last upload of every client, ``[M, ...]`` by name; the initialisation where a
            client has not uploaded yet.
        received: Model with which every client would start the next round, ``[M, ...]`` by name.
        anchors: What proximal terms pull towards, ``[M, ...]`` by name; empty: towards what a
            client starts the round with, after its own choice or mix.
        personal: Models that clients train beside the upload, ``[M, ...]`` by name; the
            initialisation for methods without.
        server: The aggregator's state.
        post_local: By part of the data, the scores of every client right after its last local
            training (before any, of the initialisation), float64 ``[M, 3]``: correct, samples,
            summed cross-entropy. A row of NaN: that training has not been scored, since evaluation
            was not due.
    """

    round: int
    uploads: Bank
    received: Bank
    anchors: Bank
    personal: Bank
    server: ServerState
    post_local: Score


def unscored(post_local: Score) -> Tensor:
    """Return the ids of the clients whose last training has not been scored, int64, ascending."""
    samples_M = next(iter(post_local.values()))[:, 1]
    return samples_M.isnan().nonzero()[:, 0]


def difference(bank: str, values: Bank, like: Bank) -> str | None:
    """Return where a bank's tensors differ in name, shape or dtype; there may be no anchors."""
    optional = bank == "anchors"
    if names := set() if optional else set(like) - set(values):
        return f"{bank} without {', '.join(sorted(names))}"
    if names := set(values) - set(like):
        return f"{bank} with the unknown {', '.join(sorted(names))}"
    for name, value in values.items():
        if value.shape != like[name].shape or value.dtype != like[name].dtype:
            ours = f"{list(like[name].shape)} {like[name].dtype}"
            return f"{bank} with {name} {list(value.shape)} {value.dtype} instead of {ours}"
    return None

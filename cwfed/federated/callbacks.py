"""Hooks around the rounds: for files, loggers and progress."""

from typing import TYPE_CHECKING

from cwfed.federated.record import RoundRecord
from cwfed.federated.state import FederatedState

if TYPE_CHECKING:
    from cwfed.federated.loop import FederatedLoop


class LoopCallback:
    """Hooks of the federated loop; all do nothing by default."""

    def on_start(self, loop: "FederatedLoop", state: FederatedState) -> None:
        """Called once before the first round of this process."""

    def on_round(self, record: RoundRecord, state: FederatedState) -> None:
        """Called after every round, and once with the initialisation as round 0."""

    def on_end(self, state: FederatedState) -> None:
        """Called once after the last round."""

    def close(self) -> None:
        """Called once when the rounds are over, also if they were cut short."""


def is_due(round_: int, last: int, every: int | None, about: int = 1) -> bool:
    """Return whether something that happens after some rounds happens after this one.

    Args:
        round_: The round; 0 and the last always have it.
        last: The last round.
        every: Rounds in between; 0 is never, None spreads it over the run.
        about: How often it then happens, roughly.
    """
    if every is None:
        every = max(-(-last // about), 1)
    return every > 0 and (round_ % every == 0 or round_ == last)

"""What happens around the rounds: hooks for files, loggers and progress."""

from typing import TYPE_CHECKING

from cwfed.federated.state import FederatedState
from cwfed.results import RoundRecord

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

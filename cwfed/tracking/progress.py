"""Progress of a run: one live line on a terminal, plain lines elsewhere."""

from time import perf_counter

from rich.progress import (
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from cwfed.federated.callbacks import LoopCallback
from cwfed.federated.loop import FederatedLoop
from cwfed.federated.record import RoundRecord, summarise_score
from cwfed.federated.state import FederatedState
from cwfed.messages.terminal import Terminal


class ProgressPrinter(LoopCallback):
    """Shows rounds, accuracies and the time left on standard error.

    Args:
        name: What is running.
        console: Where to write; by default standard error.
    """

    def __init__(self, name: str, console: Terminal | None = None) -> None:
        self.name = name
        self.console = console or Terminal(stderr=True)
        self.bar: Progress | None = None
        self.rounds = self.first = 0
        self.start = perf_counter()

    def on_start(self, loop: FederatedLoop, state: FederatedState) -> None:
        """Start the line."""
        self.rounds, self.first, self.start = loop.rounds, state.round, perf_counter()
        if not self.console.is_terminal:
            return
        self.bar = Progress(
            SpinnerColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[scores]}", markup=False),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(elapsed_when_finished=False),
            console=self.console,
        )
        self.task = self.bar.add_task(
            self.name, total=self.rounds, completed=state.round, scores="starting"
        )
        self.bar.start()

    def on_round(self, record: RoundRecord, state: FederatedState) -> None:
        """Show the round."""
        scores = describe(record)
        if self.bar:
            self.bar.update(self.task, completed=record.round, scores=scores)
            return
        done = record.round - self.first
        left = ""
        if done and record.round < self.rounds:
            rate = (perf_counter() - self.start) / done
            left = f"  left {_clock(rate * (self.rounds - record.round))}"
        seconds = sum(record.seconds.values())
        line = f"round {record.round}/{self.rounds}  {scores}  {seconds:.1f} s{left}"
        self.console.print(line, soft_wrap=True)

    def on_end(self, state: FederatedState) -> None:
        """End the line."""
        self.close()

    def close(self) -> None:
        """Give the terminal back."""
        if self.bar:
            self.bar.stop()
            self.bar = None


def describe(record: RoundRecord) -> str:
    """Return the round's accuracies, R and who was left out in a few words."""
    parts = []
    for label, score in (("received", record.received), ("post-local", record.post_local)):
        accuracy = summarise_score(score)["accuracy"] if score else None
        if accuracy is not None:
            parts.append(f"{label} {accuracy:.2%}")
    parts.append(f"R {record.mean_r:.3f}")
    if record.excluded:
        parts.append(f"{len(record.excluded)} of {len(record.participants)} left out")
    return "  ".join(parts)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"

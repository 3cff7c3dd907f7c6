"""Progress of a runner: live bars on a terminal, plain lines elsewhere."""

from types import TracebackType

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from cwfed.messages.terminal import Terminal
from cwfed.sweeps.estimate import clock


class Board:
    """Shows the jobs of a run and how far they are.

    Args:
        total: How many jobs there are.
        console: Where to write; by default standard error.
    """

    def __init__(self, total: int, console: Terminal | None = None) -> None:
        self.console = console or Terminal(stderr=True)
        self.total = total
        self.count = 0
        self._tasks: dict[str, TaskID] = {}
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}", markup=False),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self._all = self._progress.add_task("jobs", total=total, note="")

    def __enter__(self) -> "Board":
        """Start."""
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give the terminal back."""
        self._progress.stop()

    def say(self, text: str) -> None:
        """Print a line above the bars."""
        self.console.say(text)

    def start(self, label: str, rounds: int) -> None:
        """Show that a job has started."""
        self._tasks[label] = self._progress.add_task(f"  {label}", total=rounds, note="")

    def rounds(self, label: str, done: int) -> None:
        """Show how far a job is."""
        self._progress.update(self._tasks[label], completed=done)

    def end(self, label: str, outcome: str, left: float) -> None:
        """Show that a job has ended, and about how many seconds the others take."""
        self.count += 1
        if label in self._tasks:
            self._progress.remove_task(self._tasks.pop(label))
        note = f"about {clock(left)} left" if left else ""
        self._progress.update(self._all, completed=self.count, note=note)
        tail = f"; {note}" if note and not self.console.is_terminal else ""
        self.say(f"[{self.count}/{self.total}] {label}: {outcome}{tail}")

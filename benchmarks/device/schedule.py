"""Schedules cells: as many of them as end before a deadline, in the order of their worth."""

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median_low

from benchmarks.device.fits import (
    POLL,
    Calibration,
    CannotMeasure,
    Command,
    Fit,
    ShortRunFailed,
    calibrate,
    seconds_of,
)
from benchmarks.device.results import Cell, publish
from cwfed.messages.texts import shown
from cwfed.processes.children import end, explain
from cwfed.sweeps.deadline import Deadline

_MARGIN = 1.05
"""Writing a round's line is not in its seconds."""
_PUBLISH = 20.0
_SHARE = 0.4
"""Of the time, at most, for short runs."""


class Paces:
    """Seconds a round of cells, and a guess for cells that have not run.

    A guess is the pace of the cell's configuration times what its method costs elsewhere. Of two
    it is the lower: a cell cut short says more than one that was not begun.
    """

    def __init__(self) -> None:
        self.known: dict[tuple[str, str], float] = {}

    def guess(self, config: str, method: str) -> float | None:
        """Return the seconds a round of a cell, None if nothing is known at all."""
        if (config, method) in self.known:
            return self.known[config, method]
        if not self.known:
            return None
        factors = [
            seconds / self._base(other)
            for (other, name), seconds in self.known.items()
            if name == method
        ]
        return self._base(config) * (median_low(factors) if factors else 1.0)

    def _base(self, config: str) -> float:
        of_config = [seconds for (other, _), seconds in self.known.items() if other == config]
        return median_low(of_config or self.known.values())


class Schedule:
    """Cells in their order on one device until a deadline.

    Args:
        cells: What to run.
        command: Makes a cell's command.
        rounds: Rounds of each.
        deadline: When everything is written and nothing runs.
        output: Where to write.
        grace: Seconds that a cell has to end when it is asked to.
        reserve: Seconds for writing after the last cell has ended.
    """

    def __init__(
        self,
        cells: Sequence[Cell],
        command: Command,
        rounds: int,
        deadline: Deadline,
        output: Path,
        grace: float,
        reserve: float,
    ) -> None:
        self.cells = cells
        self.command = command
        self.rounds = rounds
        self.deadline = deadline
        self.output = output
        self.grace = grace
        self.reserve = reserve
        self.paces = Paces()
        self.settled: dict[str, Mapping[str, str]] = {}
        self.startup = 0.0
        self.about = ""
        self._published = time.monotonic()

    def left(self) -> float:
        """Return the seconds that cells may still run."""
        return self.deadline.left() - self.grace - self.reserve

    def calibrate(self, levels: Sequence[int], folder: Path) -> int:
        """Measure short runs of the first cell that works; return how many to run at once.

        Raises:
            CannotMeasure: None works, or there is no time to measure one.
        """
        while cell := self._of("waiting"):
            try:
                found = calibrate(
                    self.command,
                    cell.name,
                    levels,
                    folder / cell.folder.parent.name,
                    _SHARE * self.left(),
                )
            except ShortRunFailed as error:
                self._fail(cell.config, str(error))
                continue
            self._learn(cell, found)
            return found.jobs
        raise CannotMeasure("no cell can be run")

    def run(self, jobs: int) -> None:
        """Run cells until none is left that fits, and put all away."""
        try:
            while self.left() > 0:
                self._take_finished()
                self._start(jobs)
                if not self._of("running"):
                    break
                if time.monotonic() - self._published > _PUBLISH:
                    self.publish()
                time.sleep(POLL)
        finally:
            self._stop()
            self._give_up_waiting()
            self.publish()

    def publish(self) -> None:
        """Write what is known, and learn from it how long rounds take."""
        for cell in self.cells:
            if pace := seconds_of(cell.lines()):
                self.paces.known[cell.config, cell.algorithm] = pace
        publish(self.cells, self.rounds, self.about, self.output)
        self._published = time.monotonic()

    def needed(self, cell: Cell) -> float | None:
        """Return the seconds that a cell would take, None if nothing is known."""
        pace = self.paces.guess(cell.config, cell.algorithm)
        return None if pace is None else self.startup + _MARGIN * pace * self.rounds

    def _of(self, state: str) -> Cell | None:
        return next((cell for cell in self.cells if cell.state == state), None)

    def _running(self) -> list[Cell]:
        return [cell for cell in self.cells if cell.state == "running"]

    def _learn(self, cell: Cell, found: Calibration) -> None:
        self.paces.known[cell.config, cell.algorithm] = found.seconds
        self.settled[cell.config] = found.settled
        self.startup = found.startup
        rates = ", ".join(f"{level} at once {rate:.2f}" for level, rate in found.rates.items())
        self.about = (
            f"Short runs of {cell.name}, rounds a second of all together: {rates}. "
            f"Cells run {found.jobs} at once."
        )
        say(self.about)

    def _fail(self, config: str, why: str) -> None:
        for cell in self.cells:
            if cell.config == config:
                cell.state, cell.why = "failed", why
        say(f"{config}: {why}")

    def _start(self, jobs: int) -> None:
        for cell in self.cells:
            if len(self._running()) >= jobs:
                return
            needed = self.needed(cell)
            if cell.state == "waiting" and needed is not None and needed <= self.left():
                settled = self.settled.get(cell.config, {})
                command = self.command(cell.name, cell.folder, self.rounds, settled)
                cell.state, cell.fit = "running", Fit(command, cell.folder)
                say(f"{cell.name}: started, about {needed:.0f} s; {self.left():.0f} s are left")

    def _take_finished(self) -> None:
        ended = [cell for cell in self._running() if cell.fit and not cell.fit.alive()]
        for cell in ended:
            assert cell.fit is not None
            how, words = explain(cell.fit.process.poll()), cell.fit.last_words()
            self._put_away(cell, "failed", f"{how}: {words}")
        if ended:
            self.publish()

    def _put_away(self, cell: Cell, otherwise: str, why: str) -> None:
        # The result is written last.
        if (cell.folder / "result.json").is_file():
            otherwise, why = "finished", ""
        cell.state, cell.why = otherwise, why
        rounds = max(len(cell.lines()) - 1, 0)
        say(f"{cell.name}: {cell.state} {cell.why} after {rounds} of {self.rounds} rounds")

    def _stop(self) -> None:
        running = self._running()
        end([cell.fit.process for cell in running if cell.fit], self.grace)
        for cell in running:
            self._put_away(cell, "unfinished", "stopped for lack of time")

    def _give_up_waiting(self) -> None:
        started = any(cell.state != "waiting" for cell in self.cells)
        for cell in self.cells:
            if cell.state == "waiting":
                cell.state, needed = "not started", self.needed(cell)
                cell.why = "no round could be measured"
                if needed is not None:
                    left = max(self.left(), 0.0)
                    cell.why = f"would take about {needed:.0f} s, {left:.0f} s are left"
        if not started:
            say(f"no cell is started: {self.cells[0].name}: {self.cells[0].why}")


def say(text: str) -> None:
    """Print a line."""
    sys.stdout.write(f"{shown(text)}\n")
    sys.stdout.flush()

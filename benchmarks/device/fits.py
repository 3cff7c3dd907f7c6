"""Runs of ``cwfed fit`` as processes beside this one, and how many of them a device carries."""

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

from cwfed.processes.children import end, python, start
from cwfed.records.files import read_yaml
from cwfed.records.round_lines import read_lines
from cwfed.sweeps.deadline import Deadline

POLL = 0.1
_WARM, _MEASURED = 2, 3
"""Rounds before the measured ones, and how many are measured at each level."""
_ENDLESS = 1_000_000

Command = Callable[[str, Path, int, Mapping[str, str]], list[str]]
"""Returns the command of a cell (``config/algorithm``), its folder, rounds and settled options."""


class CannotMeasure(RuntimeError):
    """No round of a short run could be measured."""


class ShortRunFailed(CannotMeasure):
    """A short run ended by itself, which it should not."""


@dataclass(frozen=True)
class Fitting:
    """Makes the commands of real cells.

    Attributes:
        data_dir: Where the data sets are; None leaves it to the command.
        others: Options for every cell.
    """

    data_dir: Path | None
    others: Sequence[str]

    def __call__(
        self, name: str, folder: Path, rounds: int, settled: Mapping[str, str]
    ) -> list[str]:
        """Return the command."""
        config, _, algorithm = name.rpartition("/")
        return [
            *python("cwfed", "fit", "--config", config, "--algorithm", algorithm),
            *("--rounds", str(rounds), "--run_dir", str(folder)),
            # The last round always has one; each costs more than a round.
            *("--checkpoint.every", str(_ENDLESS), "--checkpoint.keep", "1"),
            *(("--data_dir", str(self.data_dir)) if self.data_dir else ()),
            *(part for option, value in settled.items() for part in (option, value)),
            *self.others,
        ]


class Fit:
    """One run.

    Args:
        command: What to start.
        folder: Its run folder.
    """

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        self.folder = folder
        self.log = folder.with_name(f"{folder.name}.log")
        folder.parent.mkdir(parents=True, exist_ok=True)
        self.started = time.monotonic()
        with self.log.open("wb") as log:
            # In the session of this process: whoever ends that, when time is over, ends all.
            self.process = start(command, log, apart=False)

    def lines(self) -> list[dict[str, Any]]:
        """Return its rounds so far, the initialisation included."""
        return read_lines(self.folder / "rounds.jsonl")

    def settled(self) -> dict[str, str]:
        """Return how its convolutions turned out fastest, as options for runs like it."""
        path = self.folder / "config.yaml"
        trainer = (read_yaml(path) or {}).get("trainer") or {}
        if trainer.get("engine") != "vectorized":
            return {}
        return {f"--trainer.{name}": trainer[name] for name in ("kernel", "memory_format")}

    def alive(self) -> bool:
        """Return whether it runs."""
        return self.process.poll() is None

    def last_words(self) -> str:
        """Return the last line that it printed."""
        text = self.log.read_text(encoding="utf-8", errors="replace").strip()
        return text.splitlines()[-1][:300] if text else "no output"

    def kill(self) -> None:
        """End it at once, also where it is paused."""
        end([self.process])


def seconds_of(lines: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the mean seconds of rounds, those aside in which a run warms up; None without any."""
    taken = [sum(line["seconds"].values()) for line in lines if line["round"] >= _WARM]
    return mean(taken) if taken else None


@dataclass(frozen=True)
class Calibration:
    """Forecast of long runs from short ones.

    Attributes:
        jobs: How many at once finish the most rounds a second.
        rates: Rounds a second of all runs together, by how many there are.
        seconds: Seconds of a round at that level.
        startup: Seconds from the start of a process to the end of its first round.
        settled: See `Fit.settled`.
    """

    jobs: int
    rates: Mapping[int, float]
    seconds: float
    startup: float
    settled: Mapping[str, str]


def calibrate(
    command: Command, name: str, levels: Sequence[int], folder: Path, seconds: float
) -> Calibration:
    """Measure short runs of one cell, side by side in growing numbers.

    All are started once and paused while fewer are measured.

    Args:
        command: Makes the command.
        name: The cell.
        levels: Numbers of runs to try, ascending; the later ones are left out if time is short.
        folder: Where the runs write.
        seconds: Time for all of it.

    Raises:
        ShortRunFailed: The first run ended.
        CannotMeasure: No level was measured in time.
    """
    deadline = Deadline(seconds)
    fits = [Fit(command(name, folder / "0", _ENDLESS, {}), folder / "0")]
    try:
        _await(lambda: len(fits[0].lines()) > 1, fits, deadline)
        startup, settled = time.monotonic() - fits[0].started, fits[0].settled()
        for number in range(1, levels[-1]):
            place = folder / str(number)
            fits.append(Fit(command(name, place, _ENDLESS, settled), place))
        levels = _warm_up(fits, levels, deadline)
        taken = _measure(fits, levels, deadline)
    finally:
        for fit in fits:
            fit.kill()
    rates = {level: level / value for level, value in taken.items()}
    jobs = max(rates, key=lambda level: rates[level])
    return Calibration(jobs, rates, taken[jobs], startup, settled)


def _warm_up(fits: list[Fit], levels: Sequence[int], deadline: Deadline) -> Sequence[int]:
    """Wait for all runs, or leave the first one alone; return the levels that can be measured."""
    patience = deadline if len(fits) == 1 else Deadline(deadline.left() / 2)
    try:
        _await(lambda: all(len(fit.lines()) > _WARM for fit in fits), fits, patience)
    except CannotMeasure:
        if len(fits) == 1 or not fits[0].alive():
            raise
        # More than the memory holds, or than there is time to start.
        for fit in fits[1:]:
            fit.kill()
        del fits[1:]
        return [1]
    return levels


def _measure(fits: Sequence[Fit], levels: Sequence[int], deadline: Deadline) -> dict[int, float]:
    """Return the mean seconds of a round at each level that there was time for."""
    taken: dict[int, float] = {}
    for fit in fits:
        fit.process.send(signal.SIGSTOP)
    for level in levels:
        some = fits[:level]
        for fit in some:
            fit.process.send(signal.SIGCONT)
        # The round under way was begun at another level.
        first = [len(fit.lines()) + 1 for fit in some]
        try:
            _await(partial(_longer, some, first, _MEASURED), some, deadline)
        except CannotMeasure:
            if not taken:
                raise
            break
        means = [seconds_of(fit.lines()[skip:]) for fit, skip in zip(some, first, strict=True)]
        taken[level] = mean(value for value in means if value is not None)
    return taken


def _longer(fits: Sequence[Fit], first: Sequence[int], by: int) -> bool:
    return all(len(fit.lines()) >= skip + by for fit, skip in zip(fits, first, strict=True))


def _await(condition: Callable[[], bool], fits: Sequence[Fit], deadline: Deadline) -> None:
    while not condition():
        for fit in fits:
            if not fit.alive():
                raise ShortRunFailed(f"a short run failed: {fit.last_words()}")
        if deadline.left() < 0:
            raise CannotMeasure("no round was measured in the time that is there")
        time.sleep(POLL)

"""Our own record of the rounds that W&B has: its files are not ours to read."""

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

from cwfed.records.atomic import append_atomic
from cwfed.records.reading import read_text

RECORD = "wandb_rounds.jsonl"
"""File of the run folder with a line for every one of W&B's folders that is complete."""

_QUIET, _LONGEST, _PAUSE = 0.5, 10.0, 0.05
"""Seconds without a change after which a file is taken as written, and the most to wait."""


class LoggedRounds:
    """The rounds of a run that are in W&B's folders for good.

    W&B writes what it is given some rounds later, and `wandb sync` ends at a file that a kill has
    cut. So a folder counts once its run has ended; what a killed process had logged is logged
    again.

    Args:
        folder: The run folder.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / RECORD

    def add(self, folder: Path, rounds: Iterable[int]) -> None:
        """Note that one of W&B's folders is complete, and which rounds it holds."""
        line = {"folder": folder.name, "rounds": sorted(rounds)}
        append_atomic(self.path, json.dumps(line) + "\n")

    def by_folder(self, folders: Sequence[Path]) -> dict[Path, set[int]]:
        """Return those of W&B's folders that are complete, with the rounds that each holds."""
        places = {folder.name: folder for folder in folders}
        found: dict[Path, set[int]] = {}
        text = read_text(self.path, errors="replace") if self.path.is_file() else ""
        for line in text.splitlines():
            # A line that a kill has left unfinished, or that somebody has changed, says nothing.
            with suppress(ValueError, TypeError, KeyError):
                entry = json.loads(line)
                found[places[entry["folder"]]] = {int(round_) for round_ in entry["rounds"]}
        return found


def wait_until_written(path: Path) -> None:
    """Wait until a file no longer grows: W&B writes a run's end after it says that it is over."""
    deadline = monotonic() + _LONGEST
    size, since = -1, monotonic()
    while monotonic() < min(deadline, since + _QUIET):
        if (now := path.stat().st_size) != size:
            size, since = now, monotonic()
        sleep(_PAUSE)

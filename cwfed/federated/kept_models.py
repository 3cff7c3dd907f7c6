"""The models that clients received, in files: of the best round and of the last.

Legend: M clients.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import torch

from cwfed.functional.stacking import Bank
from cwfed.records.atomic import atomic_file, make_folder
from cwfed.records.result import select

FOLDER = "models"
BEST, LAST = "best.pt", "last.pt"


@dataclass(frozen=True)
class KeptModels:
    """A file of models.

    Attributes:
        path: The file; ``torch.load(path, weights_only=True)`` gives a mapping with ``round``,
            ``accuracy`` and ``models``, a row for every client, ``[M, ...]`` by name.
        names: What they are: ``best``, ``last`` or both.
        round: The round after which the clients received them.
        accuracy: Their pooled test accuracy.
    """

    path: Path
    names: tuple[str, ...]
    round: int
    accuracy: float | None


class ModelKeeper:
    """Keeps the models of the best round by received accuracy, and of the last.

    The best round is the one that a result calls the best: the first with the greatest accuracy.

    Args:
        folder: The run folder; the files go to ``models`` in it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder / FOLDER
        self._best: float | None = None
        self._kept: dict[str, KeptModels] = {}

    def start(self, lines: Sequence[Mapping[str, Any]], models: Bank) -> None:
        """Begin, or continue after the rounds of ``rounds.jsonl``.

        Models that were kept in a round after these are kept again when that round is repeated;
        those of the last of these rounds are kept now, if a kill came before that.

        Args:
            lines: The lines of the rounds so far.
            models: What the clients received in the last of them, ``[M, ...]`` by name.
        """
        trained = [line for line in lines if line["round"]]
        best = select(trained, "received")["best"]
        path = self.folder / BEST
        if best is None:
            return
        self._best = best["accuracy"]
        if path.is_file():
            kept = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
            if kept["round"] == best["round"]:
                self._kept["best"] = KeptModels(path, ("best",), best["round"], best["accuracy"])
        if not self._kept and best["round"] == lines[-1]["round"]:
            self._kept["best"] = self._write(BEST, best["round"], best["accuracy"], models)

    def keep(self, line: Mapping[str, Any], models: Bank) -> None:
        """Keep a round's models if they are the best so far; the initialisation does not count.

        Args:
            line: The round's line.
            models: What the clients received, ``[M, ...]`` by name.
        """
        accuracy = (line["received"] or {}).get("accuracy")
        if not line["round"] or accuracy is None:
            return
        if self._best is None or accuracy > self._best:
            self._best = accuracy
            self._kept["best"] = self._write(BEST, line["round"], accuracy, models)

    def keep_last(self, line: Mapping[str, Any], models: Bank) -> None:
        """Keep the models of the last round; where they are the best, one file serves for both."""
        best, round_ = self._kept.get("best"), line["round"]
        if best and best.round == round_:
            self._kept["best"] = KeptModels(best.path, ("best", "last"), round_, best.accuracy)
            (self.folder / LAST).unlink(missing_ok=True)
            return
        accuracy = (line["received"] or {}).get("accuracy")
        self._kept["last"] = self._write(LAST, round_, accuracy, models)

    def files(self) -> list[KeptModels]:
        """Return what was kept."""
        return list(self._kept.values())

    def _write(self, name: str, round_: int, accuracy: float | None, models: Bank) -> KeptModels:
        make_folder(self.folder)
        path = self.folder / name
        content = {"round": round_, "accuracy": accuracy, "models": dict(models)}
        with atomic_file(path) as file:
            torch.save(content, cast(IO[bytes], file))
        return KeptModels(path, (path.stem,), round_, accuracy)

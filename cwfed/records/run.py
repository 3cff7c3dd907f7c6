"""A run folder, read: tables for notebooks, pages and figures.

Legend: M clients, K classes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from cwfed.messages.texts import shown
from cwfed.records.checksums import opened_arrays
from cwfed.records.files import read_yaml
from cwfed.records.names import (
    CLIENTS,
    CONFIG,
    LABELS,
    RESULT,
    ROUNDS,
    SNAPSHOTS,
    round_of,
    snapshot_path,
)
from cwfed.records.reading import read_arrays, reading, require_no_links
from cwfed.records.round_lines import METRICS, read_lines
from cwfed.records.run_files import load_clients, load_labels, load_result
from cwfed.records.scalars import flatten
from cwfed.records.snapshot import Snapshot

if TYPE_CHECKING:
    from pandas import DataFrame

Part = Literal["train", "val", "test"]


@dataclass(frozen=True, repr=False)
class Run:
    """A run folder, read; a run that is still going is read as far as it has come.

    Attributes:
        path: The folder.
        config: The resolved configuration.
        result: Content of ``result.json``; None before the end.
        lines: Lines of ``rounds.jsonl``.
    """

    path: Path
    config: Mapping[str, Any]
    result: Mapping[str, Any] | None
    lines: list[dict[str, Any]]

    @classmethod
    def load(cls, path: str | Path) -> "Run":
        """Read a run folder.

        Raises:
            ValueError: It is no run folder, holds links, or a file in it is damaged.
        """
        folder = Path(path)
        if not (folder / CONFIG).exists():
            raise ValueError(f"{folder}: expected a run folder with a {CONFIG}")
        require_no_links(folder)
        config = read_yaml(folder / CONFIG, "a configuration")
        if not isinstance(config, dict) or "algorithm" not in config:
            raise ValueError(f"{folder / CONFIG}: expected a run's configuration")
        result = load_result(folder / RESULT) if (folder / RESULT).exists() else None
        lines = read_lines(folder / ROUNDS)
        if result and len(lines) != result["rounds"] + 1:
            raise ValueError(
                f"{folder / ROUNDS}: expected the rounds 0 to {result['rounds']} of the result, "
                f"got {len(lines)} lines"
            )
        return cls(folder, config, result, lines)

    def __repr__(self) -> str:
        """Return the run in a line: what it is, and how far it has come."""
        last = self.lines[-1]["round"] if self.lines else "no"
        told = f"{self.algorithm} on {self.dataset}, seed {self.seed}"
        return shown(
            f"Run({self.path.name!r}: {told}, {last} of {self.config.get('rounds')} rounds)"
        )

    @property
    def summary(self) -> "DataFrame":
        """Test accuracies that ``result.json`` quotes, a row a metric; empty before the end.

        Columns: ``last``, ``best`` and its round ``best_round``; with a validation part
        ``val_selected`` and ``val_selected_round``; ``worst10`` over the clients after the last
        round.
        """
        from pandas import DataFrame

        with reading(self.path / RESULT, "accuracies by metric"):
            rows = {metric: self._quoted(metric) for metric in METRICS} if self.result else {}
            table = DataFrame.from_dict(rows, orient="index")
            table.index.name = "metric"
            return table.dropna(axis="columns", how="all")

    def _quoted(self, metric: str) -> dict[str, Any]:
        assert self.result is not None
        chosen, row = self.result[metric], {}
        for kind in ("last", "best", "val_selected"):
            quote = chosen[kind] or {"accuracy": None, "round": None}
            row[kind] = quote["accuracy"]
            if kind != "last":
                row[f"{kind}_round"] = quote["round"]
        return {**row, "worst10": (chosen["fairness"] or {}).get("worst10")}

    @property
    def algorithm(self) -> str:
        """Name of the method."""
        with reading(self.path / CONFIG, "the method's name"):
            return str(self.config["algorithm"]["name"])

    @property
    def dataset(self) -> str:
        """Class of the data source, without its module."""
        with reading(self.path / CONFIG, "the class of the data"):
            return str(self.config["data"]["class_path"]).rpartition(".")[2]

    @property
    def seed(self) -> int:
        """The seed."""
        with reading(self.path / CONFIG, "a seed"):
            return int(self.config["seed"])

    @cached_property
    def rounds(self) -> "DataFrame":
        """A row a round, the initialisation as round 0; columns such as ``received/accuracy``."""
        from pandas import DataFrame

        with reading(self.path / ROUNDS, "figures of every round"):
            table = DataFrame([{"round": line["round"], **flatten(line)} for line in self.lines])
            return table.set_index("round") if len(table) else table

    def accuracy(self, metric: Literal["received", "post_local"] = "received") -> "DataFrame":
        """Return every client's test accuracy, a row a scored round and a column a client.

        NaN for a client without test samples.

        Raises:
            ValueError: The metric is neither ``received`` nor ``post_local``, or the folder has no
                label counts.
        """
        from pandas import DataFrame

        if metric not in METRICS:
            raise ValueError(f"metric: expected 'received' or 'post_local', got {metric!r}")
        total_M = self.label_counts("test").to_numpy().sum(1)
        with reading(self.path / ROUNDS, "every client's correct predictions"):
            scored = {line["round"]: line[metric]["correct"] for line in self.lines if line[metric]}
            correct = DataFrame.from_dict(scored, orient="index", columns=range(len(total_M)))
            correct.index.name, correct.columns.name = "round", "client"
            return correct / np.where(total_M > 0, total_M, np.nan)

    @cached_property
    def clients(self) -> "DataFrame":
        """A row a client, as in ``clients.csv``; empty before the end of the run."""
        from pandas import DataFrame

        if not (self.path / CLIENTS).is_file():
            return DataFrame()
        kept = (self.result or {}).get("hashes", {}).get("clients")
        with reading(self.path / CLIENTS, "a row of numbers for every client"):
            table = DataFrame(load_clients(self.path / CLIENTS, kept))
            whole = ["client", "samples", "train", "val", "test", "classes"]
            return table.astype(dict.fromkeys(whole, "int64")).set_index("client")

    @cached_property
    def _labels(self) -> dict[str, Any]:
        path = self.path / LABELS
        try:
            return load_labels(path)
        except FileNotFoundError:
            raise ValueError(
                f"{path}: not there, since the run was made by a version that wrote none"
            ) from None

    @property
    def classes(self) -> list[str]:
        """K names of classes."""
        return list(self._labels["classes"])

    def label_counts(self, part: Part = "train") -> "DataFrame":
        """Return label counts, a row a client and a column a class.

        Raises:
            ValueError: There is no such part, or the folder has no label counts.
        """
        from pandas import DataFrame, RangeIndex

        counts = self._labels["counts"]
        if part not in counts:
            raise ValueError(f"part: expected one of {', '.join(counts)}, got {part!r}")
        index = RangeIndex(len(counts[part]), name="client")
        return DataFrame(counts[part], index=index, columns=self.classes, dtype="int64")

    @property
    def p_MK(self) -> np.ndarray:
        """Label distributions that R is measured against, float64 ``[M, K]``."""
        return np.asarray(self._labels["p"], dtype=np.float64)

    @cached_property
    def snapshot_rounds(self) -> list[int]:
        """Rounds that have a snapshot, ascending; none later than the last line."""
        last = self.lines[-1]["round"] if self.lines else -1
        rounds = [round_of(path) for path in (self.path / SNAPSHOTS).glob("round_*.npz")]
        return sorted(round_ for round_ in rounds if round_ is not None and round_ <= last)

    def snapshot(self, round_: int | None = None) -> Snapshot:
        """Return the snapshot of a round, by default the last.

        Raises:
            ValueError: There is none of this round, or it is damaged.
        """
        if not self.snapshot_rounds:
            raise ValueError(f"{self.path}: no snapshots (--snapshots.every 0, or an older run)")
        wanted = self.snapshot_rounds[-1] if round_ is None else round_
        if wanted not in self.snapshot_rounds:
            there = ", ".join(map(str, self.snapshot_rounds))
            raise ValueError(f"round: expected one of {there}, got {wanted}")
        path = snapshot_path(self.path, wanted)
        held = read_arrays(path)
        with reading(path, "norms of the output layers by client and class"):
            held = opened_arrays(held)
            upload, received = (_matrix(held[f"norms_{of}"]) for of in ("upload", "received"))
        prefix = "mixing_"
        mixing = {n.removeprefix(prefix): v for n, v in held.items() if n.startswith(prefix)}
        return Snapshot(wanted, upload, received, mixing)


def _matrix(values: np.ndarray) -> np.ndarray:
    if values.ndim != 2 or values.dtype.kind != "f":
        raise ValueError(f"got {values.dtype} {list(values.shape)}")
    return values

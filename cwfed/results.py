"""The run record: what a run leaves behind, its schema, writing and reading.

Legend: M clients. Accuracies are fractions between 0 and 1.
"""

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any, cast

import numpy as np
import yaml
from torch import Tensor

from cwfed.functional.fairness import fairness, pooled_accuracy
from cwfed.records.atomic import make_folder, write_atomic
from cwfed.records.checksums import CHECKSUM, arrays_checksum, sealed
from cwfed.records.reading import MOST_CONFIG, load_yaml, read_text
from cwfed.records.round_lines import METRICS

SCHEMA_VERSION = 1

Score = Mapping[str, Tensor]
"""By part of the data (``test``, ``val``): float64 ``[M, 3]``, correct, samples, summed loss."""

SNAPSHOTS = "snapshots"

_ROUND = re.compile("round_([0-9]{6,20})")


@dataclass(frozen=True)
class RoundRecord:
    """One round, as the callbacks see it.

    Attributes:
        round: 0 for the common initialisation.
        participants: Ids of the clients that were asked to train.
        received: Scores of the models with which the clients would start the next round; None in
            a round without evaluation.
        post_local: Scores of every client's model right after its last local training; None in a
            round without evaluation, and before any training.
        train_loss: Mean local objective over the participants that trained and remained.
        mean_r: Mean over clients of R of their last uploads.
        seconds: Seconds by phase.
        bytes_up: Bytes that each participant sent, in their order.
        bytes_down: Bytes that each participant received to start the round.
        figures: The method's own figures, by name.
        mixing: Who learned from whom, ``[M, M]`` by tensor name; see `Broadcast.mixing`.
        excluded: Participants that were left out, with the reason.
    """

    round: int
    participants: tuple[int, ...]
    received: Score | None
    post_local: Score | None
    train_loss: float | None
    mean_r: float
    seconds: Mapping[str, float]
    bytes_up: tuple[int, ...] = ()
    bytes_down: tuple[int, ...] = ()
    figures: Mapping[str, float] = field(default_factory=dict)
    mixing: Mapping[str, Tensor] = field(default_factory=dict)
    excluded: Mapping[int, str] = field(default_factory=dict)

    def to_line(self) -> dict[str, Any]:
        """Return the line of ``rounds.jsonl``; all that depends on the machine is in seconds."""
        excluded = {str(client): reason for client, reason in sorted(self.excluded.items())}
        return {
            "round": self.round,
            "participants": list(self.participants),
            **({"excluded": excluded} if excluded else {}),
            "received": summarise_score(self.received) if self.received else None,
            "post_local": summarise_score(self.post_local) if self.post_local else None,
            "train_loss": finite(self.train_loss),
            "mean_R": finite(self.mean_r),
            "method": {name: finite(value) for name, value in self.figures.items()},
            "bytes": {"up": list(map(int, self.bytes_up)), "down": list(map(int, self.bytes_down))},
            "seconds": {name: round(value, 4) for name, value in self.seconds.items()},
        }


def summarise_score(score: Score) -> dict[str, Any]:
    """Return accuracy, loss and fairness of a score, and correct predictions by client."""
    correct, total, loss = score["test"].T
    counts, totals = correct.long().tolist(), total.long().tolist()
    summary = {
        "accuracy": pooled_accuracy(counts, totals),
        "loss": finite(loss.sum().item() / total.sum().item()) if total.sum() else None,
        "fairness": fairness(counts, totals),
        "correct": counts,
    }
    if "val" in score:
        val_correct, val_total, _ = score["val"].long().T
        summary["val_accuracy"] = pooled_accuracy(val_correct.tolist(), val_total.tolist())
    return summary


def finite(value: float | None) -> float | None:
    """Return the value, or None where it is missing, infinite or not a number."""
    return value if value is not None and isfinite(value) else None


def select(lines: Sequence[Mapping[str, Any]], metric: str) -> dict[str, Any]:
    """Choose the rounds that a result quotes for one metric.

    Rounds without an evaluation do not count. The initialisation is no round: it counts only where
    nothing else is there. ``best`` is the
    first maximum over rounds of the test accuracy, as published figures are;
    ``val_selected`` is the test accuracy of the round with the first maximum of the validation
    accuracy, None without a validation part.

    Args:
        lines: Lines of ``rounds.jsonl``.
        metric: ``received`` or ``post_local``.
    """
    scored = [line for line in lines if line[metric] and line[metric]["accuracy"] is not None]
    if not scored:
        return {"best": None, "last": None, "val_selected": None, "fairness": None}
    scored = [line for line in scored if line["round"]] or scored
    validated = [line for line in scored if line[metric].get("val_accuracy") is not None]

    def quote(line: Mapping[str, Any]) -> dict[str, Any]:
        return {"accuracy": line[metric]["accuracy"], "round": line["round"]}

    best = max(scored, key=lambda line: line[metric]["accuracy"])
    chosen = max(validated, key=lambda line: line[metric]["val_accuracy"], default=None)
    return {
        "best": quote(best),
        "last": quote(scored[-1]),
        "val_selected": quote(chosen) if chosen else None,
        "fairness": scored[-1][metric]["fairness"],
    }


def make_result(lines: Sequence[Mapping[str, Any]], about: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of ``result.json``.

    Where clients were left out, ``excluded`` counts them by reason over all rounds.

    Args:
        lines: All lines of ``rounds.jsonl``.
        about: What identifies the run: names, seed, versions, hashes.
    """
    seconds: dict[str, float] = {}
    sent = {way: [sum(line["bytes"][way]) for line in lines] for way in ("up", "down")}
    uploads = sum(len(line["participants"]) for line in lines)
    excluded = Counter(reason for line in lines for reason in line.get("excluded", {}).values())
    for line in lines:
        for phase, value in line["seconds"].items():
            seconds[phase] = seconds.get(phase, 0.0) + value
    return {
        "schema_version": SCHEMA_VERSION,
        **about,
        "rounds": lines[-1]["round"],
        **{metric: select(lines, metric) for metric in METRICS},
        "mean_R": lines[-1]["mean_R"],
        **({"excluded": dict(sorted(excluded.items()))} if excluded else {}),
        "bytes": {
            way: {"total": sum(sent[way]), "per_client_and_round": sum(sent[way]) / max(uploads, 1)}
            for way in sent
        },
        "seconds": {phase: round(value, 3) for phase, value in seconds.items()},
    }


def write_sealed(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON file with its checksum atomically."""
    write_json(path, sealed(value))


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON file atomically."""
    write_atomic(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def round_of(path: Path) -> int | None:
    """Return the round in a name such as ``round_000002.npz``; None for any other name."""
    found = _ROUND.fullmatch(path.stem)
    return int(found[1]) if found and path.stem == round_stem(int(found[1])) else None


def round_stem(round_: int) -> str:
    """Return the name, less its ending, of a file of one round."""
    return f"round_{round_:06d}"


def snapshot_path(folder: Path, round_: int) -> Path:
    """Return where a run folder keeps the snapshot of a round."""
    return folder / SNAPSHOTS / f"{round_stem(round_)}.npz"


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write NumPy's ``npz`` with its checksum atomically; its folder is made if missing."""
    make_folder(path.parent)
    content = io.BytesIO()
    # First: where an archive loses members, it is the last.
    np.savez_compressed(content, **cast(Any, {CHECKSUM: arrays_checksum(arrays), **arrays}))
    write_atomic(path, content.getvalue())


def read_yaml(path: Path, expected: str = "a readable YAML file") -> Any:
    """Return the content of a YAML file, of plain values only.

    Raises:
        ValueError: It cannot be read or is no YAML; the message says what was expected.
    """
    try:
        return load_yaml(read_text(path, MOST_CONFIG))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{path}: expected {expected}: {reason}") from error


def write_clients(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write ``clients.csv``, a row a client, atomically."""
    table = list(rows)
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(table[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    write_atomic(path, text.getvalue())

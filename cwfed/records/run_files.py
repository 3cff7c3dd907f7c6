"""Reads what a run leaves beside its rounds, with care: result, label counts, clients.

Each is told by its file's name where it is not what was written. Files of earlier versions, which
have no checksums, are read with their fields checked.

Legend: M clients, K classes.
"""

import csv
import hashlib
import io
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from cwfed.messages.checks import (
    require_counts,
    require_integer,
    require_mapping,
    require_number,
    require_text,
)
from cwfed.records.checksums import opened
from cwfed.records.reading import load_json, read_text, reading
from cwfed.records.round_lines import GREATEST_R, METRICS, check_fairness

_CHOICES = ("best", "last", "val_selected")
_PARTS = ("train", "val", "test")
_COUNTED = ("client", "samples", "train", "val", "test", "classes")
_SCORED = ("accuracy_received", "accuracy_post_local")
_ROUNDING = 1e-6
_LONGEST_NAME = 1000


def load_result(path: Path) -> dict[str, Any]:
    """Return the content of a ``result.json``.

    Raises:
        ValueError: It is damaged or not there; the message names it.
    """
    with reading(path, "the result of a run"):
        result = opened(require_mapping(load_json(read_text(path)), "it"))
        _check_result(result)
        return result


def _check_result(result: Mapping[str, Any]) -> None:
    require_integer("schema_version", result.get("schema_version"), 1)
    rounds = require_integer("rounds", result.get("rounds"))
    require_integer("seed", result.get("seed"))
    for name in ("algorithm", "dataset"):
        require_text(result.get(name), name, _LONGEST_NAME)
    for metric in METRICS:
        _check_metric(require_mapping(result.get(metric), metric), metric, rounds)
    require_number(result.get("mean_R"), "mean_R", 0, GREATEST_R)
    for reason, count in require_mapping(result.get("excluded", {}), "excluded").items():
        require_integer(f"excluded.{reason}", count)
    sent = require_mapping(result.get("bytes"), "bytes")
    for way in ("up", "down"):
        figures = require_mapping(sent.get(way), f"bytes.{way}")
        for name in ("total", "per_client_and_round"):
            require_number(figures.get(name), f"bytes.{way}.{name}", 0, optional=False)
    for phase, value in require_mapping(result.get("seconds"), "seconds").items():
        require_number(value, f"seconds.{phase}", 0, optional=False)
    for name in ("hashes", "versions"):
        for what, value in require_mapping(result.get(name), name).items():
            require_text(value, f"{name}.{what}")
    for name in ("config", "partition"):
        require_text(result["hashes"].get(name), f"hashes.{name}")
    for name, value in require_mapping(result.get("hardware"), "hardware").items():
        if value is not None and not isinstance(value, bool | str):
            require_number(value, f"hardware.{name}")


def _check_metric(chosen: Mapping[str, Any], metric: str, rounds: int) -> None:
    for choice in _CHOICES:
        if chosen.get(choice) is not None:
            where = f"{metric}.{choice}"
            quoted = require_mapping(chosen[choice], where)
            require_number(quoted.get("accuracy"), f"{where}.accuracy", 0, 1, optional=False)
            if require_integer(f"{where}.round", quoted.get("round")) > rounds:
                raise ValueError(f"{where}.round: expected at most {rounds}, got {quoted['round']}")
    if chosen.get("fairness") is not None:
        check_fairness(chosen["fairness"], f"{metric}.fairness")


def load_labels(path: Path) -> dict[str, Any]:
    """Return the content of a ``labels.json``: ``classes``, ``counts`` by part and ``p``.

    Raises:
        ValueError: It is damaged; the message names it.
        FileNotFoundError: It is not there.
    """
    if not path.exists():
        raise FileNotFoundError(path)
    with reading(path, "label counts"):
        labels = opened(require_mapping(load_json(read_text(path)), "it"))
        _check_labels(labels)
        return labels


def _check_labels(labels: Mapping[str, Any]) -> None:
    classes = labels.get("classes")
    if not isinstance(classes, list) or not classes:
        raise ValueError(f"classes: expected names of classes, got {classes!r:.60}")
    for name in classes:
        if not isinstance(name, str) or len(name) > _LONGEST_NAME:
            raise ValueError(f"classes: expected names of classes, got {name!r:.60}")
    p = labels.get("p")
    if not isinstance(p, list):
        raise ValueError(f"p: expected a row for every client, got {p!r:.60}")
    for row in p:
        _check_distribution(row, len(classes))
    counts = require_mapping(labels.get("counts"), "counts")
    for part in _PARTS:
        rows = counts.get(part)
        if not isinstance(rows, list) or len(rows) != len(p):
            raise ValueError(f"counts.{part}: expected {len(p)} rows, got {rows!r:.60}")
        for row in rows:
            if len(require_counts(row, f"counts.{part}")) != len(classes):
                raise ValueError(f"counts.{part}: expected {len(classes)} a row, got {len(row)}")


def _check_distribution(row: Any, classes: int) -> None:
    if not isinstance(row, list) or len(row) != classes:
        raise ValueError(f"p: expected {classes} numbers a row, got {row!r:.60}")
    for value in row:
        require_number(value, "p", 0, 1 + _ROUNDING, optional=False)
    if abs(sum(row) - 1) > _ROUNDING * classes and any(row):
        raise ValueError(f"p: expected rows that add up to 1, got {sum(row):.6g}")


def clients_hash(path: Path) -> str:
    """Return the SHA-256 of a ``clients.csv``, as a result keeps it."""
    return hashlib.sha256(read_text(path, errors="replace").encode()).hexdigest()


def load_clients(path: Path, expected: str | None) -> list[dict[str, float]]:
    """Return the rows of a ``clients.csv``, numbers by column, NaN where a field is empty.

    Args:
        path: The file.
        expected: Its hash as the result has it; None where an earlier version kept none.

    Raises:
        ValueError: It is damaged or not there; the message names it.
    """
    with reading(path, "a row of numbers for every client"):
        if expected is not None and (found := clients_hash(path)) != expected:
            raise ValueError(f"expected the hash {expected[:12]} of the result, got {found[:12]}")
        text = io.StringIO(read_text(path), newline="")
        rows = [
            {name: float(cell) if cell else np.nan for name, cell in row.items()}
            for row in csv.DictReader(text, strict=True)
        ]
        for number, row in enumerate(rows):
            _check_row(row, number)
        return rows


def _check_row(row: Mapping[str, float], number: int) -> None:
    for name in _COUNTED:
        value = row[name]
        if not (isfinite(value) and value >= 0 and value == int(value)):
            raise ValueError(f"row {number + 1}: {name}: expected an integer >= 0, got {value}")
    if row["client"] != number:
        raise ValueError(f"row {number + 1}: client: expected {number}, got {row['client']:g}")
    if row["samples"] != row["train"] + row["val"] + row["test"]:
        raise ValueError(
            f"row {number + 1}: samples: expected the sum of train, val and test, "
            f"got {row['samples']:g}"
        )
    ranges = {**dict.fromkeys(_SCORED, 1.0), "R": GREATEST_R}
    for name, most in ranges.items():
        if not np.isnan(row[name]) and not 0 <= row[name] <= most:
            raise ValueError(f"row {number + 1}: {name}: expected 0 to {most:.4g}, got {row[name]}")

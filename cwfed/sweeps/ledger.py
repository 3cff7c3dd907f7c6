"""The ledger: one JSON line for each finished run worth keeping, in git.

With it the tables can be rebuilt, and any of their numbers checked, without run folders.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cwfed.config.files import UsageError
from cwfed.processes.lock import waiting_for
from cwfed.records.atomic import write_atomic
from cwfed.records.checksums import opened, sealed
from cwfed.records.identity import VERSION, cell_hash, identities
from cwfed.records.reading import load_json
from cwfed.records.round_lines import METRICS

_KINDS: Mapping[str, type | tuple[type, ...]] = {
    "key": str,
    "cell": str,
    "config_hash": str,
    "partition_hash": str,
    "dataset": str,
    "seed": int,
    "rounds": int,
    "metrics": dict,
    "curves": dict,
    "hardware": dict,
    "versions": dict,
    "config": dict,
}


def read_ledger(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a ledger; a missing file has none.

    Lines that an earlier version wrote are given the identities of this one.

    Raises:
        UsageError: It is a link, or a line is damaged; the message names it.
    """
    return [_line(text, f"{path}: line {number}") for number, text in enumerate(_texts(path), 1)]


def _texts(path: Path) -> list[str]:
    if path.is_symlink():
        raise UsageError(f"{path}: expected a ledger, got a link to one; give its own place")
    return path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []


def append(path: Path, line: Mapping[str, Any]) -> bool:
    """Add a line unless there is one of the same key and seed; say whether it was added.

    Whole or not at all: the file is replaced, under a lock that other writers wait for.

    Raises:
        UsageError: The ledger is damaged, or has the run on another partition.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # The folder's lock: the file itself is replaced, and its lock would go with it.
    with waiting_for(path.parent):
        lines = read_ledger(path)
        for old in lines:
            if (old["key"], old["seed"]) != (line["key"], line["seed"]):
                continue
            if old["partition_hash"] != line["partition_hash"]:
                raise UsageError(
                    f"{path}: expected the run {line['key'][:12]} on the partition "
                    f"{old['partition_hash'][:12]}, got {line['partition_hash'][:12]}: other data "
                    "or another manifest; give it a --ledger of its own"
                )
            return False
        # The lines that are there stay as they are, with or without checksums.
        texts = [*_texts(path), json.dumps(sealed(line), allow_nan=False)]
        write_atomic(path, "".join(f"{text}\n" for text in texts))
    return True


def _line(text: str, where: str) -> dict[str, Any]:
    try:
        line = load_json(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where}: expected a JSON object, got {text[:60]!r}") from error
    if not isinstance(line, dict):
        raise UsageError(f"{where}: expected a JSON object, got {text[:60]!r}")
    try:
        line = opened(line)
    except ValueError as error:
        raise UsageError(f"{where}: {error}") from error
    for name, kind in _KINDS.items():
        if not isinstance(line.get(name), kind) or isinstance(line[name], bool):
            wanted = {str: "a text", int: "an integer", dict: "a mapping"}[kind]  # type: ignore[index]
            raise UsageError(f"{where}: {name}: expected {wanted}, got {line.get(name)!r:.60}")
    if not isinstance(line.get("partition", {}), dict):
        raise UsageError(f"{where}: partition: expected a mapping, got {line['partition']!r:.60}")
    for metric in METRICS:
        _check_curve(line, metric, where)
        _check_metric(line, metric, where)
    return _with_current_keys(line)


def _with_current_keys(line: dict[str, Any]) -> dict[str, Any]:
    """Return a line known by its configuration's current identity, as new runs are.

    Only those of an earlier version change. A hash that is not the configuration's stays as it is:
    `verify` says so.
    """
    known = identities(line["config"])
    if line["config_hash"] not in known[1:]:
        return line
    return line | {
        "key": known[0],
        "cell": cell_hash(line["config"]),
        "config_hash": known[0],
        "identity_version": VERSION,
    }


def _check_curve(line: Mapping[str, Any], metric: str, where: str) -> None:
    curve = line["curves"].get(metric)
    wanted = line["rounds"] + 1
    if not isinstance(curve, list) or len(curve) != wanted:
        got = f"{len(curve)}" if isinstance(curve, list) else repr(curve)[:60]
        raise UsageError(f"{where}: curves.{metric}: expected {wanted} accuracies, got {got}")
    for value in curve:
        if value is not None and not _is_fraction(value):
            raise UsageError(
                f"{where}: curves.{metric}: expected accuracies in [0, 1] or null, got {value!r}"
            )


def _check_metric(line: Mapping[str, Any], metric: str, where: str) -> None:
    chosen = line["metrics"].get(metric)
    if not isinstance(chosen, dict):
        raise UsageError(f"{where}: metrics.{metric}: expected a mapping, got {chosen!r:.60}")
    for choice in ("best", "last", "val_selected"):
        quoted = chosen.get(choice)
        accuracy = quoted.get("accuracy") if isinstance(quoted, dict) else None
        if quoted is not None and not _is_fraction(accuracy):
            raise UsageError(
                f"{where}: metrics.{metric}.{choice}: expected null or an accuracy, got "
                f"{quoted!r:.60}"
            )


def _is_fraction(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and 0 <= value <= 1

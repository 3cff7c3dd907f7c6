"""Finished runs: found in folders, told as lines of the ledger."""

import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from cwfed.records.files import read_yaml
from cwfed.records.finished import find_result, read_result
from cwfed.records.identity import VERSION, cell_hash, identities, portable
from cwfed.records.names import CONFIG, RESULT, ROUNDS
from cwfed.records.reading import reading, require_no_links
from cwfed.records.round_lines import METRICS, read_lines

DIGITS = 6
"""Decimals of the accuracies in a curve: finer than one sample in any of the test sets."""


def find_finished(runs: Path, damaged: list[str] | None = None) -> dict[str, list[Path]]:
    """Return the folders of finished runs below a folder, by identity of their configuration.

    Args:
        runs: The folder.
        damaged: Takes a sentence for each result that is damaged, which is no finished run's.
    """
    found: dict[str, list[Path]] = {}
    for parent, folders, files in os.walk(runs):
        folders.sort()
        try:
            result = find_result(Path(parent)) if RESULT in files else None
        except ValueError as error:
            result = None
            if damaged is not None:
                damaged.append(str(error))
        if result:
            found.setdefault(_key(Path(parent), result), []).append(Path(parent))
    return found


def run_key(folder: Path) -> str | None:
    """Return the identity of the configuration of a finished run; None where there is none."""
    result = read_result(folder)
    return _key(folder, result) if result else None


def _key(folder: Path, result: Mapping[str, Any]) -> str:
    """Return the identity of a finished run's configuration.

    A result that an earlier version wrote carries an identity of that version. One whose
    configuration was changed since keeps the identity of its result.
    """
    with suppress(ValueError, TypeError):
        known = identities(read_yaml(folder / CONFIG, "a configuration"))
        if result["hashes"]["config"] in known:
            return known[0]
    return str(result["hashes"]["config"])


def describe_run(folder: Path, labels: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is worth keeping of a finished run: a line of the ledger.

    Args:
        folder: A run folder with a result.
        labels: What the run is in its table: table, row, column and profile.

    Raises:
        ValueError: A file of the run is damaged or a link.
    """
    require_no_links(folder)
    result = find_result(folder)
    if result is None:
        raise ValueError(f"{folder}: expected a finished run, got one without a whole {RESULT}")
    config = read_yaml(folder / CONFIG, "a configuration")
    lines = read_lines(folder / ROUNDS)
    if len(lines) != result["rounds"] + 1:
        raise ValueError(
            f"{folder / ROUNDS}: expected the rounds 0 to {result['rounds']} of the result, got "
            f"{len(lines)} lines"
        )
    key = _key(folder, result)
    with reading(folder / CONFIG, "the configuration of a run"):
        about = {"cell": cell_hash(config), "config": portable(config)}
    return {
        "key": key,
        "seed": result["seed"],
        "rounds": result["rounds"],
        **{name: labels.get(name) for name in ("table", "row", "column", "profile")},
        "cell": about["cell"],
        "config_hash": key,
        "identity_version": VERSION,
        "partition_hash": result["hashes"]["partition"],
        **({"partition": result["partition"]} if "partition" in result else {}),
        "dataset": result["dataset"],
        "metrics": _metrics(result),
        "curves": {metric: [_accuracy(line[metric]) for line in lines] for metric in METRICS},
        "hardware": {**result["hardware"], "cpu": labels.get("cpu")},
        "versions": result["versions"],
        "config": about["config"],
    }


def cpu_name() -> str:
    """Return the processor's model, on which the last bits depend."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _metrics(result: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **{metric: result[metric] for metric in METRICS},
        "mean_R": result["mean_R"],
        "bytes": {way: result["bytes"][way]["per_client_and_round"] for way in ("up", "down")},
        "seconds": round(sum(result["seconds"].values()), 1),
    }


def _accuracy(score: Mapping[str, Any] | None) -> float | None:
    accuracy = score["accuracy"] if score else None
    return None if accuracy is None else round(accuracy, DIGITS)

"""Finished runs: found in folders, told as lines of the ledger."""

import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.jobs import cell_hash
from cwfed.federated.folder import CONFIG, RESULT, ROUNDS, read_result
from cwfed.results import METRICS, read_lines, read_yaml

DIGITS = 6
"""Decimals of the accuracies in a curve: finer than one sample in any of the test sets."""

_NOT_KEPT = (
    "run_dir",
    "data_dir",
    "logger",
    "wandb",
    "checkpoint",
    "snapshots",
    "figures",
    "trainer",
)


def find_finished(runs: Path) -> dict[str, list[Path]]:
    """Return the folders of finished runs below a folder, by hash of their configuration."""
    found: dict[str, list[Path]] = {}
    for parent, folders, files in os.walk(runs):
        folders.sort()
        result = read_result(Path(parent)) if RESULT in files else None
        if result:
            found.setdefault(result["hashes"]["config"], []).append(Path(parent))
    return found


def describe_run(folder: Path, labels: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is worth keeping of a finished run: a line of the ledger.

    Args:
        folder: A run folder with a result.
        labels: What the run is in its table: table, row, column and profile.

    Raises:
        ValueError: A file of the run is damaged.
    """
    result = read_result(folder)
    if result is None:
        raise ValueError(f"{folder}: expected a finished run, got one without a whole {RESULT}")
    config = read_yaml(folder / CONFIG, "a configuration")
    lines = read_lines(folder / ROUNDS)
    return {
        "key": result["hashes"]["config"],
        "seed": result["seed"],
        "rounds": result["rounds"],
        **{name: labels.get(name) for name in ("table", "row", "column", "profile")},
        "cell": cell_hash(config),
        "config_hash": result["hashes"]["config"],
        "partition_hash": result["hashes"]["partition"],
        "dataset": result["dataset"],
        "metrics": _metrics(result),
        "curves": {metric: [_accuracy(line[metric]) for line in lines] for metric in METRICS},
        "hardware": {**result["hardware"], "cpu": labels.get("cpu")},
        "versions": result["versions"],
        "config": portable(config),
    }


def portable(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration without what depends on the machine."""
    kept = {name: value for name, value in config.items() if name not in _NOT_KEPT}
    trainer = config.get("trainer") or {}
    kept["trainer"] = {
        name: trainer[name] for name in ("precision", "matmul_precision") if name in trainer
    }
    for name in ("data", "partition"):
        arguments = dict(kept[name].get("init_args") or {})
        arguments.pop("path", None)
        kept[name] = {**kept[name], "init_args": arguments}
    return kept


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

"""The run folder: everything needed to trust and repeat a result."""

import hashlib
import json
import os
import platform
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import FrameType
from typing import Any

import yaml

from cwfed.data.manifest import Manifest
from cwfed.federated.callbacks import LoopCallback
from cwfed.federated.checkpoint import load_newest, save_checkpoint
from cwfed.federated.lock import lock_folder
from cwfed.federated.loop import FederatedLoop
from cwfed.federated.options import CheckpointOptions
from cwfed.federated.prepared import PreparedRun
from cwfed.federated.state import FederatedState
from cwfed.functional.distribution import label_distribution
from cwfed.results import (
    RoundRecord,
    append_line,
    make_result,
    read_lines,
    write_atomic,
    write_clients,
    write_json,
)

CONFIG = "config.yaml"
PARTITION = "partition.json"
LABELS = "labels.json"
ROUNDS = "rounds.jsonl"
CLIENTS = "clients.csv"
RESULT = "result.json"
CHECKPOINTS = "checkpoints"

_MACHINE_OPTIONS = ("run_dir", "data_dir", "logger", "checkpoint", "snapshots")
_NUMERIC_TRAINER_OPTIONS = ("precision", "matmul_precision")
_PACKAGES = ("cwfed", "torch", "lightning", "torchvision", "torchmetrics", "numpy")


def config_hash(config: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a resolved configuration, less what depends on the machine.

    Engines, threads and batches of evaluation change the last bits of a number at most.
    """
    portable = {name: value for name, value in config.items() if name not in _MACHINE_OPTIONS}
    trainer = config.get("trainer") or {}
    portable["trainer"] = {n: trainer[n] for n in _NUMERIC_TRAINER_OPTIONS if n in trainer}
    for name in ("data", "partition"):
        choice = dict(config.get(name) or {})
        arguments = dict(choice.get("init_args") or {})
        arguments.pop("path", None)
        portable[name] = {**choice, "init_args": arguments}
    text = json.dumps(portable, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def require_empty(folder: Path) -> None:
    """Raise a ValueError if the folder holds anything or is no folder."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        is_run = (folder / CONFIG).is_file()
        hint = f"a run: continue it with --resume {folder}" if is_run else "something already"
        raise ValueError(
            f"run_dir: expected an empty or new folder, got {folder}, which holds {hint}"
        )


class RunFolder:
    """Writes and reads the files of one run.

    Args:
        path: The folder; made if missing.
        config: The resolved configuration, as plain values.
    """

    def __init__(self, path: Path, config: Mapping[str, Any]) -> None:
        self.path = path
        self.config = config

    def create(self, run: PreparedRun) -> FederatedState | None:
        """Write the configuration and the partition into a new folder; there is no state yet."""
        self.path.mkdir(parents=True, exist_ok=True)
        lock_folder(self.path)
        require_empty(self.path)
        # Written first: a folder with a configuration is one that can be resumed.
        write_atomic(
            self.path / CONFIG, yaml.safe_dump(dict(self.config), sort_keys=False, width=100)
        )
        self._write_division(run)
        return None

    def _write_division(self, run: PreparedRun) -> None:
        """Write who holds which samples, and how many of each class."""
        run.data.manifest.save(self.path / PARTITION)
        write_json(self.path / LABELS, label_record(run))

    def identity(self, run: PreparedRun) -> str:
        """Return the hash that a checkpoint must carry to belong to this run."""
        text = f"{config_hash(self.config)}/{run.data.manifest.hash}"
        return hashlib.sha256(text.encode()).hexdigest()

    def restore(self, run: PreparedRun) -> FederatedState | None:
        """Return the newest good state, and cut ``rounds.jsonl`` back to it.

        Raises:
            ValueError: The folder's partition or checkpoint is of another run.
        """
        lock_folder(self.path)
        if not (self.path / PARTITION).exists() and not (self.path / ROUNDS).exists():
            self._write_division(run)
        stored = Manifest.load(self.path / PARTITION).hash
        if stored != run.data.manifest.hash:
            raise ValueError(
                f"{self.path / PARTITION}: expected the partition that the configuration and the "
                f"data give ({run.data.manifest.hash[:12]}), got {stored[:12]}: the data set or "
                f"the configuration has changed"
            )
        state = load_newest(self.path / CHECKPOINTS, self.identity(run))
        last = state.round if state else -1
        lines = read_lines(self.path / ROUNDS, last + 1)
        if len(lines) != last + 1:
            raise ValueError(
                f"{self.path / ROUNDS}: expected a line for each of the rounds 0 to {last} of the "
                f"newest checkpoint, got {len(lines)} lines"
            )
        write_atomic(self.path / ROUNDS, "".join(json.dumps(line) + "\n" for line in lines))
        return state


def label_record(run: PreparedRun) -> dict[str, Any]:
    """Return the content of ``labels.json``: names of the classes, counts by part, p by client."""
    counts = {
        "train": run.data.label_counts_MK("train", "holdout"),
        "val": run.data.label_counts_MK("val"),
        "test": run.data.label_counts_MK("test"),
    }
    return {
        "classes": list(run.data.images.class_names),
        "counts": {part: counts_MK.tolist() for part, counts_MK in counts.items()},
        "p": label_distribution(run.label_counts_MK()).tolist(),
    }


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Put Ctrl-C and SIGTERM off until the end of a block, so that what is written is whole."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[tuple[int, FrameType | None]] = []
    before = {
        which: signal.signal(which, lambda *call: came.append(call))
        for which in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for which, handler in before.items():
            signal.signal(which, handler)
    for number, _ in came[:1]:
        signal.raise_signal(number)


def read_result(path: Path) -> dict[str, Any] | None:
    """Return the result of a finished run; None if there is no whole one."""
    if not ((path / ROUNDS).is_file() and (path / CLIENTS).is_file()):
        return None
    try:
        result = json.loads((path / RESULT).read_text(encoding="utf-8"))
        finished = result["schema_version"] >= 1 and result["received"] and result["rounds"] >= 0
    except (OSError, ValueError, TypeError, LookupError, RecursionError):
        return None
    return result if finished else None


class FolderWriter(LoopCallback):
    """Writes rounds, checkpoints and the result as they happen.

    Args:
        folder: The run folder, created or restored.
        run: The run.
        options: When to save a checkpoint.
    """

    def __init__(self, folder: RunFolder, run: PreparedRun, options: CheckpointOptions) -> None:
        self.folder = folder
        self.run = run
        self.options = options
        self.loop: FederatedLoop

    def on_start(self, loop: FederatedLoop, state: FederatedState) -> None:
        """Keep the loop, whose figures the client table needs."""
        self.loop = loop

    def on_round(self, record: RoundRecord, state: FederatedState) -> None:
        """Append the round's line, then save a checkpoint: never a checkpoint without its line."""
        due = state.round % self.options.every == 0 or state.round == self.loop.rounds
        with uninterrupted():
            append_line(self.folder.path / ROUNDS, record.to_line())
            if due and state.round > 0:
                save_checkpoint(
                    self.folder.path / CHECKPOINTS,
                    state,
                    self.folder.identity(self.run),
                    self.options.keep,
                )

    def on_end(self, state: FederatedState) -> None:
        """Write the client table and, last, the result."""
        lines = read_lines(self.folder.path / ROUNDS)
        write_clients(self.folder.path / CLIENTS, self._client_rows(state, lines[-1]))
        write_json(self.folder.path / RESULT, make_result(lines, self._about(state)))

    def _client_rows(self, state: FederatedState, line: Mapping[str, Any]) -> list[dict[str, Any]]:
        manifest = self.run.data.manifest
        classes = (self.run.data.label_counts_MK("train", "val", "test") > 0).sum(1).tolist()
        distances = self.loop.distances_M(state).tolist()
        received = line["received"]["correct"]
        post_local = line["post_local"]["correct"] if line["post_local"] else None
        return [
            {
                "client": client,
                "samples": len(split.train) + len(split.val) + len(split.test),
                "train": len(split.train),
                "val": len(split.val),
                "test": len(split.test),
                "classes": classes[client],
                "accuracy_received": _ratio(received[client], len(split.test)),
                "accuracy_post_local": _ratio(post_local[client], len(split.test))
                if post_local
                else "",
                "R": distances[client],
            }
            for client, split in enumerate(manifest.clients)
        ]

    def _about(self, state: FederatedState) -> dict[str, Any]:
        experiment, data = self.run.experiment, self.run.data
        return {
            "algorithm": experiment.algorithm.name,
            "dataset": data.images.name,
            "num_clients": data.num_clients,
            "num_classes": data.images.num_classes,
            "parameters": sum(p.numel() for p in self.run.model.parameters()),
            "seed": experiment.seed,
            "hashes": {
                "config": config_hash(self.folder.config),
                "partition": data.manifest.hash,
                "dataset": data.images.content_hash,
                "models": _models_hash(state),
            },
            "versions": {"python": platform.python_version(), **_versions()},
            "hardware": {
                "machine": platform.machine(),
                "system": platform.platform(),
                "cores": os.cpu_count(),
                **asdict(self.run.trainer),
            },
        }


def _ratio(correct: int, total: int) -> float | str:
    return correct / total if total else ""


def _models_hash(state: FederatedState) -> str:
    digest = hashlib.sha256()
    for name in sorted(state.received):
        digest.update(name.encode())
        for value in state.received[name]:
            digest.update(value.contiguous().cpu().numpy().tobytes())
    return digest.hexdigest()


def _versions() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "unknown"
    return found

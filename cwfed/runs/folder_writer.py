"""Writes a run's folder as the rounds happen."""

import errno
import hashlib
import logging
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cwfed.engines.own import engine_name
from cwfed.federated.callbacks import LoopCallback
from cwfed.federated.faults import RunStopped
from cwfed.federated.loop import FederatedLoop
from cwfed.federated.options import CheckpointOptions
from cwfed.federated.record import RoundRecord
from cwfed.federated.state import FederatedState
from cwfed.processes.signals import uninterrupted
from cwfed.records.files import write_clients, write_sealed
from cwfed.records.identity import VERSION, config_hash
from cwfed.records.names import CHECKPOINTS, CLIENTS, RESULT, ROUNDS
from cwfed.records.result import make_result
from cwfed.records.round_lines import append_line, check_line, read_lines
from cwfed.records.run_files import clients_hash
from cwfed.records.versions import versions
from cwfed.runs.checkpoint import save_checkpoint
from cwfed.runs.folder import RunFolder
from cwfed.runs.prepared import PreparedRun

log = logging.getLogger("cwfed")


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
        self.unsaved: FederatedState | None = None
        self.written = 0

    def on_start(self, loop: FederatedLoop, state: FederatedState) -> None:
        """Keep the loop, whose figures the client table needs, and the size of what is there."""
        self.loop = loop
        path = self.folder.path / ROUNDS
        self.written = path.stat().st_size if path.exists() else 0

    def on_round(self, record: RoundRecord, state: FederatedState) -> None:
        """Append the round's line, then save a checkpoint: never a checkpoint without its line."""
        due = state.round % self.options.every == 0 or state.round == self.loop.rounds
        path = self.folder.path / ROUNDS
        with uninterrupted():
            if state.round > 0 and not path.exists():
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            self._append(path, record)
            self.unsaved = state if state.round > 0 else None
            if due:
                self.save()

    def _append(self, path: Path, record: RoundRecord) -> None:
        """Append a round's line to what this run has left of the file.

        Raises:
            RunStopped: A method's own figures or bytes are such that nobody could read the line,
                or somebody else has changed the file. The state is not saved then: it would push
                out the checkpoints to which the rounds that are left fit.
        """
        line = record.to_line()
        try:
            check_line(line)
        except ValueError as error:
            raise RunStopped(f"round {record.round}: {error}") from error
        try:
            append_line(path, line, self.written)
        except ValueError as error:
            self.unsaved = None
            raise RunStopped(f"{error}: something else has written to it") from error
        self.written = path.stat().st_size

    def save(self) -> None:
        """Save the last finished round, unless that has been done.

        Where `CheckpointOptions.every` is above 1, its state is kept for that until the next one.

        Raises:
            OSError: It cannot be written.
        """
        with uninterrupted():
            if self.unsaved:
                identity = self.folder.identity(self.run)
                folder = self.folder.path / CHECKPOINTS
                save_checkpoint(folder, self.unsaved, identity, self.options.keep)
            self.unsaved = None

    def close(self) -> None:
        """Save the last finished round, if it can be; what ended the run is what matters."""
        try:
            self.save()
        except OSError as error:
            log.debug("the last round could not be saved: %s", error)

    def on_end(self, state: FederatedState) -> None:
        """Write the client table and, last, the result.

        Raises:
            RunStopped: The rounds are no longer what this run has written.
        """
        path = self.folder.path / ROUNDS
        try:
            lines = read_lines(path)
            if len(lines) != state.round + 1:
                rounds = f"{state.round} rounds and the start, got {len(lines)} lines"
                raise ValueError(f"{path}: expected {rounds}")
        except ValueError as error:
            raise RunStopped(f"{error}: something else has written to it") from error
        write_clients(self.folder.path / CLIENTS, self._client_rows(state, lines[-1]))
        write_sealed(self.folder.path / RESULT, make_result(lines, self._about(state)))

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
        origin = data.manifest.origin
        return {
            "algorithm": experiment.algorithm.name,
            "dataset": data.images.name,
            "num_clients": data.num_clients,
            "num_classes": data.images.num_classes,
            "samples": {"kind": data.images.kind, "scaling": data.images.scaling},
            "parameters": sum(p.numel() for p in self.run.model.parameters()),
            "seed": experiment.seed,
            "identity_version": VERSION,
            **({"partition": dict(origin)} if origin else {}),
            "hashes": {
                "config": config_hash(self.folder.config),
                "partition": data.manifest.hash,
                "dataset": data.images.content_hash,
                "models": _models_hash(state),
                "clients": clients_hash(self.folder.path / CLIENTS),
            },
            "versions": {"python": platform.python_version(), **versions()},
            "hardware": {
                "machine": platform.machine(),
                "system": platform.platform(),
                "cores": os.cpu_count(),
                **asdict(self.run.trainer),
                "engine": engine_name(self.run.trainer.engine),
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

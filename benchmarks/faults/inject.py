"""Fails or kills a run at one of its steps: every file operation in its folder, and its phases.

Operations are those of `os` on paths in the run folder, through which every file of a run is
written; phases are the calls of the loop, and each client's training and evaluation.
"""

import errno
import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any

from cwfed.records.atomic import TEMPORARY

KILL, FULL, DENIED, GONE, MEMORY = "SIGKILL", "full disk", "permission", "folder gone", "memory"
"""Faults beside the names of signals."""

_PHASES = (
    "cwfed.federated.loop.FederatedLoop.select",
    "cwfed.federated.loop.FederatedLoop.fit",
    "cwfed.federated.loop.FederatedLoop.aggregate",
    "cwfed.federated.loop.FederatedLoop.report",
    "cwfed.engines.sequential.SequentialEngine._train",
    "cwfed.engines.sequential.SequentialEngine.evaluate",
    "cwfed.federated.snapshots.SnapshotWriter.on_round",
    "cwfed.runs.folder_writer.FolderWriter.on_round",
    "cwfed.runs.folder_writer.FolderWriter.on_end",
    "cwfed.tracking.loggers.RoundLogger.on_round",
)
_BY_PATH = ("open", "mkdir", "replace", "unlink")
_BY_DESCRIPTOR = ("write", "fsync", "ftruncate", "close")


@dataclass(frozen=True)
class Fault:
    """A fault and its step.

    Attributes:
        kind: A constant of this module or the name of a signal.
        step: Number of the step, from 0.
        half: Write half of the bytes first; only for the steps that write.
    """

    kind: str
    step: int
    half: bool = False


@dataclass
class Injector:
    """Counts steps and carries out a fault.

    Attributes:
        folder: The run folder.
        fault: The fault; None only counts.
        steps: Names of the steps so far: what is done, and to which file.
    """

    folder: Path
    fault: Fault | None = None
    steps: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Start with no open files."""
        self._names: dict[int, str] = {}
        self._full = False

    def install(self) -> None:
        """Put itself between this process and the system; for a process of its own only."""
        for name in _BY_PATH:
            setattr(os, name, self._by_path(name, getattr(os, name)))
        for name in _BY_DESCRIPTOR:
            setattr(os, name, self._by_descriptor(name, getattr(os, name)))
        for path in _PHASES:
            self._watch_phase(path)

    def _by_path(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def wrapper(path: Any, *rest: Any, **options: Any) -> Any:
            label = self._label(path)
            if label is None:
                return call(path, *rest, **options)
            takes_room = name == "mkdir" or (name == "open" and bool(rest[0] & os.O_CREAT))
            self._step(f"{name} {label}", path, takes_room=takes_room)
            done = call(path, *rest, **options)
            if name == "open":
                self._names[done] = label
            return done

        return wrapper

    def _by_descriptor(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def wrapper(descriptor: int, *rest: Any) -> Any:
            label = self._names.get(descriptor)
            if label is None:
                return call(descriptor, *rest)
            if name == "close":
                del self._names[descriptor]
                return call(descriptor)
            if name == "write" and self.fault and self.fault.half and self._is_due():
                call(descriptor, rest[0][: len(rest[0]) // 2])
            takes_room = name in ("write", "fsync")
            self._step(f"{name} {label}", self.folder / label, takes_room=takes_room)
            return call(descriptor, *rest)

        return wrapper

    def _watch_phase(self, path: str) -> None:
        module, owner_name, name = path.rsplit(".", 2)
        owner = getattr(__import__(module, fromlist=[owner_name]), owner_name)
        call = getattr(owner, name)

        @wraps(call)
        def wrapper(*arguments: Any, **options: Any) -> Any:
            self._step(f"phase {owner_name}.{name}", self.folder)
            return call(*arguments, **options)

        setattr(owner, name, wrapper)

    def _label(self, path: Any) -> str | None:
        """Return a path's place in the run folder with its temporary name made plain."""
        try:
            relative = Path(os.fsdecode(path)).relative_to(self.folder)
        except (TypeError, ValueError):
            return None
        if relative.name.endswith(TEMPORARY):
            plain = relative.name.removeprefix(".").removesuffix(TEMPORARY).rpartition(".")[0]
            relative = relative.with_name(f"{plain}~")
        return relative.as_posix()

    def _is_due(self) -> bool:
        return self.fault is not None and len(self.steps) == self.fault.step

    def _step(self, name: str, path: Any, *, takes_room: bool = False) -> None:
        due = self._is_due()
        self.steps.append(name)
        if self.fault is None:
            return
        kind = self.fault.kind
        if kind == FULL:
            self._full |= due
            if self._full and takes_room:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(path))
        elif due and kind == DENIED and takes_room:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), os.fspath(path))
        elif due and kind == MEMORY:
            raise MemoryError
        elif due and kind == GONE:
            shutil.rmtree(self.folder)
        elif due and kind.startswith("SIG"):
            os.kill(os.getpid(), getattr(signal, kind))

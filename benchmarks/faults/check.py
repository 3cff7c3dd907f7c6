"""Checks that a run folder's files are whole, and that those of two runs are the same."""

import csv
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

from cwfed.records.atomic import TEMPORARY
from cwfed.records.names import (
    CHECKPOINTS,
    CLIENTS,
    CONFIG,
    LABELS,
    PARTITION,
    RESULT,
    ROUNDS,
    SNAPSHOTS,
)
from cwfed.records.round_lines import read_rounds
from cwfed.records.run_files import load_result

_WHOLE = (CONFIG, PARTITION, LABELS, CLIENTS)


def broken_files(folder: Path) -> list[str]:
    """Return which of a run folder's visible files are not whole, whatever happened to it."""
    broken = []
    for path in sorted(folder.rglob("*")):
        if path.is_dir() or (path.name.startswith(".") and path.name.endswith(TEMPORARY)):
            continue
        try:
            _read(path)
        except Exception as error:
            broken.append(f"{path.relative_to(folder)} is broken ({error!r:.80})")
    return broken


def _read(path: Path) -> Any:
    """Read a file of a run folder as whatever it is; raise if it is not whole."""
    if path.name == ROUNDS:
        found = read_rounds(path)
        if found.damage and not found.cut:
            raise ValueError(found.damage)
        return [{**line, "seconds": None} for line in found.lines]
    if path.name == RESULT:
        # The seconds enter the checksum.
        return {**load_result(path), "seconds": None}
    if path.suffix == ".json":
        return json.loads(path.read_text())
    if path.suffix == ".yaml":
        return yaml.safe_load(path.read_text())["rounds"]
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name].tolist() for name in arrays}
    if path.suffix == ".pt":
        return _digest(torch.load(path, weights_only=True))
    return list(csv.reader(path.open(newline="")))[1]


def _digest(state: Mapping[str, Any]) -> list[str]:
    """Return the tensors of a state in words: equal states may lie differently in their files."""
    found = [f"round {state['round']}"]
    for bank in sorted(set(state) - {"round"}):
        for name, value in sorted(state[bank].items()):
            content = hashlib.sha256(value.contiguous().numpy().tobytes()).hexdigest()
            found.append(f"{bank}/{name} {value.dtype} {list(value.shape)} {content}")
    return found


def fingerprint(folder: Path) -> str:
    """Return a hash of a folder's content, less what no two runs share."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_dir():
            continue
        hidden = path.name.endswith(TEMPORARY)
        try:
            content = "" if hidden else json.dumps(_read(path))
        except Exception:
            content = path.read_bytes().hex()
        if path.name == ROUNDS:
            # Half a line is a state of its own; how long the half is depends on the seconds.
            content += str(len(read_rounds(path).rest))
        name = path.parent.name if hidden else str(path.relative_to(folder))
        digest.update(f"{name}\0{content}\0".encode())
    return digest.hexdigest()


def differences(reference: Path, folder: Path) -> list[str]:
    """Return in which files a run differs from one that was left alone, seconds aside."""
    files = [p.name for p in (reference / SNAPSHOTS).iterdir()]
    # Of the checkpoints the newest: a stop adds one, and the last ones stay.
    newest = max((reference / CHECKPOINTS).glob("*.pt"))
    names = [*_WHOLE, ROUNDS, RESULT, *(f"{SNAPSHOTS}/{name}" for name in sorted(files))]
    names += [f"{CHECKPOINTS}/{newest.name}"]
    different = []
    for name in names:
        ours, theirs = folder / name, reference / name
        if not (ours.exists() and theirs.exists()):
            different.append(f"{name} is missing in one")
            continue
        same_bytes = name not in _WHOLE or ours.read_bytes() == theirs.read_bytes()
        if not (same_bytes and _read(ours) == _read(theirs)):
            different.append(name)
    return different

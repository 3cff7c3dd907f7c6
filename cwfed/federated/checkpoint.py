"""Checkpoints of the federated state: atomic, checksummed, readable without pickle's code."""

import hashlib
import json
import os
import zipfile
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

from cwfed.federated.state import FederatedState
from cwfed.results import write_json

_PREFIX = "round_"


def save_checkpoint(folder: Path, state: FederatedState, identity: str, keep: int) -> Path:
    """Write a checkpoint and remove all but the newest `keep`.

    Args:
        folder: Folder of the checkpoints; made if missing.
        state: What to save.
        identity: Hash of configuration and partition; loading asks for the same.
        keep: How many of the newest checkpoints stay.

    Returns:
        Path of the file of tensors. A JSON file beside it, written last, holds its checksum: a
        checkpoint without one does not count.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{_PREFIX}{state.round:06d}.pt"
    partial = path.with_suffix(".pt.partial")
    payload = {
        "round": state.round,
        "uploads": dict(state.uploads),
        "received": dict(state.received),
        "anchors": dict(state.anchors),
        "personal": dict(state.personal),
        "server": dict(state.server),
        "post_local": dict(state.post_local),
    }
    with partial.open("wb") as file:
        torch.save(payload, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)
    seal = {"round": state.round, "identity": identity, "sha256": _sha256(path)}
    write_json(path.with_suffix(".json"), seal)
    for old in sorted(folder.glob(f"{_PREFIX}*.pt"))[:-keep]:
        old.with_suffix(".json").unlink(missing_ok=True)
        old.unlink()
    return path


def load_newest(folder: Path, identity: str) -> FederatedState | None:
    """Load the newest checkpoint that is whole; None if there is none.

    Raises:
        ValueError: A whole checkpoint belongs to another configuration or partition.
    """
    for path in sorted(folder.glob(f"{_PREFIX}*.pt"), reverse=True):
        seal = _read_seal(path.with_suffix(".json"))
        if seal is None or seal.get("sha256") != _sha256(path):
            continue
        if seal.get("identity") != identity:
            raise ValueError(
                f"{path}: expected a checkpoint of this run's configuration and partition "
                f"({identity[:12]}), got one of {str(seal.get('identity'))[:12]}"
            )
        try:
            return _read_state(path)
        except Exception as error:  # a damaged file makes PyTorch raise nearly anything
            raise ValueError(f"{path}: expected a state of this version, got: {error}") from error
    return None


def _read_state(path: Path) -> FederatedState:
    with zipfile.ZipFile(path) as file:
        # PyTorch packs nothing: a small file that unpacks to more than there is was not saved here.
        if any(member.compress_type != zipfile.ZIP_STORED for member in file.infolist()):
            raise ValueError("a packed archive")
    state = FederatedState(**torch.load(path, map_location="cpu", weights_only=True))
    for field in fields(state):
        value = getattr(state, field.name)
        if field.name == "round":
            sound = type(value) is int and value >= 0
        else:
            sound = isinstance(value, dict) and all(
                isinstance(name, str) and isinstance(tensor, torch.Tensor)
                for name, tensor in value.items()
            )
        if not sound:
            raise ValueError(f"{field.name} is of another kind")
    return state


def _read_seal(path: Path) -> dict[str, Any] | None:
    try:
        seal = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return seal if isinstance(seal, dict) else None


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()

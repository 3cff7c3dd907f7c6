"""Checkpoints of the federated state: atomic, checksummed, readable without pickle's code.

A checkpoint is a file of tensors and, written last, a JSON file with its checksum, the seal, which
has a checksum of its own. A kill leaves a file without a seal, which does not count; a seal without
its file's checksum, or its own, means that the disk or somebody has damaged it.

Legend: M clients.
"""

import hashlib
import logging
import warnings
import zipfile
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import IO, Any, cast

import torch
from torch import Tensor

from cwfed.federated.state import FederatedState, difference
from cwfed.messages.checks import require_mapping
from cwfed.records.atomic import atomic_file, make_folder
from cwfed.records.checksums import opened
from cwfed.records.files import write_sealed
from cwfed.records.names import round_of, round_stem
from cwfed.records.reading import load_json, read_text, require_regular

FORMAT = 1
"""Version of the content; raised when an older program could not go on from it."""

_FIELDS = tuple(entry.name for entry in fields(FederatedState))
_BANKS = ("uploads", "received", "personal", "anchors")

log = logging.getLogger("cwfed")


class _Damaged(Exception):
    """The bytes are not those that were written."""


def save_checkpoint(folder: Path, state: FederatedState, identity: str, keep: int) -> Path:
    """Write a checkpoint and remove all but the newest `keep`.

    Args:
        folder: Folder of the checkpoints; made if missing.
        state: What to save.
        identity: Hash of configuration and partition; loading asks for the same.
        keep: How many of the newest checkpoints stay. The one just written always does.

    Returns:
        Path of the file of tensors.

    Raises:
        OSError: It cannot be written; the message names the file. Older checkpoints stay.
    """
    make_folder(folder)
    path = folder / f"{round_stem(state.round)}.pt"
    payload = {
        name: dict(value) if isinstance(value := getattr(state, name), Mapping) else value
        for name in _FIELDS
    }
    with atomic_file(path) as file:
        torch.save(payload, cast(IO[bytes], file))
    seal = {
        "format": FORMAT,
        "round": state.round,
        "identity": identity,
        "sha256": file.sha256.hexdigest(),
    }
    write_sealed(path.with_suffix(".json"), seal)
    _prune(folder, state.round, keep)
    return path


def reseal(folder: Path, earlier: Collection[str], identity: str) -> None:
    """Give an identity to the checkpoints that carry one of the earlier ones.

    Args:
        folder: Folder of the checkpoints; may be missing.
        earlier: What they may carry.
        identity: What they are to carry.
    """
    for path in _by_round(folder).values():
        seal_path = path.with_suffix(".json")
        with suppress(_Damaged, FileNotFoundError):
            seal = _read_seal(seal_path)
            if seal.get("identity") in earlier and seal["identity"] != identity:
                write_sealed(seal_path, seal | {"identity": identity})


def _prune(folder: Path, newest: int, keep: int) -> None:
    """Remove old checkpoints, and those of later rounds than the newest.

    The run has gone back behind the latter; they must not push good ones out.
    """
    by_round = _by_round(folder)
    kept = [round_ for round_ in sorted(by_round) if round_ <= newest][-keep:]
    for round_, path in by_round.items():
        if round_ not in kept:
            path.with_suffix(".json").unlink(missing_ok=True)
            path.unlink()


def load_newest(
    folder: Path,
    identity: str,
    like: FederatedState | None = None,
    latest: int | None = None,
    earlier: Collection[str] = (),
) -> FederatedState | None:
    """Load the newest checkpoint that is whole; None if none was ever finished.

    Args:
        folder: Folder of the checkpoints; may be missing.
        identity: Hash of configuration and partition that it must carry.
        like: The state before the first round: what is loaded must have the same names, shapes and
            dtypes in its models and in the method's state.
        latest: The last round that it may be of.
        earlier: The same hash as earlier versions made it; each will do, too.

    Raises:
        ValueError: A whole checkpoint belongs to another configuration, partition or version, or
            holds something else; or there are checkpoints, but all are damaged or too late.
        OSError: A file cannot be read.
    """
    passed_over, unsealed = [], []
    for round_, path in sorted(_by_round(folder).items(), reverse=True):
        if not path.with_suffix(".json").exists():
            unsealed.append(f"{path.name} has no seal ({path.stem}.json)")
            continue
        if latest is not None and round_ > latest:
            passed_over.append(f"{path.name} is of a round that is not recorded")
        else:
            try:
                return _load(path, round_, (identity, *earlier), like)
            except _Damaged as error:
                passed_over.append(f"{path.name} is damaged ({error})")
        log.warning("%s; looking for the one before", passed_over[-1])
    # A kill leaves one without a seal beside sealed ones, or the very first.
    passed_over = passed_over or unsealed[1:]
    if passed_over:
        raise ValueError(f"{folder}: expected a whole checkpoint, got none: {passed_over[0]}")
    return None


def _load(
    path: Path, round_: int, identities: tuple[str, ...], like: FederatedState | None
) -> FederatedState:
    require_regular(path)
    seal = _read_seal(path.with_suffix(".json"))
    if seal["sha256"] != _sha256(path):
        raise _Damaged("its checksum does not fit")
    version = seal.get("format", 1)  # the first seals did not say
    if version != FORMAT:
        raise ValueError(
            f"{path}: expected a checkpoint of format {FORMAT}, got {version!r}: another version "
            f"of cwfed has written it"
        )
    if seal.get("identity") not in identities:
        raise ValueError(
            f"{path}: expected a checkpoint of this run's configuration and partition "
            f"({identities[0][:12]}), got one of {str(seal.get('identity'))[:12]}"
        )
    try:
        _require_unpacked(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about kinds of tensors that are refused below
            payload = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, MemoryError):
        raise
    except Exception as error:  # a foreign file can make it raise anything
        kind = str(error).strip().partition("\n")[0][:200] or type(error).__name__
        raise ValueError(
            f"{path}: expected tensors only, got something else, of which nothing was run: {kind}"
        ) from error
    problem = _problem(payload, round_, like)
    if problem:
        raise ValueError(f"{path}: expected a state of this version and run, got {problem}")
    return FederatedState(**payload)


def _require_unpacked(path: Path) -> None:
    """Raise a ValueError for what PyTorch never writes: a small file that unpacks to gigabytes."""
    with zipfile.ZipFile(path) as file:
        if any(member.compress_type != zipfile.ZIP_STORED for member in file.infolist()):
            raise ValueError("a packed archive")


def _problem(payload: Any, round_: int, like: FederatedState | None) -> str | None:
    """Return why a payload is no state of this run; None if it is one."""
    if not isinstance(payload, dict) or set(payload) != set(_FIELDS):
        return f"the fields {sorted(map(str, payload))}" if isinstance(payload, dict) else "no dict"
    if type(payload["round"]) is not int or payload["round"] != round_:
        return f"round {payload['round']!r} in the file of round {round_}"
    for name in _FIELDS[1:]:
        values = payload[name]
        if not isinstance(values, dict) or not all(isinstance(v, Tensor) for v in values.values()):
            return f"no tensors by name in {name}"
        odd = (_oddity(value, name != "server") for value in values.values())
        for key, oddity in zip(values, odd, strict=True):
            if oddity:
                return f"{name} with {key!s:.60} as {oddity}"
    if like is None:
        return None
    scores_M3 = torch.empty(len(next(iter(like.uploads.values()))), 3, dtype=torch.float64)
    expected = {
        **dict.fromkeys(_BANKS, like.uploads),
        "server": like.server,
        "post_local": dict.fromkeys({"test", *payload["post_local"]}, scores_M3),
    }
    found = (difference(name, payload[name], bank) for name, bank in expected.items())
    return next(filter(None, found), None)


def _oddity(value: Tensor, bank: bool) -> str | None:
    """Return why a tensor is none of plain numbers in memory; None for what a run works with.

    Args:
        value: A tensor.
        bank: Whether its rows are the clients': they may be one row, repeated.
    """
    kinds = {
        f"a {type(value).__name__}": type(value) is not Tensor,
        "a nested tensor": value.is_nested,
        "a quantized tensor": value.is_quantized,
        f"a tensor of layout {value.layout}": value.layout != torch.strided,
        f"a tensor on the device {value.device}": value.device.type != "cpu",
        "a tensor that asks for a gradient": value.requires_grad,
        "a view that is conjugated or negated": value.is_conj() or value.is_neg(),
    }
    found = next((kind for kind, is_so in kinds.items() if is_so), None)
    if found is None and _overlaps(value[:1] if bank and value.dim() else value, not bank):
        return "a tensor whose numbers share their memory"
    return found


def _overlaps(value: Tensor, expanded: bool) -> bool:
    """Return whether two numbers lie at one place.

    Args:
        value: A tensor with strides.
        expanded: Whether dimensions that repeat one number do not count.
    """
    reach = 0
    strides = zip(value.stride(), value.shape, strict=True)
    for stride, size in sorted(pair for pair in strides if pair[1] > 1):
        if expanded and stride == 0:
            continue
        if stride <= reach:
            return True
        reach += stride * (size - 1)
    return False


def _by_round(folder: Path) -> dict[int, Path]:
    """Return the files of tensors by their round."""
    by_round = {round_of(path): path for path in folder.glob("*.pt")}
    return {round_: path for round_, path in by_round.items() if round_ is not None}


def _read_seal(path: Path) -> dict[str, Any]:
    try:
        seal = opened(require_mapping(load_json(read_text(path)), "it"))
        str(seal["sha256"])
    except (ValueError, KeyError, RecursionError):
        raise _Damaged("its seal cannot be read") from None
    return seal


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()

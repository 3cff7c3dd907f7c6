"""Damage as a recipe: what happens to which file of a run folder, whatever the run's numbers are.

A recipe is JSON: ``{"changes": [...], "own_sums": true}``. Its changes are applied one after the
other; one that fits nothing changes nothing. With ``own_sums`` checksums are made to fit again, as
somebody does who means it; a disk does not. A change names its ``file`` and what becomes of it:

- ``"gone"``, ``"empty"``, ``"cut": bytes``, ``"flip": [byte, bit]`` of the whole file;
- in a line of ``rounds.jsonl`` (``"line": 2``): ``"drop"``, ``"twice"``, ``"swap"`` with the next;
- at a place in JSON, YAML or CSV (``"at": ["received", "accuracy"]``): ``"set": value``,
  ``"remove"``, ``"again": value`` (the name a second time), ``"rename": name``;
- ``"file": "checkpoint", "tensor": [bank, number], "as": kind`` for a tensor of the newest;
- ``"during": true``: while the run goes on, and not before.
"""

import csv
import hashlib
import io
import json
import random
from pathlib import Path

import torch
import yaml

from cwfed.records.checksums import CHECKSUM, checksum, sealed

DOCUMENTS = ("rounds.jsonl", "result.json", "labels.json", "partition.json", "config.yaml")
FILES = (*DOCUMENTS, "clients.csv", "snapshots/round_000001.npz")
CHECKPOINT = "checkpoint"

ODD = (
    *(0, -1, 1.5, 4.71, 1e308, 10**18, float("nan"), float("inf"), -float("inf"), True, False),
    *(None, "", "x", "0.5", [], [1], [[]], {}, {"a": 1}, {"99": "dropout"}, "\x1b[2J", 10**400),
)
"""Values that take a sound one's place."""

TENSORS = {
    "sparse": lambda t: t.to_sparse(),
    "quantized": lambda t: torch.quantize_per_tensor(t.float(), 0.1, 0, torch.qint8),
    "meta": lambda t: t.to("meta"),
    "complex": lambda t: t.to(torch.complex64),
    "nested": lambda t: torch.nested.nested_tensor(list(t)),
    "requires_grad": lambda t: t.clone().requires_grad_(),
    "parameter": lambda t: torch.nn.Parameter(t.clone()),
    "overlapping": lambda t: t.flatten()[:1].clone().as_strided(t.shape, [0] * t.dim()),
    "reversed": lambda t: t.permute(*range(t.dim())[::-1]).contiguous().permute(
        *range(t.dim())[::-1]
    ),
    "integers": lambda t: t.to(torch.int64),
    "csr": lambda t: t.flatten(1).to_sparse_csr(),
}  # fmt: skip
"""What a tensor of a checkpoint may turn into."""


_FITS_NOTHING = (
    *(LookupError, TypeError, ValueError, OSError),
    *(AttributeError, RuntimeError, csv.Error),
)
"""What a change fails with where a file has no such place."""


class Pairs(list):
    """A JSON object as pairs, which may hold a name twice."""


def parsed(data: bytes) -> dict | None:
    """Return a recipe from its text; None for anything else."""
    try:
        recipe = json.loads(data)
        changes = recipe["changes"]
        good = isinstance(changes, list) and all(isinstance(c["file"], str) for c in changes)
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return recipe if good else None


def made_up(rng: random.Random, folder: Path, files: tuple[str, ...]) -> dict:
    """Return a recipe of one change, at times two, to some of a run's files."""
    count = rng.choice((1, 1, 1, 2))
    changes = [_change(rng, folder, rng.choice(files)) for _ in range(count)]
    return {"changes": changes, "own_sums": rng.random() < 0.5}


def _change(rng: random.Random, folder: Path, name: str) -> dict:
    if name == CHECKPOINT:
        bank = rng.choice(("uploads", "received", "personal", "post_local", "server"))
        kind = rng.choice(list(TENSORS))
        return {"file": name, "tensor": [bank, rng.randrange(9)], "as": kind}
    size = (folder / name).stat().st_size
    way = rng.random()
    if way < 0.25 or name.endswith("npz"):
        return {"file": name, "flip": [rng.randrange(size), rng.randrange(8)]}
    if way < 0.35:
        what = rng.choice(({"gone": True}, {"empty": True}, {"cut": rng.randrange(size)}))
        return {"file": name, **what, **({"during": True} if rng.random() < 0.5 else {})}
    number = rng.randrange((folder / name).read_bytes().count(b"\n"))
    line = {"line": number} if name.endswith("jsonl") else {}
    if line and way < 0.45:
        return {"file": name, **line, rng.choice(("drop", "twice", "swap")): True}
    document = _read(name, _part(name, (folder / name).read_text(), number))
    places = list(_places(document))
    at = rng.choice(places) if places else []
    value = _other(rng, _value_at(document, at))
    names = ("remove", True), ("again", value), ("rename", "x")
    key, what = rng.choice((*[("set", value)] * 5, *names))
    return {"file": name, **line, "at": at, key: what}


def _other(rng: random.Random, value: object) -> object:
    """Return another value, of the same kind or of any."""
    if isinstance(value, int | float) and rng.random() < 0.5:
        near = (value + 1, value * 2, -value, value / 2, value + 1e-9, float(value), int(value))
        return rng.choice(near)
    return rng.choice(ODD)


def apply(recipe: dict, folder: Path, *, during: bool = False) -> None:
    """Damage the files of a run folder as a recipe says."""
    for change in recipe["changes"]:
        if bool(change.get("during")) is during:
            try:
                _apply(change, folder, bool(recipe.get("own_sums")))
            except _FITS_NOTHING:
                continue


def _apply(change: dict, folder: Path, own_sums: bool) -> None:
    if change["file"] == CHECKPOINT:
        _change_tensor(change, folder)
        return
    if change["file"] not in FILES:
        return
    path = folder / change["file"]
    data = path.read_bytes()
    if "gone" in change:
        path.unlink()
    elif "empty" in change:
        path.write_bytes(b"")
    elif "cut" in change:
        path.write_bytes(data[: change["cut"]])
    elif "flip" in change:
        at, bit = change["flip"]
        at %= max(len(data), 1)
        path.write_bytes(data[:at] + bytes([data[at] ^ (1 << bit % 8)]) + data[at + 1 :])
    else:
        path.write_text(_changed_text(change, data.decode(), own_sums))


def _changed_text(change: dict, text: str, own_sums: bool) -> str:
    name = change["file"]
    if "line" not in change:
        return _changed_document(change, name, text, own_sums)
    lines = text.splitlines()
    at = change["line"] % len(lines)
    if "drop" in change:
        del lines[at]
    elif "twice" in change:
        lines.insert(at, lines[at])
    elif "swap" in change:
        lines[at - 1], lines[at] = lines[at], lines[at - 1]
    else:
        lines[at] = _changed_document(change, name, lines[at], own_sums)
    return "".join(f"{line}\n" for line in lines)


def _part(name: str, text: str, line: int) -> str:
    return text.splitlines()[line] if name.endswith("jsonl") else text


def _changed_document(change: dict, name: str, text: str, own_sums: bool) -> str:
    document = _read(name, text)
    *way, last = change["at"]
    parent = _value_at(document, way)
    if isinstance(parent, Pairs):
        _change_pairs(parent, last, change)
    elif "set" in change:
        parent[last] = change["set"]
    elif "again" in change:
        parent.insert(last, change["again"])
    elif "remove" in change:
        del parent[last]
    else:
        raise LookupError("a list has no names")
    return _written(name, document, own_sums)


def _change_pairs(pairs: Pairs, key: str, change: dict) -> None:
    index = [name for name, _ in pairs].index(key)
    if "set" in change:
        pairs[index] = (key, change["set"])
    elif "again" in change:
        pairs.insert(index, (key, change["again"]))
    elif "rename" in change:
        pairs[index] = (change["rename"], pairs[index][1])
    elif "remove" in change:
        del pairs[index]


def _read(name: str, text: str) -> object:
    if name.endswith("csv"):
        return list(csv.reader(io.StringIO(text)))
    if name.endswith("yaml"):
        return _as_pairs(yaml.safe_load(text))
    return json.loads(text, object_pairs_hook=Pairs)


def _written(name: str, document: object, own_sums: bool) -> str:
    if name.endswith("csv"):
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(document)
        return text.getvalue()
    if name.endswith("yaml"):
        return yaml.safe_dump(_plain(document), sort_keys=False)
    text = _dumped(document)
    return _with_own_sum(name, text) if own_sums else text


def _with_own_sum(name: str, text: str) -> str:
    """Make the checksum of a text fit what has become of it."""
    value = json.loads(text)
    content = {key: part for key, part in value.items() if key != CHECKSUM}
    if name == "partition.json":
        content.pop("clients", None)
    old = json.dumps(value.get(CHECKSUM))
    return text.replace(old, json.dumps(checksum(content))) if CHECKSUM in value else text


def _as_pairs(value: object) -> object:
    if isinstance(value, dict):
        return Pairs((key, _as_pairs(inner)) for key, inner in value.items())
    return [_as_pairs(inner) for inner in value] if isinstance(value, list) else value


def _plain(value: object) -> object:
    if isinstance(value, Pairs):
        return {key: _plain(inner) for key, inner in value}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value


def _dumped(value: object) -> str:
    if isinstance(value, Pairs):
        inside = ", ".join(f"{json.dumps(key)}: {_dumped(inner)}" for key, inner in value)
        return f"{{{inside}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_dumped, value))}]"
    return json.dumps(value)


def _places(value: object, way: tuple = ()) -> list[list]:
    """Return the places of all values below one."""
    items = value if isinstance(value, Pairs) else enumerate(value if _is_list(value) else ())
    found = []
    for key, inner in items:
        found.append([*way, key])
        found += _places(inner, (*way, key))
    return found


def _is_list(value: object) -> bool:
    return isinstance(value, list)


def _value_at(value: object, way: list) -> object:
    for key in way:
        value = dict(value)[key] if isinstance(value, Pairs) else value[key]
    return value


def _change_tensor(change: dict, folder: Path) -> None:
    """Turn a tensor of the newest checkpoint into another kind, under a right seal."""
    path = max((folder / "checkpoints").glob("*.pt"))
    payload = torch.load(path, weights_only=True)
    bank, number = change["tensor"]
    name = sorted(payload[bank])[number % len(payload[bank])]
    payload[bank][name] = TENSORS[change["as"]](payload[bank][name])
    torch.save(payload, path)
    seal = json.loads(path.with_suffix(".json").read_text())
    seal["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    path.with_suffix(".json").write_text(json.dumps(sealed(seal)))

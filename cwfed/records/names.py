"""Names of the files and folders of a run folder."""

import re
from pathlib import Path

CONFIG = "config.yaml"
PARTITION = "partition.json"
LABELS = "labels.json"
ROUNDS = "rounds.jsonl"
CLIENTS = "clients.csv"
RESULT = "result.json"
CHECKPOINTS = "checkpoints"
SNAPSHOTS = "snapshots"

_ROUND = re.compile("round_([0-9]{6,20})")


def round_stem(round_: int) -> str:
    """Return the name, less its ending, of a file of one round."""
    return f"round_{round_:06d}"


def round_of(path: Path) -> int | None:
    """Return the round in a name such as ``round_000002.npz``; None for any other name."""
    found = _ROUND.fullmatch(path.stem)
    return int(found[1]) if found and path.stem == round_stem(int(found[1])) else None


def snapshot_path(folder: Path, round_: int) -> Path:
    """Return where a run folder keeps the snapshot of a round."""
    return folder / SNAPSHOTS / f"{round_stem(round_)}.npz"

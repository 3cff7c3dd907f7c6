"""Names of the files and folders of a run folder."""

from pathlib import Path

CONFIG = "config.yaml"
PARTITION = "partition.json"
LABELS = "labels.json"
ROUNDS = "rounds.jsonl"
CLIENTS = "clients.csv"
RESULT = "result.json"
CHECKPOINTS = "checkpoints"
SNAPSHOTS = "snapshots"


def snapshot_path(folder: Path, round_: int) -> Path:
    """Return where a run folder keeps the snapshot of a round."""
    return folder / SNAPSHOTS / f"round_{round_:06d}.npz"

"""Images and their partition as PFLlib lays them out; see `cwfed.data.sources.pfllib`."""

import io
import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from cwfed.data.images import ImageData
from cwfed.data.manifest import label_counts
from cwfed.data.partitioners import Partitioner
from cwfed.data.sources.pfllib import CONFIG
from cwfed.records.atomic import make_folder, write_atomic
from cwfed.records.manifest import Manifest

_KINDS = {
    "Dirichlet": "dir",
    "ReleasedDirichlet": "dir",
    "Pathological": "pat",
    "ReleasedPathological": "pat",
}
_BATCH = 10
"""PFLlib's own batch size when it generates; it decides a client's fewest samples there."""


def require_new(folder: Path) -> None:
    """Raise ValueError unless the folder is new or empty, in a folder that exists."""
    if not folder.parent.is_dir():
        raise ValueError(f"expected an existing folder, got {folder.parent}")
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise ValueError(f"expected a new or empty folder, got {folder}, which holds something")


def save_pfllib(
    images: ImageData, manifest: Manifest, partitioner: Partitioner, folder: Path
) -> None:
    """Write ``train/N.npz`` and ``test/N.npz`` for every client, then ``config.json``.

    Images are float32 ``[n, C, H, W]``, pixels scaled to [0, 1], then ``(x - 0.5) / 0.5``; labels
    are int64. A validation part goes to the training part, which PFLlib does not divide.

    Args:
        images: The data set.
        manifest: Who holds what.
        partitioner: How that came about, for ``config.json``.
        folder: New or empty.

    Raises:
        ValueError: The folder holds something already.
        OSError: Something cannot be written.
    """
    require_new(folder)
    make_folder(folder)
    for part in ("train", "test"):
        make_folder(folder / part)
    for client, split in enumerate(manifest.clients):
        for part, indices in (("train", split.train_and_val), ("test", split.test)):
            chosen = torch.from_numpy(indices.copy())
            arrays = {
                "x": images.served(images.images_NCHW[chosen], torch.float32).numpy(),
                "y": images.labels_N[chosen].numpy(),
            }
            content = io.BytesIO()
            np.savez_compressed(content, data=cast(Any, arrays))
            write_atomic(folder / part / f"{client}.npz", content.getvalue())
    config = _config(images, manifest, partitioner)
    write_atomic(folder / CONFIG, json.dumps(config) + "\n")


def _config(images: ImageData, manifest: Manifest, partitioner: Partitioner) -> dict[str, Any]:
    counts_MK = label_counts(manifest, images.labels_N, ("train", "val", "test")).tolist()
    kind = _KINDS.get(type(partitioner).__name__)
    return {
        "num_clients": len(manifest.clients),
        "num_classes": manifest.num_classes,
        "non_iid": type(partitioner).__name__ != "IID",
        "balance": False,
        "partition": kind,
        "Size of samples for labels in clients": [
            [[label, count] for label, count in enumerate(counts_K) if count]
            for counts_K in counts_MK
        ],
        "alpha": getattr(partitioner, "alpha", None),
        "batch_size": _BATCH,
    }

"""Files of a run folder, written whole: JSON, arrays, the table of clients; and YAML read back."""

import csv
import io
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import yaml

from cwfed.records.atomic import make_folder, write_atomic
from cwfed.records.checksums import CHECKSUM, arrays_checksum, sealed
from cwfed.records.reading import MOST_CONFIG, load_yaml, read_text


def write_sealed(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON file with its checksum atomically."""
    write_json(path, sealed(value))


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON file atomically."""
    write_atomic(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write NumPy's ``npz`` with its checksum atomically; its folder is made if missing."""
    make_folder(path.parent)
    content = io.BytesIO()
    # First: where an archive loses members, it is the last.
    np.savez_compressed(content, **cast(Any, {CHECKSUM: arrays_checksum(arrays), **arrays}))
    write_atomic(path, content.getvalue())


def read_yaml(path: Path, expected: str = "a readable YAML file") -> Any:
    """Return the content of a YAML file, of plain values only.

    Raises:
        ValueError: It cannot be read or is no YAML; the message says what was expected.
    """
    try:
        return load_yaml(read_text(path, MOST_CONFIG))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{path}: expected {expected}: {reason}") from error


def write_clients(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write ``clients.csv``, a row a client, atomically."""
    table = list(rows)
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(table[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    write_atomic(path, text.getvalue())

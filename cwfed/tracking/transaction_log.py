"""Weights & Biases' own file of a run (``.wandb``), as far as it was written.

The file is a header of seven bytes and LevelDB's log format: blocks of 32 KiB that hold fragments,
each with a checksum, its length and whether more of the record follows
(https://github.com/google/leveldb/blob/main/doc/log_format.md).
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any

_HEADER, _BLOCK = 7, 32 * 1024
_FRAGMENT = struct.Struct("<IHB")
_FULL, _LAST = 1, 4
_WRITING = 10.0
"""Seconds to wait for a file's end."""


def logged_rounds(path: Path) -> set[int]:
    """Return the rounds that a file holds."""
    return {
        int(item.value_json)
        for record in records(path)
        for item in record.history.item
        if (item.key or "/".join(item.nested_key)) == "round"
    }


def wait_until_written(path: Path) -> None:
    """Wait until a run's end is in its file, which W&B writes after it says so."""
    deadline = monotonic() + _WRITING
    while not any(record.HasField("exit") for record in records(path)):
        if monotonic() > deadline:
            return
        sleep(0.05)


def records(path: Path) -> Iterator[Any]:
    """Yield the records of a file in order, as messages of the package ``wandb``.

    What a full disk left of a record ends the file, too.
    """
    from google.protobuf.message import DecodeError
    from wandb.proto import wandb_internal_pb2

    schema: Any = wandb_internal_pb2
    try:
        yield from map(schema.Record.FromString, read_records(path))
    except DecodeError:
        return


def read_records(path: Path) -> Iterator[bytes]:
    """Yield the serialised records of a file in order.

    What a kill left half written ends the file: nothing after it counts.

    Args:
        path: A ``.wandb`` file.
    """
    content = path.read_bytes()
    start, record = _HEADER, b""
    while True:
        left = _BLOCK - start % _BLOCK
        if left < _FRAGMENT.size:
            start += left
        if start + _FRAGMENT.size > len(content):
            return
        _, length, kind = _FRAGMENT.unpack_from(content, start)
        start += _FRAGMENT.size
        if not kind or start + length > len(content):
            return
        record += content[start : start + length]
        start += length
        if kind in (_FULL, _LAST):
            yield record
            record = b""

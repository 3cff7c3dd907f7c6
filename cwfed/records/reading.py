"""Files from elsewhere, read with care: of bounded size, of plain values, wrong in words.

What somebody else has written may be a device or a pipe, have gigabytes, unpack to more than
memory holds, nest without end, or be of any other kind than it should.
"""

import csv
import json
import os
import re
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import yaml

from cwfed.records.plain_yaml import PlainLoader

MOST_TEXT = 1 << 26
"""Bytes of a manifest (room for ten million samples), or of a list of names."""

MOST_CONFIG = 1 << 19
"""Bytes of a configuration; a large one has a fiftieth of them."""

MOST_LINES = 1 << 30
"""Bytes of the lines of all rounds; 500 clients over 10,000 rounds have a third of them."""

MOST_ARRAYS = 1 << 28
"""Bytes that the arrays of a snapshot may unpack to."""

MOST_VALUES = 20_000
"""Values of a configuration, each counted as often as it is repeated."""

_WANDB = "wandb"


def require_regular(path: Path, most: int | None = None) -> None:
    """Check a file before it is read.

    Args:
        path: The file.
        most: Bytes that it may have.

    Raises:
        ValueError: It is a device, a pipe or a folder, which could be read without end, or too
            large.
        OSError: It is not there.
    """
    size = path.stat().st_size
    if not path.is_file():
        raise ValueError(f"{path}: expected a regular file, got a device, a pipe or a folder")
    if most is not None and size > most:
        raise ValueError(f"{path}: expected at most {most:,} bytes, got {size:,}")


def require_no_links(folder: Path) -> None:
    """Check that a run folder holds no symbolic link, through which it would reach outside.

    The folder itself may be one. W&B makes some in its own folder, and follows none of them.

    Raises:
        ValueError: There is one; the message names it.
    """
    for parent, folders, files in os.walk(folder):
        inside = Path(parent).relative_to(folder).parts
        for name in (*folders, *files):
            if not _made_by_wandb(*inside, name):
                require_no_link(Path(parent, name), "a run folder holds none (it may be one)")
        if inside[:1] == (_WANDB,) and len(inside) > 1:
            folders.clear()  # nothing below is read or written by anybody but W&B


def require_no_link(path: Path, reason: str) -> None:
    """Check that a path is no symbolic link itself.

    Args:
        path: The path; may be missing.
        reason: Why, for the message.

    Raises:
        ValueError: It is one.
    """
    if path.is_symlink():
        target = os.readlink(path)
        raise ValueError(f"{path}: expected no link, got one to {target[:100]}: {reason}")


def _made_by_wandb(*parts: str) -> bool:
    in_its_folder = len(parts) == 2 and parts[0] == _WANDB
    # A process that is killed leaves its number behind the name.
    return in_its_folder and bool(re.fullmatch(r"(latest-run|debug[\w-]*\.log)(\.\d+)?", parts[1]))


def read_text(path: Path, most: int = MOST_TEXT, errors: str = "strict") -> str:
    """Return the text of a file in UTF-8.

    Args:
        path: The file.
        most: Bytes that it may have.
        errors: What to do with bytes that are no UTF-8, as for `open`.

    Raises:
        ValueError: It is no regular file, too large, or no text.
        OSError: It cannot be read.
    """
    require_regular(path, most)
    return path.read_text(encoding="utf-8", errors=errors)


def load_json(text: str) -> Any:
    """Return the value of a JSON text, each name once and each number finite.

    Readers would differ in which of two values of one name they take.

    Raises:
        ValueError: It is no such text; a `json.JSONDecodeError` where it is no JSON.
        RecursionError: It nests without end.
    """
    return json.loads(text, object_pairs_hook=_without_doubles, parse_constant=_refuse_constant)


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entry = dict(pairs)
    if len(entry) != len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"{twice[:60]}: expected once, got it twice")
    return entry


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"expected finite numbers, got {name}")


def load_yaml(text: str) -> Any:
    """Return the content of a YAML text, of plain values only; see `check_yaml` for errors."""
    check_yaml(text)
    return yaml.load(text, Loader=PlainLoader)  # noqa: S506 - it is a safe one


def check_yaml(text: str) -> None:
    """Check that a YAML text has no more values than a configuration does, and each name once.

    A few lines of references to references stand for more values than memory holds. Of a name
    that stands twice in a mapping, only the last would count.

    Raises:
        ValueError: It has more than `MOST_VALUES`, refers to itself, or has a name twice.
        RecursionError: It nests without end.
        yaml.YAMLError: It is no YAML.
    """
    sizes: dict[yaml.Node | None, int | None] = {}
    if _size(yaml.compose(text, Loader=PlainLoader), sizes) > MOST_VALUES:
        raise ValueError(f"expected at most {MOST_VALUES:,} values, got more")


def _size(node: yaml.Node | None, sizes: dict[yaml.Node | None, int | None]) -> int:
    """Return how many values a node stands for; nodes in the making are None in `sizes`."""
    if node not in sizes:
        sizes[node] = None
        children: list[yaml.Node] = []
        if isinstance(node, yaml.SequenceNode):
            children = node.value
        elif isinstance(node, yaml.MappingNode):
            children = [part for pair in node.value for part in pair]
            _check_names(node)
        sizes[node] = 1 + sum(_size(child, sizes) for child in children)
    size = sizes[node]
    if size is None:
        raise ValueError("expected values that end, got one that refers to itself")
    return size


def _check_names(node: yaml.MappingNode) -> None:
    seen: set[tuple[str, str]] = set()
    for key, _ in node.value:
        name = (key.tag, str(key.value))
        if name in seen:
            line = key.start_mark.line + 1
            raise ValueError(f"expected each name once, got {key.value} again in line {line}")
        if isinstance(key, yaml.ScalarNode):
            seen.add(name)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read the arrays of a snapshot, plain numbers in NumPy's ``npz``, without running any code.

    Raises:
        ValueError: It is damaged, or unpacks to more than `MOST_ARRAYS`.
    """
    try:
        require_regular(path, MOST_ARRAYS)
        with zipfile.ZipFile(path) as file:
            size = sum(member.file_size for member in file.infolist())
        if size > MOST_ARRAYS:
            raise ValueError(f"it unpacks to {size:,} bytes")
        with np.load(path, allow_pickle=False) as arrays:
            return {name: _numbers(arrays[name]) for name in arrays.files}
    except Exception as error:  # a damaged zip fails in many ways
        raise ValueError(f"{path}: expected a snapshot, got a damaged file: {error}") from error


def _numbers(values: Any) -> np.ndarray:
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "biuf":
        raise ValueError("expected arrays of numbers")
    return values


@contextmanager
def reading(path: Path, expected: str) -> Iterator[None]:
    """Turn what goes wrong while a file is made sense of into a ValueError that names it.

    Args:
        path: The file.
        expected: What it should hold, for the message.
    """
    try:
        yield
    except (
        *(OSError, ValueError, TypeError, LookupError, AttributeError),
        *(ArithmeticError, RecursionError, MemoryError, csv.Error),
    ) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"{path}: expected {expected}: {reason:.200}") from error

"""Finds out if a run has ended, and its result."""

from pathlib import Path
from typing import Any

from cwfed.records.names import CLIENTS, RESULT, ROUNDS
from cwfed.records.round_lines import read_rounds
from cwfed.records.run_files import load_clients, load_result


def find_result(path: Path) -> dict[str, Any] | None:
    """Return the result of a run; None where it has not ended.

    Raises:
        ValueError: There is one that is damaged; the message names the file.
    """
    if not all((path / name).is_file() for name in (ROUNDS, CLIENTS, RESULT)):
        return None
    return load_result(path / RESULT)


def read_result(path: Path) -> dict[str, Any] | None:
    """Return the result of a finished run; None if there is no whole one."""
    try:
        return find_result(path)
    except ValueError:
        return None


def is_finished(path: Path) -> bool:
    """Return whether a run has its result, the table of its clients and all its rounds, whole."""
    result = read_result(path)
    if result is None:
        return False
    try:
        found = read_rounds(path / ROUNDS)
        load_clients(path / CLIENTS, result["hashes"].get("clients"))
    except ValueError:
        return False
    return not found.rest and len(found.lines) == result["rounds"] + 1

"""``rounds.jsonl``: written a line a round, and read by this one reader.

A line has a checksum. Lines of earlier versions have none; the kinds, the ranges and the order of
their fields are checked instead, and whether their accuracies are those of their predictions.

Legend: M clients.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from cwfed.messages.checks import require_counts, require_known, require_mapping, require_number
from cwfed.records.atomic import append_atomic
from cwfed.records.checksums import CHECKSUM, opened, sealed
from cwfed.records.reading import MOST_LINES, load_json, read_text

METRICS = ("received", "post_local")

Reason = Literal["dropout", "straggler", "non-finite loss", "non-finite model"]
"""Why a participant was left out of a round."""

GREATEST_R = 2**0.5 + 1e-6
"""The greatest distance between two distributions, and room for rounding."""

_NEEDED = ("round", "participants", *METRICS, "mean_R", "bytes", "seconds")
_KNOWN = {*_NEEDED, "excluded", "train_loss", "method"}
_FAIRNESS = ("mean", "std", "worst10")
_SCORE = {"accuracy", "loss", "fairness", "correct"}
_ROUNDING = 1e-6
_LONGEST = 100


@dataclass(frozen=True)
class Recorded:
    """Content of a file of rounds.

    Attributes:
        lines: The rounds 0, 1, 2, ... up to the first line that is damaged, checksums aside.
        rest: The texts of all lines from the damaged one on.
        damage: What is wrong with it, in words that name the file; None if nothing is.
        cut: Whether it only is the last one without its end, as a kill leaves it.
    """

    lines: list[dict[str, Any]]
    rest: list[str]
    damage: str | None = None
    cut: bool = False


def line_text(line: Mapping[str, Any]) -> str:
    """Return a round's line as it is written: JSON with its checksum and the line's end."""
    return json.dumps(sealed(line), allow_nan=False) + "\n"


def append_line(path: Path, line: Mapping[str, Any], size: int | None = None) -> None:
    """Append a round's line, whole or not at all, and make sure that it is on the disk.

    Args:
        path: The file.
        line: The round's fields.
        size: Bytes that the file must have before; None: any.

    Raises:
        OSError: It cannot be written.
        ValueError: The file has another size; nothing was written.
    """
    append_atomic(path, line_text(line), size)


def read_lines(path: Path, count: int | None = None) -> list[dict[str, Any]]:
    """Return the rounds of a file; an unfinished last line, as a kill leaves it, is passed over.

    Args:
        path: The file; a missing one has no lines.
        count: Read no more than so many lines from the start.

    Raises:
        ValueError: Another line is damaged, or rounds are missing.
    """
    found = read_rounds(path, count)
    if found.damage and not found.cut:
        raise ValueError(found.damage)
    return found.lines


def read_rounds(path: Path, count: int | None = None) -> Recorded:
    """Return what a file of rounds holds, up to the first line that is damaged.

    Args:
        path: The file; a missing one has no lines.
        count: Read no more than so many lines from the start.

    Raises:
        ValueError: It is no regular file, or too large.
    """
    text = read_text(path, MOST_LINES, "replace") if path.exists() else ""
    texts = text.split("\n")
    unfinished = texts.pop()  # nothing, after the end of the last line
    texts += [unfinished] if unfinished else []
    reader = _Reader(f'"{CHECKSUM}"' in text)
    for number, line in enumerate(texts[:count]):
        try:
            reader.take(line.removesuffix("\r"))
        except (ValueError, RecursionError) as error:
            cut = bool(unfinished) and number == len(texts) - 1 and not _starts_whole(line)
            return Recorded(reader.lines, texts[number:count], f"{path}: {error}", cut)
    return Recorded(reader.lines, [])


def _starts_whole(text: str) -> bool:
    """Return whether a line has all of its JSON, and something else after it."""
    try:
        json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return False
    return True


class _Reader:
    """Takes line after line.

    Args:
        checksums: Whether every line must have one: a file has them in all lines or in none.
    """

    def __init__(self, checksums: bool) -> None:
        self.checksums = checksums
        self.lines: list[dict[str, Any]] = []
        self.clients: int | None = None
        self.samples: int | None = None

    def take(self, text: str) -> None:
        """Check a line and keep it.

        Raises:
            ValueError: It is not the next round's.
        """
        number = len(self.lines)
        line, error = _parsed(text)
        if line is None or type(line.get("round")) is not int or line["round"] != number:
            why = f" ({error})" if error else ""
            raise ValueError(f"expected round {number} in line {number + 1}, got {text!r:.80}{why}")
        try:
            if self.checksums and CHECKSUM not in line:
                raise ValueError(f"{CHECKSUM}: expected one, as in the other lines, got none")
            content = opened(line)
            check_line(content)
            self._check_clients(content)
            if CHECKSUM not in line:
                self._check_older(content)
        except ValueError as problem:
            raise ValueError(f"line {number + 1}, round {number}: {problem}") from problem
        self.lines.append(content)

    def _check_clients(self, line: Mapping[str, Any]) -> None:
        """Check that a line is about as many clients as those before."""
        counts = [len(line[metric]["correct"]) for metric in METRICS if line[metric]]
        for count in counts:
            if self.clients not in (None, count):
                raise ValueError(f"correct: expected {self.clients} clients, got {count}")
            self.clients = count
        beyond = [c for c in line["participants"] if self.clients is not None and c >= self.clients]
        if beyond:
            raise ValueError(
                f"participants: expected clients below {self.clients}, got {beyond[0]}"
            )

    def _check_older(self, line: Mapping[str, Any]) -> None:
        """Check what only a line without a checksum needs: names, reasons, accuracies."""
        require_known(line, _KNOWN, "")
        for reason in (line.get("excluded") or {}).values():
            if reason not in get_args(Reason):
                raise ValueError(f"excluded: expected one of {get_args(Reason)}, got {reason!r}")
        for metric in METRICS:
            if line[metric]:
                require_known(line[metric], {*_SCORE, "val_accuracy"}, f"{metric}.")
                self._check_samples(line[metric], metric)

    def _check_samples(self, score: Mapping[str, Any], metric: str) -> None:
        """Check that an accuracy is what the correct predictions make of one number of samples."""
        correct, accuracy = sum(score["correct"]), score["accuracy"] or 0.0
        if not correct and not accuracy:
            return
        samples = self.samples or (round(correct / accuracy) if accuracy else 0)
        if not samples or abs(accuracy - correct / samples) > _ROUNDING * accuracy:
            of = samples or "some"
            raise ValueError(
                f"{metric}.accuracy: expected {correct} correct of {of} samples, got {accuracy}"
            )
        self.samples = samples


def _parsed(text: str) -> tuple[dict[str, Any] | None, str]:
    """Return a line's object; None and, where it says more than the text, why not."""
    try:
        line = load_json(text)
    except json.JSONDecodeError:
        return None, ""
    except (ValueError, RecursionError) as error:
        return None, str(error)[:_LONGEST]
    return (line, "") if isinstance(line, dict) else (None, "")


def check_line(line: Mapping[str, Any]) -> None:
    """Check the fields of a round: kinds, ranges, and that they fit each other.

    Args:
        line: The fields, without a checksum; others than the known ones are let be.

    Raises:
        ValueError: The message names the field, what was expected and what came.
    """
    for name in _NEEDED:
        if name not in line:
            raise ValueError(f"{name}: expected it, got nothing")
    participants = line["participants"]
    require_counts(participants, "participants")
    if len(set(participants)) != len(participants):
        raise ValueError(f"participants: expected each once, got {participants!r:.60}")
    _check_excluded(line.get("excluded", {}), participants)
    for metric in METRICS:
        if line[metric] is not None:
            _check_score(line[metric], metric)
    require_number(line.get("train_loss"), "train_loss")
    require_number(line["mean_R"], "mean_R", 0, GREATEST_R)
    for name, value in require_mapping(line.get("method", {}), "method").items():
        if not isinstance(value, bool):
            require_number(value, f"method.{name}")
    for name, value in require_mapping(line["seconds"], "seconds").items():
        require_number(value, f"seconds.{name}", 0, optional=False)
    for way in ("up", "down"):
        sent = require_counts(require_mapping(line["bytes"], "bytes").get(way), f"bytes.{way}")
        if len(sent) != len(participants):
            raise ValueError(f"bytes.{way}: expected {len(participants)} numbers, got {len(sent)}")


def _check_excluded(excluded: Any, participants: Sequence[int]) -> None:
    known = set(map(str, participants))
    for client, reason in require_mapping(excluded, "excluded").items():
        if client not in known:
            raise ValueError(f"excluded: expected participants, got {client!r:.60}")
        if not isinstance(reason, str) or not 0 < len(reason) <= _LONGEST:
            raise ValueError(f"excluded.{client}: expected a reason, got {reason!r:.60}")


def _check_score(score: Any, where: str) -> None:
    for name in _SCORE:
        if name not in require_mapping(score, where):
            raise ValueError(f"{where}.{name}: expected it, got nothing")
    for name in ("accuracy", "val_accuracy"):
        require_number(score.get(name), f"{where}.{name}", 0, 1)
    require_number(score["loss"], f"{where}.loss", 0)
    require_counts(score["correct"], f"{where}.correct")
    check_fairness(score["fairness"], f"{where}.fairness")


def check_fairness(fairness: Any, where: str) -> None:
    """Check how accuracy is spread over the clients, as `cwfed.functional.fairness` returns it.

    Raises:
        ValueError: A name is not known, or a value no fraction.
    """
    require_known(require_mapping(fairness, where), _FAIRNESS, f"{where}.")
    for name in _FAIRNESS:
        # Rounding may leave a mean of ones just above 1.
        require_number(fairness.get(name), f"{where}.{name}", 0, 1 + _ROUNDING)

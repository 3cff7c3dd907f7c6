"""The inside of runs on a page: curves, partitions, norms and mixing by round.

Legend: T snapshots, M clients, K classes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cwfed.analysis.facts import Facts
from cwfed.records.round_lines import METRICS
from cwfed.records.run import Run
from cwfed.records.snapshot import Snapshot
from cwfed.report.page.arrays import quantise

MOST_POINTS = 250
"""Points of a curve; longer ones are thinned out."""

MOST_SPANS = 100
LEFT_OUT = 20_000
"""Spans of rounds, and numbers in all, of a map of who was left out."""

PARTITIONS = 800_000
BUDGET = 2_300_000
"""Bytes of all partitions, and of all that is drawn of the inside of runs, partitions among it,
before base64, which adds a third: a page stays below 5 MB."""


def curves(facts: Facts) -> dict[str, Any]:
    """Return a run's figures by round, 16 bits each.

    ``megabytes`` and ``seconds`` are sums over the rounds so far: megabytes of a client that took
    part in every round, up and down, and seconds of the whole federation.
    """
    lines = facts.run.lines
    kept = evenly(len(lines), MOST_POINTS)
    sent = np.cumsum([_megabytes_a_client(line) for line in lines])
    spent = np.cumsum([sum(line["seconds"].values()) if line["round"] else 0.0 for line in lines])
    columns: dict[str, Any] = {
        "train_loss": [line["train_loss"] for line in lines],
        "mean_R": [line["mean_R"] for line in lines],
        "left_out": [len(line.get("excluded") or ()) for line in lines],
        "megabytes": sent,
        "seconds": spent,
    }
    for metric in METRICS:
        for name in ("accuracy", "loss"):
            columns[f"{metric}_{name}"] = [(line[metric] or {}).get(name) for line in lines]
    packed = {
        name: quantise(np.asarray(values, dtype=np.float64)[kept], 16)
        for name, values in columns.items()
    }
    return {"rounds": [lines[index]["round"] for index in kept], **packed}


def _megabytes_a_client(line: Mapping[str, Any]) -> float:
    taking_part = max(len(line["participants"]), 1)
    return float(sum(line["bytes"]["up"]) + sum(line["bytes"]["down"])) / taking_part / 1e6


def left_out(facts: Facts, room: int = LEFT_OUT) -> dict[str, Any] | None:
    """Return how often each client was left out, None where nobody was.

    Args:
        facts: The run.
        room: Most numbers to return; rounds are put together to keep to it.

    Returns:
        ``lost``, participations that were left out, ``[M, B]``, NaN where a client was not asked;
        ``rounds``, the first and last round of each of B spans; ``reasons``, how many by reason.
    """
    lines = [line for line in facts.run.lines if line["round"]]
    if not facts.excluded:
        return None
    clients = 1 + max(int(client) for line in lines for client in line["participants"])
    clients = max(clients, facts.clients or 0)
    spans = np.array_split(np.arange(len(lines)), min(len(lines), MOST_SPANS, room // clients + 1))
    lost_MB = np.full((clients, len(spans)), np.nan)
    for column, span in enumerate(spans):
        for line in (lines[index] for index in span):
            asked, lost = list(line["participants"]), [int(c) for c in line.get("excluded") or {}]
            lost_MB[asked, column] = np.nan_to_num(lost_MB[asked, column])
            lost_MB[lost, column] = np.nan_to_num(lost_MB[lost, column]) + 1
    return {
        "lost": quantise(lost_MB),
        "rounds": [[lines[span[0]]["round"], lines[span[-1]]["round"]] for span in spans],
        "reasons": dict(sorted(facts.excluded.items())),
        "asked": facts.asked,
    }


def evenly(length: int, most: int) -> list[int]:
    """Return at most so many of the indices of a list, evenly, the first and last among them."""
    count = min(length, most)
    return sorted({int(index) for index in np.linspace(0, max(length - 1, 0), count).round()})


def partition(facts: Facts) -> tuple[dict[str, Any] | None, str]:
    """Return label counts and distributions, or None and a sentence that says why not."""
    run = facts.run
    try:
        classes = [str(name) for name in run.classes]
        counts = {part: run.label_counts(part).to_numpy() for part in ("train", "test")}
        p_MK = run.p_MK
        good = all(array.shape == p_MK.shape for array in counts.values()) and p_MK.ndim == 2
    except (ValueError, TypeError, KeyError) as error:
        return None, f"No class distribution: {error}."
    if not good or p_MK.shape[1] != len(classes):
        return None, f"No class distribution: {run.path / 'labels.json'} is damaged."
    packed = {part: quantise(array, 16) for part, array in counts.items()}
    return {"classes": classes, **packed, "p": quantise(p_MK, 16)}, ""


def partitions(every: Sequence[Facts]) -> tuple[dict[str, Any], dict[int, str], int]:
    """Return every partition once, within `PARTITIONS`.

    Returns:
        What `partition` returns by `Facts.partition_key`, sentences about what is missing by index
        of the run, and the bytes that all take.
    """
    held: dict[str, Any] = {}
    missing: dict[int, str] = {}
    taken = 0
    for index, facts in enumerate(every):
        key = facts.partition_key
        # Another run of the same partition may have the file that this one lacks.
        if held.get(key) is not None:
            continue
        held[key], missing[index] = partition(facts)
        size = 6 * len(facts.run.p_MK.ravel()) if held[key] else 0
        if taken + size > PARTITIONS:
            held[key], missing[index] = None, "Its partition is left out to keep the page small."
        else:
            taken += size
    return held, missing, taken


def snapshot_rounds(every: Sequence[Facts], taken: int = 0) -> tuple[dict[int, list[int]], str]:
    """Choose which snapshots of which runs a page holds, within `BUDGET`.

    Args:
        every: The runs.
        taken: Bytes of the budget that something else takes.

    Returns:
        Rounds by index of the run, and a sentence about what was left out, or nothing.
    """
    sizes = {index: size for index, facts in enumerate(every) if (size := _bytes(facts))}
    first: dict[tuple[str, str], int] = {}
    for index in sizes:
        first.setdefault((every[index].setting, every[index].variant), index)
    # The first seed of every method goes before other seeds of any.
    order = [*first.values(), *(index for index in sizes if index not in first.values())]
    room_for_all = BUDGET - taken - sum(_map_bytes(facts) for facts in every)
    kept, room = [], room_for_all
    for index in order:
        if sizes[index] <= room:
            kept.append(index)
            room -= sizes[index]
    each = room_for_all // max(sum(sizes[index] for index in kept), 1)
    rounds = {
        index: [every[index].run.snapshot_rounds[i] for i in _chosen(every[index], each)]
        for index in kept
    }
    dropped = len(sizes) - len(kept)
    note = (
        f"Norms and mixing of {dropped} of {len(sizes)} runs are left out to keep the page small; "
        f"a page of fewer runs shows them."
    )
    return rounds, note if dropped else ""


def _chosen(facts: Facts, most: int) -> list[int]:
    count = len(facts.run.snapshot_rounds)
    return evenly(count, most) if most > 1 else [count - 1]


def _map_bytes(facts: Facts) -> int:
    """Return the most bytes that the map of who was left out takes."""
    spans = min(facts.rounds, MOST_SPANS)
    return min(spans * (facts.clients or 1), LEFT_OUT) if facts.excluded else 0


def _bytes(facts: Facts) -> int:
    """Return the bytes of one of a run's snapshots, 0 where it has none that can be read."""
    try:
        last = facts.run.snapshot()
    except ValueError:
        return 0
    return 2 * last.norms_upload_MK.size + sum(matrix.size for matrix in last.mixing.values())


def snapshots(facts: Facts, rounds: Sequence[int]) -> tuple[dict[str, Any] | None, str]:
    """Return norms and mixing after some rounds, 8 bits each, or None and why not."""
    if not rounds:
        return None, _why_none(facts)
    read, damaged = _read(facts.run, rounds)
    shapes = {(one.norms_upload_MK.shape, one.norms_received_MK.shape) for one in read}
    if not read or len(shapes) != 1:
        return None, "No norms and no mixing: the snapshots are damaged."
    packed: dict[str, Any] = {
        "rounds": [one.round for one in read],
        "mean_R": [facts.run.lines[one.round]["mean_R"] for one in read],
        "upload": quantise(np.stack([one.norms_upload_MK for one in read])),
        "received": quantise(np.stack([one.norms_received_MK for one in read])),
    }
    for group in ("output", "base"):
        held = next((one.mixing[group] for one in read if group in one.mixing), None)
        if held is not None:
            # No matrix before the first aggregation: those rounds are empty.
            blank = np.full_like(held, np.nan)
            packed[group] = quantise(np.stack([one.mixing.get(group, blank) for one in read]))
    note = f"Damaged snapshots of rounds {', '.join(map(str, damaged))} are left out."
    return packed, note if damaged else ""


def _read(run: Run, rounds: Sequence[int]) -> tuple[list[Snapshot], list[int]]:
    """Return the snapshots that can be read, and the rounds of those that cannot."""
    read, damaged = [], []
    for round_ in rounds:
        try:
            read.append(run.snapshot(round_))
        except ValueError:
            damaged.append(round_)
    return read, damaged


def _why_none(facts: Facts) -> str:
    try:
        facts.run.snapshot()
    except ValueError as error:
        return f"No norms and no mixing: {error}."
    return "Norms and mixing are left out to keep the page small."

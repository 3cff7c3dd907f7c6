"""The content of ``result.json``: which rounds a run quotes, and its totals.

Legend: M clients. Accuracies are fractions between 0 and 1.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from cwfed.records.round_lines import METRICS

SCHEMA_VERSION = 1


def finite(value: float | None) -> float | None:
    """Return the value, or None where it is missing, infinite or not a number."""
    return value if value is not None and isfinite(value) else None


def select(lines: Sequence[Mapping[str, Any]], metric: str) -> dict[str, Any]:
    """Choose the rounds that a result quotes for one metric.

    Rounds without an evaluation do not count. The initialisation is no round: it counts only where
    nothing else is there. ``best`` is the
    first maximum over rounds of the test accuracy, as published figures are;
    ``val_selected`` is the test accuracy of the round with the first maximum of the validation
    accuracy, None without a validation part.

    Args:
        lines: Lines of ``rounds.jsonl``.
        metric: ``received`` or ``post_local``.
    """
    scored = [line for line in lines if line[metric] and line[metric]["accuracy"] is not None]
    if not scored:
        return {"best": None, "last": None, "val_selected": None, "fairness": None}
    scored = [line for line in scored if line["round"]] or scored
    validated = [line for line in scored if line[metric].get("val_accuracy") is not None]

    def quote(line: Mapping[str, Any]) -> dict[str, Any]:
        return {"accuracy": line[metric]["accuracy"], "round": line["round"]}

    best = max(scored, key=lambda line: line[metric]["accuracy"])
    chosen = max(validated, key=lambda line: line[metric]["val_accuracy"], default=None)
    return {
        "best": quote(best),
        "last": quote(scored[-1]),
        "val_selected": quote(chosen) if chosen else None,
        "fairness": scored[-1][metric]["fairness"],
    }


def make_result(lines: Sequence[Mapping[str, Any]], about: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of ``result.json``.

    Where clients were left out, ``excluded`` counts them by reason over all rounds.

    Args:
        lines: All lines of ``rounds.jsonl``.
        about: What identifies the run: names, seed, versions, hashes.
    """
    seconds: dict[str, float] = {}
    sent = {way: [sum(line["bytes"][way]) for line in lines] for way in ("up", "down")}
    uploads = sum(len(line["participants"]) for line in lines)
    excluded = Counter(reason for line in lines for reason in line.get("excluded", {}).values())
    for line in lines:
        for phase, value in line["seconds"].items():
            seconds[phase] = seconds.get(phase, 0.0) + value
    return {
        "schema_version": SCHEMA_VERSION,
        **about,
        "rounds": lines[-1]["round"],
        **{metric: select(lines, metric) for metric in METRICS},
        "mean_R": lines[-1]["mean_R"],
        **({"excluded": dict(sorted(excluded.items()))} if excluded else {}),
        "bytes": {
            way: {"total": sum(sent[way]), "per_client_and_round": sum(sent[way]) / max(uploads, 1)}
            for way in sent
        },
        "seconds": {phase: round(value, 3) for phase, value in seconds.items()},
    }

"""Figures of single clients and of whole runs, as dashboards show them.

Legend: M clients.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from cwfed.federated.loop import FederatedLoop
from cwfed.federated.record import RoundRecord
from cwfed.federated.state import FederatedState
from cwfed.records.result import make_result
from cwfed.records.round_lines import METRICS

_BINS = 20
_WIDEST_R = 2**0.5
"""The greatest distance between two distributions."""

Column = list[int] | list[float | None]


def client_histograms(
    record: RoundRecord, state: FederatedState, loop: FederatedLoop
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return a histogram over the clients of each of their figures: counts and edges.

    The edges are the same in every round and run: 0 to 1 for accuracies, 0 to √2 for R.
    """
    columns = {"R": (loop.distances_M(state), _WIDEST_R)}
    for metric in METRICS:
        score = getattr(record, metric)
        if score:
            columns[f"{metric}_accuracy"] = (accuracies(score["test"]), 1.0)
    histograms = {}
    for name, (values_M, top) in columns.items():
        known = values_M[values_M.isfinite()].cpu().numpy()
        histograms[name] = np.histogram(known, bins=_BINS, range=(0.0, top))
    return histograms


def client_table(
    record: RoundRecord, state: FederatedState, loop: FederatedLoop
) -> dict[str, Column]:
    """Return what is known of every client after an evaluated round, M values a column."""
    received, server = record.received, loop.server
    assert received is not None
    post_local = record.post_local or received
    return {
        "client": list(range(server.num_clients)),
        "train": server.num_samples_M.tolist(),
        "test": received["test"][:, 1].long().tolist(),
        "classes": (server.label_counts_MK > 0).sum(1).tolist(),
        "accuracy_received": _cells(accuracies(received["test"])),
        "accuracy_post_local": _cells(accuracies(post_local["test"])),
        "R": _cells(loop.distances_M(state)),
    }


def summarise_run(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what runs are sorted by: accuracies, mean R, bytes, seconds, rounds, clients left out.

    Args:
        lines: Lines of ``rounds.jsonl``.
    """
    result = make_result(lines, {})
    summary: dict[str, Any] = {"rounds": result["rounds"], "mean_R": result["mean_R"]}
    for metric in METRICS:
        for choice in ("best", "last"):
            quoted = result[metric][choice]
            if quoted:
                summary[f"{metric}/{choice}_accuracy"] = quoted["accuracy"]
                summary[f"{metric}/{choice}_round"] = quoted["round"]
    totals = {way: result["bytes"][way]["total"] for way in ("up", "down")}
    summary |= {f"bytes/total_{way}": total for way, total in totals.items()}
    summary["bytes/total"] = sum(totals.values())
    summary["seconds/total"] = sum(result["seconds"].values())
    summary["excluded/total"] = sum(result.get("excluded", {}).values())
    return summary


def accuracies(score_M3: Tensor) -> Tensor:
    """Return every client's accuracy, float64 ``[M]``; NaN for a client without samples.

    Args:
        score_M3: Correct predictions, samples and summed loss, ``[M, 3]``.
    """
    return score_M3[:, 0] / score_M3[:, 1]


def _cells(values_M: Tensor) -> list[float | None]:
    known = values_M.isfinite().tolist()
    return [
        value if is_known else None
        for value, is_known in zip(values_M.tolist(), known, strict=True)
    ]

"""Accuracy over clients: the pooled figure of the tables, and how it is spread."""

from collections.abc import Sequence

import torch


def pooled_accuracy(correct: Sequence[int], total: Sequence[int]) -> float | None:
    """Return ``sum_i correct_i / sum_i total_i``, the metric of the paper's tables.

    Returns:
        A fraction between 0 and 1, or None where there is nothing to score.

    Example:
        >>> pooled_accuracy([9, 1], [10, 40])
        0.2
    """
    samples = sum(total)
    return sum(correct) / samples if samples else None


def fairness(correct: Sequence[int], total: Sequence[int]) -> dict[str, float | None]:
    """Return how accuracy is spread over the clients that have test samples.

    Returns:
        ``mean`` and ``std`` (ddof 0) over clients and ``worst10``, the mean of the lowest
        ceil(M / 10); fractions between 0 and 1, None where no client has a test sample.

    Example:
        >>> fairness([1, 2, 4], [4, 4, 4])["worst10"]
        0.25
    """
    accuracies = [c / t for c, t in zip(correct, total, strict=True) if t]
    if not accuracies:
        return {"mean": None, "std": None, "worst10": None}
    values = torch.tensor(sorted(accuracies), dtype=torch.float64)
    return {
        "mean": values.mean().item(),
        "std": values.std(correction=0).item(),
        "worst10": values[: -(-len(values) // 10)].mean().item(),
    }

"""Measures of how unlike the clients of a partition are, on label counts.

Legend: M clients, K classes.
"""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Skew:
    """Measured heterogeneity of a partition.

    Attributes:
        mean_classes: Mean over clients of the number of classes with at least one sample.
        mean_tv: Mean over clients of the total-variation distance between the client's class
            distribution and the pooled one, in [0, 1): 0 where all are alike.
        size_cv: Coefficient of variation of the client sizes: standard deviation (ddof 0) / mean.
        min_size: Samples of the smallest client.
        max_size: Samples of the largest client.
    """

    mean_classes: float
    mean_tv: float
    size_cv: float
    min_size: int
    max_size: int

    def __str__(self) -> str:
        """Return the measures as one line."""
        return (
            f"{self.mean_classes:.1f} classes a client, TV distance {self.mean_tv:.3f}, "
            f"sizes {self.min_size}–{self.max_size} (CV {self.size_cv:.2f})"
        )


def measure_skew(counts_MK: Tensor) -> Skew:
    """Measure a partition's heterogeneity.

    ``TV_i = ½ Σ_j |n_ij / n_i - n_j / n|``; a client without samples counts as the pooled
    distribution (distance 0).

    Args:
        counts_MK: Samples of each class on each client, integers, not all zero.

    Returns:
        The measures.

    Raises:
        ValueError: If there are no samples at all.

    Example:
        >>> import torch
        >>> skew = measure_skew(torch.tensor([[10, 0], [0, 10]]))
        >>> skew.mean_classes, skew.mean_tv, skew.size_cv
        (1.0, 0.5, 0.0)
    """
    sizes_M = counts_MK.sum(dim=1)
    total = int(sizes_M.sum())
    if total == 0:
        raise ValueError("counts_MK: expected at least one sample, got none")
    pooled_K = counts_MK.sum(dim=0).double() / total
    own_MK = counts_MK.double() / sizes_M.clamp(min=1).unsqueeze(1)
    tv_M = (own_MK - pooled_K).abs().sum(dim=1) / 2 * (sizes_M > 0)
    sizes = sizes_M.double()
    return Skew(
        mean_classes=float((counts_MK > 0).sum(dim=1).double().mean()),
        mean_tv=float(tv_M.mean()),
        size_cv=float(sizes.std(correction=0) / sizes.mean()),
        min_size=int(sizes_M.min()),
        max_size=int(sizes_M.max()),
    )

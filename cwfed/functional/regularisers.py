"""Regularisers of local training, as functions of tensors.

Legend: K classes, F features; a leading ``...`` stands for any batch dimensions.
"""

from torch import Tensor

from cwfed.functional.distribution import norm_distribution, safe_norm


def weight_distribution_distance(p_K: Tensor, weight_KF: Tensor) -> Tensor:
    """Return ``R_i = ||p_i - p~_i||_2`` of the weight distribution regulariser (WDR).

    Not squared (cwFedAvg, arXiv 2406.07800). The gradient is 0, not NaN, at an exact match and
    with respect to a zero row.

    Args:
        p_K: Class distribution of the client's labels, ``[..., K]``.
        weight_KF: Weight of the output layer, ``[..., K, F]``.

    Returns:
        ``[...]``, between 0 and sqrt(2).

    Example:
        >>> import torch
        >>> weight = torch.tensor([[3.0, 0.0], [0.0, 1.0]])
        >>> weight_distribution_distance(torch.tensor([0.75, 0.25]), weight)
        tensor(0.)
    """
    return safe_norm(p_K.to(weight_KF.dtype) - norm_distribution(weight_KF))

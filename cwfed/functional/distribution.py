"""Class distributions: from labels, and estimated from the norms of an output layer's rows.

Legend: M clients, K classes, F features; a leading ``...`` stands for any batch dimensions.
"""

import torch
from torch import Tensor


def label_distribution(label_counts_MK: Tensor) -> Tensor:
    """Return each client's class distribution ``p_ij = n_ij / n_i``.

    Args:
        label_counts_MK: Samples of class j on client i, ``[..., K]``, counts >= 0.

    Returns:
        float64 ``[..., K]``; rows sum to 1. A client without samples gets zeros, not NaN.

    Example:
        >>> label_distribution(torch.tensor([[3, 1], [0, 0]]))
        tensor([[0.7500, 0.2500],
                [0.0000, 0.0000]], dtype=torch.float64)
    """
    counts = label_counts_MK.to(torch.float64)
    return counts / counts.sum(-1, keepdim=True).clamp_min(1.0)


def safe_norm(x: Tensor) -> Tensor:
    """Return the Euclidean norm over the last dimension, with gradient 0 (not NaN) at 0.

    Args:
        x: ``[..., F]``.

    Returns:
        ``[...]``, same dtype.

    Example:
        >>> safe_norm(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
        tensor([5., 0.])
    """
    square = (x * x).sum(-1)
    zero = square == 0
    # The inner `where` keeps sqrt away from 0, whose infinite slope would turn 0 into NaN.
    root = torch.where(zero, torch.ones_like(square), square).sqrt()
    return torch.where(zero, torch.zeros_like(root), root)


def norm_distribution(weight_KF: Tensor) -> Tensor:
    """Estimate a class distribution from the norms of an output layer's rows.

    ``p~_ij = ||w_ij||_2 / sum_k ||w_ik||_2`` (cwFedAvg, arXiv 2406.07800), bias excluded.

    Args:
        weight_KF: Weight of the output layer, ``[..., K, F]``.

    Returns:
        ``[..., K]``, same dtype; rows sum to 1. An all-zero weight gives the uniform
        distribution, a zero row gives 0; gradients are finite there, and elsewhere unless the
        whole weight is so small that its squares vanish in its dtype. NaN stays NaN.

    Example:
        >>> norm_distribution(torch.tensor([[3.0, 0.0], [0.0, 1.0]]))
        tensor([0.7500, 0.2500])
        >>> norm_distribution(torch.zeros(4, 2))
        tensor([0.2500, 0.2500, 0.2500, 0.2500])
    """
    norms = safe_norm(weight_KF)
    total = norms.sum(-1, keepdim=True)
    zero = total == 0
    share = norms / torch.where(zero, torch.ones_like(total), total)
    return torch.where(zero, torch.full_like(share, 1.0 / weight_KF.shape[-2]), share)

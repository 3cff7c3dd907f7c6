"""FedUV's two regularisers, as functions of tensors.

Legend: B samples of a batch, K classes, F features, P = B (B - 1) / 2 pairs of samples.
"""

import torch
from torch import Tensor

from cwfed.functional.distribution import safe_norm

_FAR = 1000.0  # in units of sigma: exp(-1000) is 0 in every precision


def variance_shortfall(logits_BK: Tensor) -> Tensor:
    """Return ``mean_c ReLU(1 / sqrt(K) - std_batch(softmax_c))`` (FedUV, arXiv 2402.18372).

    ``1 / sqrt(K)`` is the unbiased standard deviation of each column of the identity, that is of
    confident predictions with every class once. The gradient is 0, not infinite, where a class
    has the same probability in the whole batch.

    Args:
        logits_BK: ``[B, K]``.

    Returns:
        A scalar in ``[0, 1 / sqrt(K)]``, at least float32; 0 with gradient 0 for B < 2, of which
        there is no unbiased standard deviation.

    Example:
        >>> confident = 100 * torch.eye(4)
        >>> variance_shortfall(confident)
        tensor(0.)
        >>> variance_shortfall(torch.zeros(8, 4))
        tensor(0.5000)
    """
    size, classes = logits_BK.shape
    if size < 2:
        return logits_BK[:0].sum()
    probability_BK = torch.softmax(_full_precision(logits_BK), 1)
    # Measured from the first sample, equal probabilities have a deviation of 0 to the bit.
    shifted_BK = probability_BK - probability_BK[:1].detach()
    centred_BK = shifted_BK - shifted_BK.mean(0)
    std_K = safe_norm(centred_BK.T) / (size - 1) ** 0.5
    return torch.relu(classes**-0.5 - std_K).mean()


def pair_potential(features_BF: Tensor, detach_sigma: bool = False) -> Tensor:
    """Return ``mean_{a<b} exp(-||z_a - z_b||² / sigma)`` (FedUV, arXiv 2402.18372).

    ``sigma`` is the median of the non-zero squared distances; of an even number, the lower of the
    two in the middle, and among equal ones its gradient is shared: both as `torch.median`, hence
    as the released code. The value does not change when all features are scaled.

    Args:
        features_BF: Inputs of the output layer, ``[B, F]``.
        detach_sigma: Take sigma for a constant. By default the gradient runs through it.

    Returns:
        A scalar in ``[0, 1]``, at least float32; 0 with gradient 0 where all features are equal
        or B < 2.

    Example:
        >>> pair_potential(torch.tensor([[0.0], [3.0]]))
        tensor(0.3679)
        >>> pair_potential(torch.ones(3, 2))
        tensor(0.)
    """
    size = len(features_BF)
    if size < 2:
        return features_BF[:0].sum()
    features_BF = _full_precision(features_BF)
    first_P, second_P = torch.triu_indices(size, size, 1, device=features_BF.device)
    # From differences: a Gram matrix loses the digits of near-equal features.
    distance_P = (features_BF[first_P] - features_BF[second_P]).square().sum(1)
    apart_P = distance_P > torch.finfo(distance_P.dtype).tiny
    sigma = _lower_median(distance_P, apart_P)
    if detach_sigma:
        sigma = sigma.detach()
    # Scaled by constants first, so that neither a tiny sigma nor a far pair makes 0 * infinity.
    unit = sigma.detach()
    scaled_P = (distance_P / unit).clamp_max(_FAR)
    mean = torch.exp(-scaled_P / (sigma / unit)).mean()
    return torch.where(apart_P.any(), mean, torch.zeros_like(mean))


def _lower_median(values_P: Tensor, counted_P: Tensor) -> Tensor:
    """Return the lower median of the counted values, 1 if there is none."""
    # Without a selection of unknown size, so that it can be mapped over stacked clients.
    ordered_P = torch.where(counted_P, values_P, torch.inf).detach().sort().values
    middle = (counted_P.sum() - 1).clamp_min(0) // 2
    found_P = counted_P & (values_P == ordered_P.gather(0, middle[None]))
    total = torch.where(found_P, values_P, torch.zeros_like(values_P)).sum()
    return torch.where(counted_P.any(), total / found_P.sum().clamp_min(1), torch.ones_like(total))


def _full_precision(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))

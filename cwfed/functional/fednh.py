"""FedNH's prototypes: unit rows of the output layer that the server moves.

Legend: m clients that send, K classes, F features.
"""

import torch
from torch import Tensor
from torch.nn import functional as F


def moved_prototypes(
    prototypes_KF: Tensor, means_mKF: Tensor, counts_mK: Tensor, rho: float
) -> Tensor:
    """Return the prototypes after a round (FedNH, Dai et al. 2023, arXiv 2212.02758).

    ``W_c <- normalise(ρ W_c + (1 - ρ) normalise(sum_i n_ic μ_ic / sum_i n_ic))`` with ``μ_ic``
    scaled to unit length. The inner normalisation makes the division by ``sum_i n_ic`` needless.

    Args:
        prototypes_KF: W, unit rows, ``[K, F]``.
        means_mKF: Mean feature of each client and class, of any length, ``[m, K, F]``.
        counts_mK: Samples n_ic that the means are of, ``[m, K]``.
        rho: ρ in [0, 1].

    Returns:
        ``[K, F]``, unit rows, dtype of `prototypes_KF`; computed in float64. A class without
        samples, or whose means cancel, keeps its row to the bit.

    Example:
        >>> prototypes = torch.eye(2)
        >>> means = torch.tensor([[[0.0, 0.5], [0.0, 0.0]]])
        >>> moved_prototypes(prototypes, means, torch.tensor([[3, 0]]), rho=0.5)
        tensor([[0.7071, 0.7071],
                [0.0000, 1.0000]])
    """
    old_KF, means_mKF = prototypes_KF.to(torch.float64), means_mKF.to(torch.float64)
    direction_KF = _unit((counts_mK[..., None] * _unit(means_mKF)).sum(0))
    blend_KF = rho * old_KF + (1 - rho) * direction_KF
    moves_K = (direction_KF != 0).any(1) & (blend_KF != 0).any(1)
    return torch.where(moves_K[:, None], _unit(blend_KF).to(prototypes_KF.dtype), prototypes_KF)


def _unit(x: Tensor) -> Tensor:
    """Scale the last dimension to unit length; zeros stay zeros."""
    return F.normalize(x, dim=-1, eps=torch.finfo(x.dtype).tiny)

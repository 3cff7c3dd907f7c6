"""Aggregation as mixing matrices over the stacked uploads.

Both steps of class-wise averaging are linear in the uploads, so the personal models are
``(P Qᵀ) W``: one M x M matrix. FedAvg is the special case in which all rows are equal.

Legend: M clients, R rows of models to make, K classes; ``theta_M`` is one parameter of all
clients, ``[M, ...]``.
"""

import torch
from torch import Tensor

_BLOCK_ELEMENTS = 1 << 22  # of one block of the stacked uploads: 16 MiB in float32


def sample_weights(num_samples_M: Tensor, participants: Tensor) -> Tensor:
    """Return FedAvg's weights ``n_i / sum_i n_i`` over the participants (McMahan et al. 2017).

    Args:
        num_samples_M: Training samples of every client, ``[M]``.
        participants: Ids of the clients that count, int64, at least one.

    Returns:
        float64 ``[M]``; 0 for the others; sums to 1. Participants without any sample among them
        count equally.

    Example:
        >>> sample_weights(torch.tensor([10, 30, 60]), torch.tensor([0, 1]))
        tensor([0.2500, 0.7500, 0.0000], dtype=torch.float64)
    """
    weights = torch.zeros(len(num_samples_M), dtype=torch.float64)
    weights[participants] = num_samples_M[participants].to(torch.float64)
    if weights.sum() == 0:
        weights[participants] = 1.0
    return weights / weights.sum()


def classwise_weights(
    p_MK: Tensor, num_samples_M: Tensor, participants: Tensor, previous_MK: Tensor
) -> Tensor:
    """Return Q: how much client i contributes to the model of class j (cwFedAvg).

    ``q_ij = p_i p_ij / sum_i p_i p_ij`` over the participants, with ``p_i`` proportional to
    ``n_i``. A class that no participant holds keeps its column: with label counts no holder of
    it has uploaded since, so the column still refers to the uploads it was made from, and no
    class model need be stored. With distributions estimated from norms that holds unless a
    participant uploads a row of exact zeros, which training does not produce.

    Args:
        p_MK: Class distribution of every client, rows of the participants are read, ``[M, K]``.
        num_samples_M: Training samples of every client, ``[M]``.
        participants: Ids of the clients that uploaded this round, int64.
        previous_MK: Q of the round before, ``[M, K]``, columns sum to 1.

    Returns:
        float64 ``[M, K]``, columns sum to 1.

    Example:
        >>> p = torch.tensor([[1.0, 0.0], [0.5, 0.5]])
        >>> start = torch.full((2, 2), 0.5)
        >>> classwise_weights(p, torch.tensor([10, 20]), torch.tensor([0, 1]), start)
        tensor([[0.5000, 0.0000],
                [0.5000, 1.0000]], dtype=torch.float64)
    """
    mass = torch.zeros(p_MK.shape, dtype=torch.float64)
    mass[participants] = p_MK[participants].to(torch.float64) * num_samples_M[
        participants, None
    ].to(torch.float64)
    total = mass.sum(0)
    held = total > 0
    fresh = mass / torch.where(held, total, torch.ones_like(total))
    return torch.where(held, fresh, previous_MK.to(torch.float64))


def mixing_matrix(p_MK: Tensor, q_MK: Tensor) -> Tensor:
    """Return ``P Qᵀ``: row i mixes all uploads into client i's personal model (cwFedAvg).

    Args:
        p_MK: Class distribution of every client, ``[M, K]``, rows sum to 1.
        q_MK: `classwise_weights`, ``[M, K]``, columns sum to 1.

    Returns:
        float64 ``[M, M]``, rows sum to 1.

    Example:
        >>> one_class_each = torch.eye(2)
        >>> mixing_matrix(one_class_each, one_class_each)
        tensor([[1., 0.],
                [0., 1.]], dtype=torch.float64)
    """
    return p_MK.to(torch.float64) @ q_MK.to(torch.float64).T


def class_models(q_MK: Tensor, theta_M: Tensor) -> Tensor:
    """Return the class models ``w_j^G = sum_i q_ij w_i`` of one parameter, for inspection.

    Args:
        q_MK: `classwise_weights`, ``[M, K]``.
        theta_M: The parameter on every client, ``[M, ...]``.

    Returns:
        ``[K, ...]``, dtype of `theta_M`.
    """
    return mix(q_MK.T, theta_M)


def mix(weights_RM: Tensor, theta_M: Tensor) -> Tensor:
    """Return ``sum_m weights_rm theta_m`` for every row r, in the dtype of `theta_M`.

    Equal rows are computed once (FedAvg costs one row), the identity costs nothing, and the
    product runs over blocks of columns so that temporaries stay small.

    Args:
        weights_RM: ``[R, M]``.
        theta_M: One parameter on every client, ``[M, ...]``, floating point.

    Returns:
        ``[R, ...]``. May share memory with `theta_M` or among its rows: do not write into it.

    Example:
        >>> mix(torch.tensor([[0.5, 0.5]]), torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
        tensor([[2., 3.]])
    """
    size = theta_M.shape[0]
    if weights_RM.shape[0] == size and torch.equal(
        weights_RM, torch.eye(size, dtype=weights_RM.dtype, device=weights_RM.device)
    ):
        return theta_M
    unique_UM, row_of = torch.unique(weights_RM, dim=0, return_inverse=True)
    if len(unique_UM) == len(weights_RM):
        unique_UM, row_of = weights_RM, None
    flat = theta_M.reshape(size, -1)
    mixed = torch.empty((len(unique_UM), flat.shape[1]), dtype=theta_M.dtype, device=theta_M.device)
    factors = unique_UM.to(theta_M)
    width = max(1, _BLOCK_ELEMENTS // size)
    for first in range(0, flat.shape[1], width):
        block = slice(first, first + width)
        torch.matmul(factors, flat[:, block], out=mixed[:, block])
    mixed = mixed.reshape(-1, *theta_M.shape[1:])
    if len(unique_UM) == 1:
        return mixed.expand(len(weights_RM), *theta_M.shape[1:])
    return mixed if row_of is None else mixed[row_of]

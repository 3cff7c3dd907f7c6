"""Aggregation as mixing matrices over the stacked uploads.

Both steps of class-wise averaging are linear in the uploads, so the personal models are
``(P Qᵀ) W``: one M x M matrix. FedAvg is the special case in which all rows are equal.

Legend: M clients, R rows of models to make, K classes; ``theta_M`` is one parameter of all
clients, ``[M, ...]``.
"""

from math import prod

import torch
from torch import Tensor

from cwfed.functional.stacking import NewRows, column_blocks, empty_rows

_BLOCK_ELEMENTS = 1 << 20  # of one block of the stacked uploads: 4 MiB in float32


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


def mix(
    weights_RM: Tensor,
    theta_M: Tensor,
    rows: Tensor | None = None,
    new_rows: NewRows = empty_rows,
) -> Tensor:
    """Return ``sum_m weights_rm theta_m`` for every row r, in the dtype of `theta_M`.

    One product of matrices, in float32 or better. Equal rows are computed once, and so to the same
    bits (FedAvg costs one row); the identity costs nothing. Nothing as large as `theta_M` exists
    beside the result.

    Args:
        weights_RM: ``[R, M]``.
        theta_M: One parameter on every client, ``[M, ...]``, floating point.
        rows: Rows of `theta_M` that the weights are for, int64 ``[M]``, where it has others too:
            0 times a model that is not finite would not be 0. None: all, in order.
        new_rows: Where the result is put.

    Returns:
        ``[R, ...]``. May share memory with `theta_M` or among its rows: do not write into it.

    Example:
        >>> mix(torch.tensor([[0.5, 0.5]]), torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
        tensor([[2., 3.]])
    """
    if rows is None and _is_identity(weights_RM):
        return theta_M
    distinct_UM, row_of_R = torch.unique(weights_RM, dim=0, return_inverse=True)
    if len(distinct_UM) == len(weights_RM):
        distinct_UM, row_of_R = weights_RM, torch.arange(len(weights_RM))
    single = len(distinct_UM) == 1
    flat_M = theta_M.reshape(len(theta_M), prod(theta_M.shape[1:]))
    mixed = new_rows(1 if single else len(weights_RM), flat_M)
    if rows is None and len(mixed) == len(distinct_UM) and theta_M.element_size() >= 4:
        torch.mm(distinct_UM.to(theta_M), flat_M, out=mixed)
    else:
        _mix_blocks(distinct_UM, row_of_R[: len(mixed)], flat_M, rows, mixed)
    return mixed.reshape(len(mixed), *theta_M.shape[1:]).expand(len(weights_RM), *theta_M.shape[1:])


def _is_identity(weights_RM: Tensor) -> bool:
    eye = torch.eye(weights_RM.shape[1], dtype=weights_RM.dtype, device=weights_RM.device)
    return torch.equal(weights_RM, eye)


def _mix_blocks(
    distinct_UM: Tensor, row_of_R: Tensor, flat_M: Tensor, rows: Tensor | None, mixed: Tensor
) -> None:
    """Write the mixtures into `mixed`, ``[R, D]``, over blocks of columns."""
    dtype = torch.promote_types(flat_M.dtype, torch.float32)
    factors_UM = distinct_UM.to(flat_M.device, dtype)
    row_of_R = row_of_R.to(flat_M.device)
    for columns in column_blocks(len(flat_M), flat_M, _BLOCK_ELEMENTS):
        block = flat_M[:, columns] if rows is None else flat_M[:, columns][rows]
        part_U = (factors_UM @ block.to(dtype)).to(flat_M.dtype)
        torch.index_select(part_U, 0, row_of_R, out=mixed[:, columns])

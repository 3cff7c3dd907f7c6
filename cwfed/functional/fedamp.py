"""Attention between clients' models: how FedAMP mixes what it pulls each client towards.

Legend: M clients; ``theta_M`` is one parameter of all clients, ``[M, ...]``.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from cwfed.functional.stacking import NewRows, column_blocks, empty_rows

_BLOCK_ELEMENTS = 1 << 16  # of one block of the stacked models: 512 KiB in float64, for the cache
_PAIR_COLUMNS = 1 << 10  # of one block while pairs are compared: two rows fit the innermost cache


def squared_distances(thetas_M: Iterable[Tensor]) -> Tensor:
    """Return ``||w_i - w_j||²`` between all clients.

    From differences in float64, block by block: ``[M, M, D]`` never exists, and every distance has
    its digits however far away other models are. Products of models, a Gram matrix, would lose
    those of two near models beside a far one.

    Args:
        thetas_M: The parameters that a model consists of, each ``[M, ...]``.

    Returns:
        float64 ``[M, M]``, symmetric, zeros on the diagonal; NaN where a model has an infinite or
        undefined number.

    Raises:
        ValueError: There is no parameter.

    Example:
        >>> squared_distances([torch.tensor([[0.0], [3.0]]), torch.tensor([[0.0], [4.0]])])
        tensor([[ 0., 25.],
                [25.,  0.]], dtype=torch.float64)
    """
    pairs: Tensor | None = None
    for theta_M in thetas_M:
        size = len(theta_M)
        if pairs is None:
            pairs = torch.zeros(size * (size - 1) // 2, dtype=torch.float64)
        flat_M = theta_M.reshape(size, -1)
        for columns in column_blocks(size, flat_M, size * _PAIR_COLUMNS):
            pairs += torch.pdist(flat_M[:, columns].to(torch.float64)).square().cpu()
    if pairs is None:
        raise ValueError("thetas_M: expected at least one parameter, got none")
    squared_MM = torch.zeros(size, size, dtype=torch.float64)
    squared_MM[tuple(torch.triu_indices(size, size, 1))] = pairs
    return squared_MM + squared_MM.T


def attention(squared_MM: Tensor, alpha: float, sigma: float, peers_M: Tensor) -> Tensor:
    """Return ``c_ij = (alpha / sigma) exp(-||w_i - w_j||² / sigma)`` between peers.

    It is ``alpha A'`` of ``A(x) = 1 - exp(-x / sigma)`` (FedAMP, Huang et al. 2021, Equation 5).

    Args:
        squared_MM: `squared_distances`, float64 ``[M, M]``.
        alpha: Step size, > 0.
        sigma: Squared distance at which attention has fallen to 1 / e, > 0.
        peers_M: Which clients attend and are attended to, bool ``[M]``.

    Returns:
        float64 ``[M, M]``: 0 on the diagonal, for who is no peer and for models that are not
        numbers. Rows are not normalised.

    Example:
        >>> squared = torch.tensor([[0.0, 1.0, 1.0], [1.0, 0.0, 1.0], [1.0, 1.0, 0.0]])
        >>> attention(squared, 1.0, 1.0, torch.tensor([True, True, False]))
        tensor([[0.0000, 0.3679, 0.0000],
                [0.3679, 0.0000, 0.0000],
                [0.0000, 0.0000, 0.0000]], dtype=torch.float64)
    """
    counts_MM = peers_M[:, None] & peers_M[None, :] & ~squared_MM.isnan()
    counts_MM &= ~torch.eye(len(peers_M), dtype=torch.bool)
    c_MM = alpha / sigma * torch.exp(-squared_MM.to(torch.float64) / sigma)
    return torch.where(counts_MM, c_MM, torch.zeros_like(c_MM))


def attentive_mixture(
    attention_MM: Tensor, theta_M: Tensor, new_rows: NewRows = empty_rows
) -> Tensor:
    """Return ``u_i = w_i + sum_{j != i} c_ij (w_j - w_i)`` of one parameter, for every client.

    Computed in float64 from the models less their mean: c_ij may be large, and would enlarge the
    rounding of the models themselves (FedAMP, Huang et al. 2021, Equation 5).

    Args:
        attention_MM: `attention`, float64 ``[M, M]`` with zeros on the diagonal.
        theta_M: The parameter on every client, ``[M, ...]``.
        new_rows: Where the result is put.

    Returns:
        ``[M, ...]``, dtype of `theta_M`; a client without attention gets its own to the bit.

    Example:
        >>> c = torch.tensor([[0.0, 0.25], [0.0, 0.0]], dtype=torch.float64)
        >>> attentive_mixture(c, torch.tensor([[1.0], [3.0]]))
        tensor([[1.5000],
                [3.0000]])
    """
    flat_M = theta_M.reshape(len(theta_M), -1)
    pull_MM = (attention_MM - attention_MM.sum(1).diag()).to(theta_M.device, torch.float64)
    # Nobody attends to a model that is not a number, but 0 times infinity would.
    alone = (~(attention_MM + attention_MM.T).any(1)).nonzero()[:, 0].to(theta_M.device)
    mixed_M = new_rows(len(flat_M), flat_M)
    for columns in column_blocks(len(flat_M), flat_M, _BLOCK_ELEMENTS):
        block = flat_M[:, columns].to(torch.float64)
        peers = _less_mean(block).index_fill_(0, alone, 0.0)
        mixed_M[:, columns] = torch.addmm(block, pull_MM, peers)
    return mixed_M.reshape(theta_M.shape)


def _less_mean(block: Tensor) -> Tensor:
    """Return models less their mean, ``[M, b]``; what is not finite does not enter the mean."""
    share_1M = block.new_full((1, len(block)), 1.0 / len(block))
    mean = share_1M @ block
    if not mean.isfinite().all():
        mean = share_1M @ block.nan_to_num(0.0, 0.0, 0.0)
    return block - mean

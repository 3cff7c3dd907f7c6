"""Attention between clients' models: how FedAMP mixes what it pulls each client towards.

Legend: M clients; ``theta_M`` is one parameter of all clients, ``[M, ...]``.
"""

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

_BLOCK_ELEMENTS = 1 << 19  # of one block of the stacked models: 4 MiB in float64


def squared_distances(thetas_M: Iterable[Tensor]) -> Tensor:
    """Return ``||w_i - w_j||²`` between all clients.

    Summed from differences in float64, block by block: a Gram matrix would lose the digits of
    near-equal models, and ``[M, M, D]`` never exists.

    Args:
        thetas_M: The parameters that a model consists of, each ``[M, ...]``.

    Returns:
        float64 ``[M, M]``, symmetric, zeros on the diagonal.

    Example:
        >>> squared_distances([torch.tensor([[0.0], [3.0]]), torch.tensor([[0.0], [4.0]])])
        tensor([[ 0., 25.],
                [25.,  0.]], dtype=torch.float64)
    """
    total: Tensor | None = None
    for theta_M in thetas_M:
        size = len(theta_M)
        if total is None:
            total = torch.zeros(size * (size - 1) // 2, dtype=torch.float64)
        for block in _blocks(theta_M):
            total += torch.nn.functional.pdist(block).square().cpu()
    if total is None:
        raise ValueError("thetas_M: expected at least one parameter, got none")
    squared_MM = torch.zeros(size, size, dtype=torch.float64)
    rows, columns = torch.triu_indices(size, size, 1)
    squared_MM[rows, columns] = total
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


def attentive_mixture(attention_MM: Tensor, theta_M: Tensor) -> Tensor:
    """Return ``u_i = w_i + sum_{j != i} c_ij (w_j - w_i)`` of one parameter, for every client.

    Computed in float64, since c_ij may be large (FedAMP, Huang et al. 2021, Equation 5).

    Args:
        attention_MM: `attention`, float64 ``[M, M]`` with zeros on the diagonal.
        theta_M: The parameter on every client, ``[M, ...]``.

    Returns:
        ``[M, ...]``, dtype of `theta_M`; a client without attention gets its own to the bit.

    Example:
        >>> c = torch.tensor([[0.0, 0.25], [0.0, 0.0]], dtype=torch.float64)
        >>> attentive_mixture(c, torch.tensor([[1.0], [3.0]]))
        tensor([[1.5000],
                [3.0000]])
    """
    mass_M1 = attention_MM.sum(1, keepdim=True)
    mixed = []
    for block in _blocks(theta_M):
        # Nobody attends to a model that is not a number, but 0 times infinity would.
        peers = block.nan_to_num(0.0, 0.0, 0.0)
        pull = attention_MM.to(block.device) @ peers - mass_M1.to(block.device) * peers
        mixed.append((block + pull).to(theta_M.dtype))
    return torch.cat(mixed, 1).reshape(theta_M.shape)


def _blocks(theta_M: Tensor) -> Iterator[Tensor]:
    """Yield the parameter in blocks of columns, float64 ``[M, b]``."""
    flat = theta_M.reshape(len(theta_M), -1)
    for block in flat.split(max(1, _BLOCK_ELEMENTS // len(theta_M)), 1):
        yield block.to(torch.float64)

"""Clustered federated learning: the norms and similarities that decide on a split.

Legend: m members of a cluster; updates are ``ΔW_i = upload - start`` over all parameters.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from cwfed.functional.stacking import Bank, column_blocks

_BLOCK_ELEMENTS = 1 << 19  # of one block of the stacked updates: 4 MiB in float64


def update_norms(
    uploads: Bank, starts: Bank, weights_m: Tensor, members: Tensor
) -> tuple[Tensor, Tensor]:
    """Return ``||sum_i w_i ΔW_i||`` and ``||ΔW_i||`` of a cluster.

    The first is small where the members agree that training is over, or where they pull apart;
    the second tells these cases apart (CFL, Sattler et al. 2020, splitting criterion).

    Args:
        uploads: The clients' models after training, ``[M, ...]`` by name; parameters only.
        starts: What their training started from, ``[M, ...]`` by name.
        weights_m: Weights of the mean, float64 ``[m]``, sum to 1.
        members: Ids, int64 ``[m]``.

    Returns:
        float64 scalar and float64 ``[m]``.

    Example:
        >>> uploads, starts = {"w": torch.tensor([[3.0], [-1.0]])}, {"w": torch.zeros(2, 1)}
        >>> weights = torch.tensor([0.5, 0.5], dtype=torch.float64)
        >>> update_norms(uploads, starts, weights, torch.arange(2))
        (tensor(1., dtype=torch.float64), tensor([3., 1.], dtype=torch.float64))
    """
    mean = torch.zeros((), dtype=torch.float64)
    each = torch.zeros(len(weights_m), dtype=torch.float64)
    for block in _updates(uploads, starts, members):
        mean += (weights_m @ block).square().sum()
        each += block.square().sum(1)
    return mean.sqrt(), each.sqrt()


def cosines(uploads: Bank, starts: Bank, members: Tensor) -> Tensor:
    """Return the cosines between the updates of a cluster's members.

    ``α_ij = <ΔW_i, ΔW_j> / (||ΔW_i|| ||ΔW_j||)``; 0 where an update is zero.

    Args:
        uploads: The clients' models after training, ``[M, ...]`` by name; parameters only.
        starts: What their training started from, ``[M, ...]`` by name.
        members: Ids, int64 ``[m]``.

    Returns:
        float64 ``[m, m]``.

    Example:
        >>> uploads = {"w": torch.tensor([[1.0, 0.0], [0.0, 2.0], [-3.0, 0.0]])}
        >>> cosines(uploads, {"w": torch.zeros(3, 2)}, torch.arange(3))
        tensor([[ 1.,  0., -1.],
                [ 0.,  1.,  0.],
                [-1.,  0.,  1.]], dtype=torch.float64)
    """
    products: Tensor | float = 0.0
    for block in _updates(uploads, starts, members):
        products = products + block @ block.T
    assert isinstance(products, Tensor)
    norms = products.diagonal().sqrt()
    scale = torch.where(norms > 0, 1 / norms, torch.zeros_like(norms))
    return scale[:, None] * products * scale


def bipartition(similarity_mm: Tensor) -> Tensor:
    """Return the two parts that complete linkage leaves when it joins the most similar first.

    Two groups are as similar as their least similar members. Sattler et al. 2020 ask for the
    parts with the smallest greatest similarity across; their code takes these. Of equal pairs the
    one with the lowest positions is joined, so equal input gives equal parts on every machine.

    Args:
        similarity_mm: ``[m, m]``, m >= 2, without NaN; read above the diagonal.

    Returns:
        bool ``[m]``: True for the part without the first member.

    Example:
        >>> bipartition(torch.tensor([[1.0, -0.5, 0.9], [-0.5, 1.0, -0.8], [0.9, -0.8, 1.0]]))
        tensor([False,  True, False])
    """
    size = len(similarity_mm)
    # Complete linkage joins by distance: any falling function of similarity gives its order.
    upper = -similarity_mm.to(torch.float64).triu(1)
    link = (upper + upper.T).fill_diagonal_(torch.inf)
    part = torch.arange(size)
    for _ in range(size - 2):
        a, b = divmod(int(link.argmin()), size)  # the first minimum: a < b, since symmetric
        link[a] = torch.maximum(link[a], link[b])
        link[:, a] = link[a]
        link[b] = link[:, b] = torch.inf
        part[part == b] = a
    return part != 0


def _updates(uploads: Bank, starts: Bank, members: Tensor) -> Iterator[Tensor]:
    """Yield the members' updates in blocks of columns, float64 ``[m, b]``."""
    for name, theta_M in uploads.items():
        after, before = theta_M.reshape(len(theta_M), -1), starts[name].reshape(len(theta_M), -1)
        for columns in column_blocks(len(theta_M), theta_M, _BLOCK_ELEMENTS):
            upload, start = after[:, columns][members], before[:, columns][members]
            yield (upload.to(torch.float64) - start.to(torch.float64)).cpu()

"""FedFomo's weights: first-order estimates of how much another model would help a client.

Legend: M clients, m clients that mix, C candidates of each.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from cwfed.functional.stacking import Bank, column_blocks

_BLOCK_ELEMENTS = 1 << 16  # of one block of the differences: 512 KiB in float64, for the cache
EPSILON = 1e-5  # keeps the weight of a candidate at no distance finite, as released


def candidates(
    preferences_MM: Tensor, uploaded_M: Tensor, clients: Tensor, num_models: int
) -> Tensor:
    """Return whose models each client is offered: its own, then the others it prefers.

    Args:
        preferences_MM: P, row i as client i sees the others, finite, ``[M, M]``.
        uploaded_M: Whose models can be offered, bool ``[M]``.
        clients: Ids of clients that have uploaded, int64 ``[m]``.
        num_models: How many to offer, >= 1.

    Returns:
        Ids, int64 ``[m, C]`` with C the smaller of `num_models` and the number of uploads; the
        client itself first, ties by id.

    Example:
        >>> p = torch.tensor([[1.0, 0.2, 0.9, 0.2], [0.0, 1.0, 0.0, 0.0]])
        >>> candidates(p, torch.tensor([True, True, False, True]), torch.tensor([0, 1]), 2)
        tensor([[0, 1],
                [1, 0]])
    """
    scores_mM = preferences_MM[clients].masked_fill(~uploaded_M, -torch.inf)
    scores_mM[torch.arange(len(clients)), clients] = torch.inf
    order_mM = scores_mM.argsort(dim=1, descending=True, stable=True)
    return order_mM[:, : min(num_models, int(uploaded_M.sum()))]


def distances(models: Bank, old: Bank, clients: Tensor, names: Iterable[str]) -> Tensor:
    """Return ``||theta_i - old_i||`` of each client's rows over the named tensors.

    Args:
        models: ``[M, ...]`` by name.
        old: ``[M, ...]`` by name.
        clients: Ids, int64 ``[m]``.
        names: Tensors that count.

    Returns:
        float64 ``[m]``, from differences in float64.

    Example:
        >>> models, old = {"w": torch.tensor([[3.0, 4.0]])}, {"w": torch.zeros(1, 2)}
        >>> distances(models, old, torch.tensor([0]), ["w"])
        tensor([5.], dtype=torch.float64)
    """
    squares_m = torch.zeros(len(clients), dtype=torch.float64)
    for name in names:
        theirs_M, old_M = models[name].flatten(1), old[name].flatten(1)
        for columns in column_blocks(len(clients), theirs_M, _BLOCK_ELEMENTS):
            block_m = theirs_M[:, columns][clients].to(torch.float64) - old_M[:, columns][clients]
            squares_m += block_m.square().sum(1).cpu()
    return squares_m.sqrt()


def raw_weights(old_loss_m: Tensor, loss_mC: Tensor, distance_mC: Tensor) -> Tensor:
    """Return ``(L(old) - L(theta_n)) / (||theta_n - old|| + 1e-5)`` (Zhang et al. 2021, Eq. 5).

    Args:
        old_loss_m: Validation loss of each client's model after its previous mix, ``[m]``.
        loss_mC: Validation losses of its candidates, ``[m, C]``.
        distance_mC: Their distances from the old model, ``[m, C]``.

    Returns:
        float64 ``[m, C]``, negative for a candidate that is worse than the old model; 0 where a
        loss or a distance is not finite.

    Example:
        >>> losses = torch.tensor([[0.5, 2.0, torch.nan]])
        >>> raw_weights(torch.tensor([1.0]), losses, torch.ones(1, 3))
        tensor([[ 0.5000, -1.0000,  0.0000]], dtype=torch.float64)
    """
    gain_mC = old_loss_m.to(torch.float64)[:, None] - loss_mC
    raw_mC = gain_mC / (distance_mC.to(torch.float64) + EPSILON)
    usable_mC = raw_mC.isfinite() & distance_mC.isfinite()
    return torch.where(usable_mC, raw_mC, 0.0)


def mixing_weights(raw_mM: Tensor) -> Tensor:
    """Return the weights of each client's mix: negatives set to 0, normalised (Eq. 6).

    Args:
        raw_mM: `raw_weights` by client, 0 for those that are not candidates, ``[m, M]``.

    Returns:
        float64 ``[m, M]``; rows sum to 1, or are 0 for a client whom nobody helps.

    Example:
        >>> mixing_weights(torch.tensor([[3.0, -5.0, 1.0], [-1.0, 0.0, 0.0]]))
        tensor([[0.7500, 0.0000, 0.2500],
                [0.0000, 0.0000, 0.0000]], dtype=torch.float64)
    """
    weights_mM = raw_mM.to(torch.float64).clamp_min(0.0)
    total_m1 = weights_mM.sum(1, keepdim=True)
    return torch.where(total_m1 > 0, weights_mM / total_m1, 0.0)

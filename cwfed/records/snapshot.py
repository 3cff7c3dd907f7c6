"""Arrays that a run keeps after a round: norms of output layers, and who learned from whom.

Legend: M clients, K classes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from cwfed.messages.checks import check_matrix


@dataclass(frozen=True)
class Snapshot:
    """Arrays kept after a round.

    Attributes:
        round: The round.
        norms_upload_MK: Euclidean norms of the rows of the output layer's weight in the clients'
            last uploads, float32 ``[M, K]``.
        norms_received_MK: The same in the models that the clients received.
        mixing: Who learned from whom, float32 ``[M, M]`` by group: ``output`` for the output
            layer, ``base`` for the model's first tensor. Row i holds the weights of all clients'
            uploads in what client i received. Groups that the method does not mix are left out.
    """

    round: int
    norms_upload_MK: np.ndarray
    norms_received_MK: np.ndarray
    mixing: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def p_estimated_MK(self) -> np.ndarray:
        """p~ of the last uploads: norms over their sum, uniform where all are 0, ``[M, K]``."""
        return norm_shares(self.norms_upload_MK)


def norm_shares(norms_MK: np.ndarray) -> np.ndarray:
    """Return ``p~_ij = ||w_ij|| / sum_k ||w_ik||`` from the norms.

    Args:
        norms_MK: Norms of the rows of the output layer's weight, ``[M, K]``.

    Returns:
        float64 ``[M, K]``; rows sum to 1, uniform where all norms are 0. What is not finite, as
        after a divergence, gives NaN.

    Example:
        >>> norm_shares(np.array([[3.0, 1.0], [0.0, 0.0]]))
        array([[0.75, 0.25],
               [0.5 , 0.5 ]])
    """
    norms = check_matrix("norms_MK", norms_MK)
    total = norms.sum(1, keepdims=True)
    uniform = np.full_like(norms, 1 / norms.shape[1])
    with np.errstate(invalid="ignore"):
        return np.divide(norms, total, out=uniform, where=total != 0)

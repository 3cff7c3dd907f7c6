"""Cross-entropy, the term that every local objective starts with."""

from torch import Tensor
from torch.nn import functional as F

from cwfed.objectives.base import ClientContext, ObjectiveTerm, Step, check_weight


class CrossEntropy(ObjectiveTerm):
    """Mean cross-entropy over the batch.

    Args:
        weight: Factor, > 0.
    """

    def __init__(self, weight: float = 1.0) -> None:
        check_weight("weight", weight)
        self.weight = weight

    def value(self, step: Step, client: ClientContext) -> Tensor:
        """Return the mean of ``-log softmax(logits)[target]``."""
        return F.cross_entropy(step.logits_BK, step.targets_B)

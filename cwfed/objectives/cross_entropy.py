"""Cross-entropy, the term that every local objective starts with."""

from torch import Tensor
from torch.nn import functional as F

from cwfed.objectives.base import ClientContext, ObjectiveTerm, Step, check_weight


class CrossEntropy(ObjectiveTerm):
    """Mean cross-entropy over the batch.

    Args:
        weight: Factor, > 0.

    Example:
        >>> import torch
        >>> from cwfed.objectives import ClientContext, Step
        >>> step = Step(torch.zeros(2, 2), torch.tensor([0, 1]), {"head.weight": torch.ones(2, 3)})
        >>> client = ClientContext(torch.tensor([1.0, 0.0]), "head.weight")
        >>> round(CrossEntropy().value(step, client).item(), 4)  # log 2
        0.6931
    """

    def __init__(self, weight: float = 1.0) -> None:
        check_weight("weight", weight)
        self.weight = weight

    def value(self, step: Step, client: ClientContext) -> Tensor:
        """Return the mean of ``-log softmax(logits)[target]``."""
        return F.cross_entropy(step.logits_BK, step.targets_B)

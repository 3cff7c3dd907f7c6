"""The weight distribution regulariser of cwFedAvg."""

from torch import Tensor

from cwfed.functional.regularisers import weight_distribution_distance
from cwfed.objectives.base import ClientContext, ObjectiveTerm, Step, check_weight


class WDR(ObjectiveTerm):
    """Weight distribution regulariser: ``λ ||p_i - p~_i||_2`` (arXiv 2406.07800).

    Draws the norms of the output layer's rows towards the client's class distribution, so that
    the server can read the distribution from the upload. Costs one pass over the output layer's
    weight a step. By design the upload then encodes the client's label distribution: this is no
    privacy protection.

    Args:
        weight: λ, >= 0. None takes the run's ``wdr_lambda``, which belongs to the data set: 10
            for MNIST and CIFAR-10, 1000 for CIFAR-100, 2000 for Tiny ImageNet in the paper.

    Raises:
        ValueError: The weight is negative or not finite.

    Example:
        >>> import torch
        >>> from cwfed.objectives import ClientContext, Step
        >>> step = Step(torch.zeros(2, 2), torch.tensor([0, 1]), {"head.weight": torch.ones(2, 3)})
        >>> client = ClientContext(torch.tensor([1.0, 0.0]), "head.weight")
        >>> round(WDR(10.0).value(step, client).item(), 4)  # of (1, 0) and (1/2, 1/2)
        0.7071
    """

    def __init__(self, weight: float | None = None) -> None:
        if weight is not None:
            check_weight("weight", weight)
        self.weight = weight

    def value(self, step: Step, client: ClientContext) -> Tensor:
        """Return ``R_i = ||p_i - p~_i||_2`` of the parameters as they are, a scalar."""
        return weight_distribution_distance(client.p_K, step.parameters[client.head_weight])

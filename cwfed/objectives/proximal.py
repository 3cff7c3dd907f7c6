"""The proximal term of FedProx, FedAMP and Ditto."""

import torch
from torch import Tensor

from cwfed.objectives.base import ClientContext, ObjectiveTerm, Step, check_weight


class Proximal(ObjectiveTerm):
    """Proximal term: ``(weight / 2) ||w - anchor||²`` over the trainable parameters.

    The anchor is what the server sent to pull towards: the received model for FedProx (Li et al.
    2020, Equation 2, weight μ) and Ditto (Li et al. 2021, weight λ), the attentive mixture u_i for
    FedAMP (Huang et al. 2021, see `AttentionProximal`). Differentiable in w, so that it acts.

    Args:
        weight: Factor, >= 0.

    Example:
        >>> import torch
        >>> from cwfed.objectives import ClientContext, Step
        >>> step = Step(torch.zeros(2, 2), torch.tensor([0, 1]), {"head.weight": torch.ones(2, 3)})
        >>> anchor = {"head.weight": torch.zeros(2, 3)}
        >>> client = ClientContext(torch.ones(2) / 2, "head.weight", anchor)
        >>> Proximal(0.1).value(step, client).item()  # six ones, anchor 0
        3.0
    """

    def __init__(self, weight: float) -> None:
        check_weight("weight", weight)
        self.weight = weight

    def value(self, step: Step, client: ClientContext) -> Tensor:
        """Return ``||w - anchor||² / 2``, a scalar."""
        squares = [
            (step.parameters[name] - anchor).square().sum()
            for name, anchor in client.anchor.items()
        ]
        return 0.5 * torch.stack(squares).sum()

"""FedAMP's term: the proximal term towards the attentive mixture."""

from torch import Tensor

from cwfed.objectives.base import ClientContext, Step
from cwfed.objectives.proximal import Proximal


class AttentionProximal(Proximal):
    """FedAMP's client: ``(λ / (2 alpha)) ||w - u_i||²`` over all parameters.

    u_i is the anchor that `cwfed.aggregators.FedAMP` sends, and alpha is that aggregator's: the
    loop fills it in (Huang et al. 2021, arXiv 2007.03797, Equation 6). Differentiable in w, so
    that it acts.

    Attributes:
        alpha: The server's step size; 1 until it is filled in.

    Args:
        weight: λ, >= 0.

    Example:
        >>> import torch
        >>> from cwfed.objectives import ClientContext, Step
        >>> step = Step(torch.zeros(2, 2), torch.tensor([0, 1]), {"head.weight": torch.ones(2, 3)})
        >>> anchor = {"head.weight": torch.zeros(2, 3)}
        >>> client = ClientContext(torch.ones(2) / 2, "head.weight", anchor)
        >>> term = AttentionProximal()
        >>> term.alpha = 2.0  # as the loop does
        >>> term.value(step, client).item()
        1.5
    """

    from_server = ("alpha",)
    alpha = 1.0

    def __init__(self, weight: float = 1.0) -> None:
        super().__init__(weight)

    def value(self, step: Step, client: ClientContext) -> Tensor:
        """Return ``||w - u_i||² / (2 alpha)``, a scalar."""
        return super().value(step, client) / self.alpha

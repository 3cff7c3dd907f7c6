"""The two terms of FedUV: variance of the classifier's output, uniformity of the features."""

from torch import Tensor

from cwfed.functional.feduv import pair_potential, variance_shortfall
from cwfed.objectives.base import ClientContext, ObjectiveTerm, Step, check_weight


class ClassifierVariance(ObjectiveTerm):
    """FedUV's classifier term: ``λ mean_c ReLU(1/√K - std_batch(softmax_c))``.

    Son et al. 2024 (arXiv 2402.18372). Keeps a client that holds few classes from pushing the
    probabilities of the others to 0 in every batch, as IID clients would not. Use it together
    with `EncoderUniformity` and `FedAvg` where label distributions differ. Costs one pass over
    the logits a step, nothing on the wire. A batch of one contributes 0.

    Args:
        weight: λ, >= 0; 2.5 as released, for batches of 128: in smaller batches the standard
            deviation is noisier and the term larger.

    Example:
        >>> import torch
        >>> from cwfed.objectives import ClientContext, Step
        >>> step = Step(torch.zeros(2, 2), torch.tensor([0, 1]), {"head.weight": torch.ones(2, 3)})
        >>> client = ClientContext(torch.tensor([1.0, 0.0]), "head.weight")
        >>> round(ClassifierVariance().value(step, client).item(), 4)  # no spread: 1 / √2
        0.7071
    """

    def __init__(self, weight: float = 2.5) -> None:
        check_weight("weight", weight)
        self.weight = weight

    def value(self, step: Step, client: ClientContext) -> Tensor:
        """Return ``mean_c ReLU(1/√K - std_batch(softmax_c))``, std unbiased, a scalar."""
        return variance_shortfall(step.logits_BK)


class EncoderUniformity(ObjectiveTerm):
    """FedUV's encoder term: ``μ mean_{a<b} exp(-||z_a - z_b||² / σ)``.

    Son et al. 2024 (arXiv 2402.18372); z are the inputs of the output layer, σ the median of the
    non-zero squared distances of the batch. Spreads the features, so that a client's encoder does
    not collapse onto its own classes. Use it together with `ClassifierVariance`. Costs
    ``B² F / 2`` operations and memory a step, nothing on the wire. A batch of one, or of equal
    features, contributes 0 (the released code divides by the median of nothing there).

    Args:
        weight: μ, >= 0; 0.5 as released, for batches of 128.
        detach_sigma: Take σ for a constant. By default the gradient runs through it, as in the
            released code: the term then only evens out the distances and cannot grow all of them
            alike, since scaling the features does not change it.

    Example:
        >>> import torch
        >>> from cwfed.objectives import ClientContext, Step
        >>> features = torch.tensor([[0.0], [3.0]])
        >>> step = Step(torch.zeros(2, 2), torch.tensor([0, 1]), {}, features)
        >>> client = ClientContext(torch.tensor([1.0, 0.0]), "head.weight")
        >>> round(EncoderUniformity().value(step, client).item(), 4)  # one pair: exp(-1)
        0.3679
    """

    needs_features = True

    def __init__(self, weight: float = 0.5, detach_sigma: bool = False) -> None:
        check_weight("weight", weight)
        self.weight = weight
        self.detach_sigma = detach_sigma

    def value(self, step: Step, client: ClientContext) -> Tensor:
        """Return ``mean_{a<b} exp(-||z_a - z_b||² / σ)``, a scalar."""
        assert step.features_BF is not None
        return pair_potential(step.features_BF, self.detach_sigma)

"""The contract of loss terms, and their sum.

A term never calls the model. It sees what the model returned, the batch, the parameters by name
and the client it trains, and returns a scalar; so every engine shares the loss to the letter.

Legend: B samples of a batch, K classes, F features.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import isfinite

from torch import Tensor


@dataclass(frozen=True)
class Step:
    """Tensors that one training step offers to the terms.

    Attributes:
        logits_BK: The model's output.
        targets_B: int64 class indices.
        parameters: The parameters being trained, by name.
        features_BF: Input of the output layer; None unless a term asks for it.

    Example:
        >>> import torch
        >>> step = Step(torch.zeros(4, 10), torch.zeros(4, dtype=torch.int64), {})
        >>> step.features_BF is None  # no term has asked for them
        True
    """

    logits_BK: Tensor
    targets_B: Tensor
    parameters: Mapping[str, Tensor]
    features_BF: Tensor | None = None


@dataclass(frozen=True)
class ClientContext:
    """Facts that a term may know of the client it trains.

    Attributes:
        p_K: Class distribution of its labels, ``[K]``.
        head_weight: Name of the output layer's weight among the parameters.
        anchor: What proximal terms pull towards, by parameter name.

    Example:
        >>> import torch
        >>> client = ClientContext(torch.tensor([0.75, 0.25]), "head.weight")
        >>> client.p_K.sum().item(), client.anchor
        (1.0, {})
    """

    p_K: Tensor
    head_weight: str
    anchor: Mapping[str, Tensor] = field(default_factory=dict)


class ObjectiveTerm(ABC):
    """One term of the local objective: ``weight * value``.

    A term keeps nothing from call to call: engines call it for one client after the other, for
    several at once, and in several processes. The same holds for models, except for buffers.

    Attributes:
        weight: Factor of the term, >= 0; a term of weight 0 is not evaluated. None asks the run
            for the data set's own factor.
        needs_features: Whether `Step.features_BF` must be there.
        from_server: Names of hyperparameters that the term takes from the aggregator, where both
            sides of a method need the same one: they stand in one place and cannot disagree.

    Example:
        >>> import torch
        >>> class Smallness(ObjectiveTerm):
        ...     weight = 0.5
        ...     def value(self, step, client):
        ...         return step.parameters[client.head_weight].square().sum()
        >>> step = Step(torch.zeros(2, 2), torch.tensor([0, 1]), {"head.weight": torch.ones(2, 3)})
        >>> client = ClientContext(torch.tensor([1.0, 0.0]), "head.weight")
        >>> Objective([Smallness()])(step, client).item()
        3.0
    """

    weight: float | None
    needs_features = False
    from_server: tuple[str, ...] = ()

    @abstractmethod
    def value(self, step: Step, client: ClientContext) -> Tensor:
        """Return the term's unweighted value, a differentiable scalar."""


class Objective:
    """The sum of weighted terms that local training minimises.

    Args:
        terms: Terms whose weights are numbers.

    Raises:
        ValueError: A weight is missing, negative or not finite.

    Example:
        >>> import torch
        >>> from cwfed.objectives import CrossEntropy, Proximal
        >>> step = Step(torch.zeros(2, 2), torch.tensor([0, 1]), {"head.weight": torch.ones(2, 3)})
        >>> anchor = {"head.weight": torch.zeros(2, 3)}
        >>> client = ClientContext(torch.ones(2) / 2, "head.weight", anchor)
        >>> round(Objective([CrossEntropy(), Proximal(0.1)])(step, client).item(), 4)  # log 2 + 0.3
        0.9931
    """

    def __init__(self, terms: Iterable[ObjectiveTerm]) -> None:
        self.terms = tuple(terms)
        for term in self.terms:
            check_weight(f"{type(term).__name__}.weight", term.weight)

    @property
    def needs_features(self) -> bool:
        """True if any term that counts asks for features."""
        return any(term.needs_features for term in self.terms if term.weight)

    def __call__(self, step: Step, client: ClientContext) -> Tensor:
        """Return ``sum_t weight_t value_t``, a scalar."""
        parts = [term.weight * term.value(step, client) for term in self.terms if term.weight]
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return total


def check_weight(name: str, weight: float | None) -> None:
    """Raise a ValueError that names `name` unless `weight` is a finite number >= 0."""
    if weight is None or not isfinite(weight) or weight < 0:
        raise ValueError(f"{name}: expected a finite number >= 0, got {weight}")

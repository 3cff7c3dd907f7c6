"""Output layers that a method puts in place of the model's own."""

from abc import ABC, abstractmethod
from math import isfinite

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cwfed.contract.spec import ModelSpec
from cwfed.functional.distribution import safe_norm


class Head(ABC):
    """Replaces the output layer of a model when the run is prepared."""

    @abstractmethod
    def install(self, model: nn.Module, contract: ModelSpec) -> None:
        """Replace the output layer in place; it keeps its name and a weight ``[K, F]``.

        Raises:
            ValueError: The model does not allow it.
        """


class PrototypeHead(Head):
    """FedNH's output layer: scaled cosine similarity to class prototypes (Dai et al. 2023).

    The prototypes are orthogonal unit rows, fixed in local training; `FedNH` moves them on the
    server. Under `FedAvg` they stay where they started: a fixed classifier. It serves no method
    that trains the output layer or reads from its weight (cwFedAvg, WDR, FedPer, FedRep).

    Args:
        scale: Initial value of the learned scale s, > 0: 1 for the CNN, 20 for ResNet-18.

    Raises:
        ValueError: The scale is not a positive number.
    """

    def __init__(self, scale: float = 1.0) -> None:
        if not (scale > 0 and isfinite(scale)):
            raise ValueError(f"scale: expected a finite number > 0, got {scale}")
        self.scale = scale

    def install(self, model: nn.Module, contract: ModelSpec) -> None:
        """Put orthogonal prototypes in place of the output layer.

        Raises:
            ValueError: There are more classes than features, so that no K orthogonal rows exist.
        """
        weight = model.get_parameter(contract.head_weight)
        classes, features = weight.shape
        if classes > features:
            raise ValueError(
                f"algorithm.head: expected at most as many classes as features for orthogonal "
                f"prototypes, got {classes} classes and {features} features"
            )
        model.set_submodule(contract.head, CosineClassifier(classes, features, self.scale, weight))


class CosineClassifier(nn.Module):
    """Logits ``s · z/||z|| · Wᵀ``: unit rows W, fixed in local training; s is learned.

    Args:
        num_classes: Number of classes, K.
        num_features: F >= K.
        scale: Initial s.
        like: A tensor whose dtype and device the new ones take.
    """

    def __init__(self, num_classes: int, num_features: int, scale: float, like: Tensor) -> None:
        super().__init__()
        rows = torch.empty(num_classes, num_features, dtype=like.dtype, device=like.device)
        nn.init.orthogonal_(rows)
        self.weight = nn.Parameter(rows, requires_grad=False)
        self.scale = nn.Parameter(rows.new_tensor(scale))

    def forward(self, features: Tensor) -> Tensor:
        """Map features ``[B, F]`` to logits ``[B, K]``; features of zeros have logits 0."""
        # In half precision the squares of a feature vector overflow or vanish.
        features = features.to(torch.promote_types(features.dtype, torch.float32))
        length = safe_norm(features)[:, None]
        # Not F.normalize: its slope at 0 is 1e12.
        unit = features / torch.where(length > 0, length, torch.ones_like(length))
        return self.scale * F.linear(unit, self.weight)

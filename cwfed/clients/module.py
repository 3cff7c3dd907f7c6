"""The client: a thin LightningModule around a model and a local objective."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics.classification import MulticlassStatScores

from cwfed.contract.spec import ModelSpec
from cwfed.objectives.base import ClientContext, Objective, Step

OptimizerFactory = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
Batch = tuple[Tensor, Tensor]


class ClientModule(LightningModule):
    """One client's local training: cross-entropy plus the terms of the method, WDR among them.

    One module serves the clients in turn: `bind` makes it a client, and the engine loads that
    client's parameters into it.

    Args:
        model: The network, images ``[B, C, H, W]`` to logits ``[B, K]``.
        contract: The model's names.
        optimizer: Called with the parameters at the start of every local training.
        num_classes: K.
        memory_format: Layout in which the model gets its images.
    """

    def __init__(
        self,
        model: nn.Module,
        contract: ModelSpec,
        optimizer: OptimizerFactory,
        num_classes: int,
        memory_format: torch.memory_format = torch.contiguous_format,
    ) -> None:
        super().__init__()
        self.model = model.to(memory_format=memory_format)
        self.memory_format = memory_format
        self.contract = contract
        self.optimizer_factory = optimizer
        self.counts = MulticlassStatScores(num_classes, average="micro", validate_args=False)
        self.objective: Objective
        self.context: ClientContext
        self.losses: list[Tensor] = []
        self._features: Tensor | None = None
        model.get_submodule(contract.head).register_forward_pre_hook(self._keep_features)

    def bind(self, context: ClientContext, objective: Objective, trainable: Iterable[str]) -> None:
        """Become a client in one phase of its training.

        Args:
            context: The client.
            objective: The local objective of the phase.
            trainable: Names of the parameters that the phase trains.
        """
        self.context = context
        self.objective = objective
        self.losses = []
        names = set(trainable)
        for name, parameter in self.model.named_parameters():
            parameter.requires_grad_(name in names)

    def feed(self, batches: Iterable[Batch]) -> Iterable[Any]:
        """Return what Lightning's trainer iterates over: here the batches."""
        return batches

    def features(self, images: Tensor) -> Tensor:
        """Return the inputs of the output layer, ``[B, F]``."""
        self(images)
        assert self._features is not None
        return self._features

    def forward(self, images: Tensor) -> Tensor:
        """Return logits ``[B, K]``."""
        logits: Tensor = self.model(images.contiguous(memory_format=self.memory_format))
        return logits

    def on_fit_start(self) -> None:
        """Move the client's tensors to the device."""
        dtype = next(self.model.parameters()).dtype
        self.context = replace(
            self.context,
            p_K=self.context.p_K.to(dtype).to(self.device),
            anchor={name: value.to(self.device) for name, value in self.context.anchor.items()},
        )

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Return the local objective on one batch, a scalar."""
        images, targets = batch
        logits = self(images)
        step = Step(logits, targets, dict(self.model.named_parameters()), self._features)
        loss = self.objective(step, self.context)
        self.losses.append(loss.detach())
        return loss

    def on_fit_end(self) -> None:
        """Let go of the last batch's features and their graph."""
        self._features = None

    def on_validation_start(self) -> None:
        """Start counting afresh."""
        self.counts.reset()
        self.losses = []

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Count correct predictions and sum the cross-entropy."""
        images, targets = batch
        logits = self(images)
        self.counts.update(logits.argmax(1), targets)
        self.losses.append(F.cross_entropy(logits, targets, reduction="sum").detach())

    def score(self) -> tuple[int, int, float]:
        """Return (correct, samples, summed cross-entropy) of the last evaluation."""
        true_positives, _, _, _, support = self.counts.compute().tolist()
        return true_positives, support, _sum(self.losses)

    def mean_loss(self) -> float:
        """Return the mean local objective over the steps of the last training, NaN without."""
        return _sum(self.losses) / len(self.losses) if self.losses else float("nan")

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return a fresh optimiser: clients keep no optimiser state between rounds."""
        return self.optimizer_factory([p for p in self.model.parameters() if p.requires_grad])

    def _keep_features(self, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        self._features = inputs[0]


def _sum(values: list[Tensor]) -> float:
    """Add up in float64 and in order, so that every engine gets the same bits."""
    return sum(torch.stack(values).to(torch.float64).tolist()) if values else 0.0

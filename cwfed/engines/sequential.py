"""One Lightning fit after the other: the reference that other engines are measured against."""

import logging
import random
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import torch
from lightning.pytorch import Trainer
from torch import Tensor, nn
from torch.nn import functional as F

from cwfed.clients.module import ClientModule
from cwfed.clients.phase import TrainingPhase
from cwfed.contract.inspection import evaluating
from cwfed.data.federated import Part
from cwfed.data.plans import PlanLoader
from cwfed.engines import precision as precisions
from cwfed.engines.base import (
    MEMORY_FORMATS,
    Engine,
    Fitted,
    MatmulPrecision,
    Precision,
    Workload,
)
from cwfed.functional.seeding import derive_seed
from cwfed.functional.stacking import Bank, row
from cwfed.objectives.base import Objective


class SequentialEngine(Engine):
    """Trains the clients one by one through a single reused Lightning Trainer.

    A new Trainer a client would cost about twice the overhead. The trainer is bare (no logger,
    no checkpoints, no progress bar): those belong to the federated loop.

    Args:
        workload: What local training is.
        accelerator: Lightning's accelerator, such as ``cpu``, ``cuda``, ``mps`` or ``auto``.
        precision: Lightning's precision. The banks of models stay in full precision.
        matmul_precision: Precision of float32 products on a GPU.
        client: The module that trains: one call a step, or one for all of a client's steps.

    Raises:
        ValueError: Lightning does not know or cannot use the accelerator.
    """

    def __init__(
        self,
        workload: Workload,
        accelerator: str = "auto",
        precision: Precision = "32-true",
        matmul_precision: MatmulPrecision = "highest",
        client: type[ClientModule] = ClientModule,
    ) -> None:
        self.workload = workload
        self.trainer = make_trainer(accelerator, precision)
        self.matmul_precision: MatmulPrecision = matmul_precision
        self.scaler = getattr(self.trainer.precision_plugin, "scaler", None)
        self._fresh_scaler = self.scaler.state_dict() if self.scaler else {}
        self.module = client(
            workload.model,
            workload.contract,
            workload.optimizer,
            workload.data.images.num_classes,
            MEMORY_FORMATS[workload.memory_format],
        )

    def fit(
        self,
        round_: int,
        clients: Sequence[int],
        start: Bank,
        anchors: Bank,
        phase: TrainingPhase,
        objective: Objective,
    ) -> Fitted:
        """See `Engine.fit`."""
        contract, data = self.workload.contract, self.workload.data
        trained = {
            name: torch.empty((len(clients), *value.shape[1:]), dtype=value.dtype)
            for name, value in start.items()
        }
        losses = []
        for position, client in enumerate(clients):
            load_row(self.module.model, start, position)
            pulling = row(anchors, position)
            anchor = {name: pulling[name] for name in contract.parameters}
            context = replace(self.workload.contexts[client], anchor=anchor)
            self.module.bind(context, objective, phase.names(contract))
            loader = data.training_loader(client, round_, phase.epochs, phase.plan)
            purpose = f"model/{phase.plan}" if phase.plan else "model"
            self._train(loader, derive_seed(data.seed, purpose, round_=round_, client=client))
            losses.append(self.module.mean_loss())
            for name, value in model_state(self.module.model).items():
                trained[name][position] = value
        return Fitted(trained, losses)

    def evaluate(self, clients: Sequence[int], models: Bank, part: Part) -> Tensor:
        """See `Engine.evaluate`."""
        scores = torch.zeros(len(clients), 3, dtype=torch.float64)
        for position, client in enumerate(clients):
            loader = self.workload.data.evaluation_loader(client, part)
            if len(loader):
                load_row(self.module.model, models, position)
                seed = derive_seed(self.workload.data.seed, "evaluation", client=client)
                with self._lightning(seed):
                    self.trainer.validate(self.module, loader, verbose=False)
                scores[position] = torch.tensor(self.module.score(), dtype=torch.float64)
        return scores

    def class_means(self, clients: Sequence[int], models: Bank) -> tuple[Tensor, Tensor]:
        """See `Engine.class_means`."""
        classes = self.workload.data.images.num_classes
        width = models[self.workload.contract.head_weight].shape[-1]
        means = torch.zeros(len(clients), classes, width, dtype=torch.float64)
        counts = self.workload.data.label_counts_MK("train")[list(clients)]
        device = self.trainer.strategy.root_device
        model = self.module.to(device)
        for position, client in enumerate(clients):
            load_row(model.model, models, position)
            with evaluating(model), torch.no_grad():
                for images, targets in self.workload.data.evaluation_loader(client, "train"):
                    features = model.features(images.to(device)).to(torch.float64).cpu()
                    means[position].index_add_(0, targets, F.normalize(features, dim=1))
        return means / counts[..., None].clamp_min(1), counts

    def _train(self, loader: PlanLoader, seed: int) -> None:
        if not len(loader):
            return
        if self.scaler:
            # A client's loss scale must not depend on who trained before it.
            self.scaler.load_state_dict(self._fresh_scaler)
        # One Lightning epoch runs the whole plan, which holds all local epochs.
        self.trainer.fit_loop.max_epochs = self.trainer.current_epoch + 1
        with self._lightning(seed):
            self.trainer.fit(self.module, train_dataloaders=self.module.feed(loader))

    @contextmanager
    def _lightning(self, seed: int) -> Iterator[None]:
        """Run Lightning for one client."""
        with (
            calling(self.trainer),
            seeded(seed),
            precisions.matmul_precision(self.matmul_precision),
        ):
            yield


@contextmanager
def calling(trainer: Trainer) -> Iterator[None]:
    """Run a trainer without its messages, and let Ctrl-C through."""
    with _quiet():
        try:
            yield
        except SystemExit:
            # Lightning turns Ctrl-C into an exit of the process; the loop has to see it.
            if trainer.interrupted:
                raise KeyboardInterrupt from None
            raise


def make_trainer(accelerator: str, precision: str) -> Trainer:
    """Return a bare Trainer for one device.

    Raises:
        ValueError: Lightning does not know or cannot use the accelerator.
    """
    try:
        with _quiet():
            return Trainer(
                barebones=True,
                max_epochs=1,
                accelerator=accelerator,
                devices=1,
                precision=precision,  # type: ignore[arg-type]
            )
    except Exception as error:  # Lightning raises its own and PyTorch's kinds of error here
        raise ValueError(
            f"trainer.accelerator: expected auto, or one of cpu, cuda and mps that this machine "
            f"has, got {accelerator!r}: {error}"
        ) from error


def resolve_accelerator(accelerator: str) -> str:
    """Return the kind of device that Lightning picks: ``cpu``, ``cuda`` or ``mps``."""
    return make_trainer(accelerator, "32-true").strategy.root_device.type


def model_state(model: nn.Module) -> dict[str, Tensor]:
    """Return a model's parameters and persistent and other buffers by name, detached."""
    named = (*model.named_parameters(), *model.named_buffers())
    return {name: value.detach() for name, value in named}


def load_row(model: nn.Module, bank: Bank, index: int) -> None:
    """Copy one row of the bank into the model, by name."""
    values: Mapping[str, Tensor] = row(bank, index)
    with torch.no_grad():
        for name, target in model_state(model).items():
            target.copy_(values[name])


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the global generators of PyTorch, NumPy and Python for a block; restore them after."""
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    numpy_state, python_state = np.random.get_state(), random.getstate()
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        np.random.seed(seed % 2**32)
        random.seed(seed)
        try:
            yield
        finally:
            np.random.set_state(numpy_state)
            random.setstate(python_state)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence what Lightning says at each of thousands of fits."""
    log = logging.getLogger("lightning.pytorch")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"lightning\..*")
            yield
    finally:
        log.setLevel(level)

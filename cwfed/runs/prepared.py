"""A run that is ready: data, model and engine at hand.

Legend: M clients, K classes.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from cwfed.aggregators.base import ServerContext
from cwfed.contract.spec import ModelSpec
from cwfed.data.federated import FederatedData, Part
from cwfed.engines.base import Workload
from cwfed.engines.options import TrainerOptions
from cwfed.engines.selection import make_engine, settle
from cwfed.engines.sequential import model_state
from cwfed.engines.vectorized.exactness import check_objectives
from cwfed.federated.callbacks import LoopCallback
from cwfed.federated.faults import FaultModel
from cwfed.federated.loop import FederatedLoop
from cwfed.federated.sampler import UniformSampler
from cwfed.functional.distribution import label_distribution
from cwfed.functional.stacking import Bank, replicate
from cwfed.objectives import ClientContext

if TYPE_CHECKING:
    from cwfed.runs.experiment import Experiment


@dataclass
class PreparedRun:
    """An experiment with its data and model at hand, ready to run.

    Attributes:
        experiment: What was asked for.
        data: The clients' data.
        model: The network in its initial state.
        contract: Its names.
        trainer: Where and how the numbers are computed, nothing left open.
        reason: Why this engine.
    """

    experiment: "Experiment"
    data: FederatedData
    model: nn.Module
    contract: ModelSpec
    trainer: TrainerOptions
    reason: str = ""

    def settled(self) -> "PreparedRun":
        """Return the run with its engine chosen.

        Raises:
            ValueError: A term of the objective fails, or the engine that was asked for cannot
                train this exactly.
        """
        participants = len(self.sampler().sample(1))
        workload, phases = self.workload(), self.experiment.phases
        check_objectives(workload, phases)
        trainer, reason = settle(self.trainer, workload, phases, participants)
        return replace(self, trainer=trainer, reason=reason)

    def label_counts_MK(self) -> Tensor:
        """Return the label counts that p_i is made from, int64 ``[M, K]``."""
        parts: tuple[Part, ...] = ("train", "holdout")
        if self.experiment.released_code.test_labels_in_p:
            parts = ("train", "val", "holdout", "test")
        return self.data.label_counts_MK(*parts)

    def workload(self) -> Workload:
        """Return what local training is, with a copy of the model to work on."""
        contexts = [
            ClientContext(p_K, self.contract.head_weight)
            for p_K in label_distribution(self.label_counts_MK())
        ]
        return Workload(
            deepcopy(self.model),
            self.contract,
            contexts,
            self.experiment.client.optimizer,
            self.data,
        )

    def sampler(self) -> UniformSampler:
        """Return what draws the participants of a round."""
        experiment = self.experiment
        return UniformSampler(self.data.num_clients, experiment.participation, experiment.seed)

    def faults(self) -> FaultModel:
        """Return what decides whom a round goes on without."""
        experiment, data = self.experiment, self.data
        phases = [phase for phase, _ in experiment.phases]
        steps_M = [
            sum(len(data.training_loader(i, 1, phase.epochs, phase.plan)) for phase in phases)
            for i in range(data.num_clients)
        ]
        return FaultModel(experiment.faults, experiment.seed, torch.tensor(steps_M))

    def loop(self, callbacks: Sequence[LoopCallback] = ()) -> FederatedLoop:
        """Return the federated loop of the experiment."""
        experiment, data = self.experiment, self.data
        counts_MK = self.label_counts_MK()
        return FederatedLoop(
            make_engine(self.trainer, self.workload()),
            experiment.algorithm.aggregator,
            ServerContext(
                data.label_counts_MK("train").sum(1),
                counts_MK,
                self.contract,
                {n: v.numel() * v.element_size() for n, v in model_state(self.model).items()},
                self.new_initialisation,
            ),
            self.sampler(),
            label_distribution(counts_MK),
            experiment.rounds,
            experiment.phases,
            validation=experiment.val_fraction > 0,
            evaluate_every=experiment.evaluate_every,
            faults=self.faults(),
            callbacks=callbacks,
        )

    def initialisation(self) -> Bank:
        """Return the common initialisation as a bank of M equal rows."""
        return replicate(model_state(self.model), self.data.num_clients)

    def new_initialisation(self, index: int) -> dict[str, Tensor]:
        """Return another random initialisation; see `ServerContext.new_initialisation`."""
        model, _ = self.experiment.initialise(
            self.data.images, f"initialisation/{index}", self.data.dtype
        )
        return model_state(model)

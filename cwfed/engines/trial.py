"""Tries the first steps of local training before a run."""

from copy import deepcopy
from dataclasses import dataclass, fields, replace

from cwfed.clients.epoch import WholeTrainingClient
from cwfed.clients.module import ClientModule
from cwfed.data.federated import FederatedData
from cwfed.data.plans import PlanLoader
from cwfed.engines.base import EngineName, MatmulPrecision, Precision, Workload
from cwfed.engines.sequential import SequentialEngine, model_state
from cwfed.engines.vectorized.exactness import Phases
from cwfed.functional.stacking import replicate
from cwfed.messages.shortage import shortage

_STEPS = 2  # the second is the first with an optimiser's state


def failure_in_first_steps(
    workload: Workload,
    phases: Phases,
    engine: EngineName,
    accelerator: str,
    precision: Precision,
    matmul_precision: MatmulPrecision,
) -> str | None:
    """Return how the largest client's first steps fail, None if they do not.

    The steps are those of the first round, in the workload's memory format, by its optimiser, on a
    copy of the model.

    Args:
        workload: What local training is.
        phases: Phases of local training with their objectives.
        engine: Which engine is to train: sequential or parallel.
        accelerator: Lightning's accelerator.
        precision: Lightning's precision.
        matmul_precision: Precision of float32 products on a GPU.

    Raises:
        MemoryError: There is too little memory, which no other layout would change. What PyTorch
            raises then is a RuntimeError.
    """
    data = workload.data
    work = replace(workload, model=deepcopy(workload.model), data=_few_batches(data))
    client: type[ClientModule] = WholeTrainingClient if engine == "parallel" else ClientModule
    trainer = SequentialEngine(work, accelerator, precision, matmul_precision, client)
    start = replicate(model_state(work.model), 1)
    largest = max(range(data.num_clients), key=lambda i: len(data.indices(i, "train")))
    try:
        for phase, objective in phases:
            trainer.fit(1, [largest], start, start, phase, deepcopy(objective))
    except Exception as error:  # whatever a user's optimiser, model or term raises
        if shortage(error):
            raise
        return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
    return None


@dataclass(frozen=True)
class _FewBatches(FederatedData):
    """Clients that stop early."""

    def training_loader(
        self, client: int, round_: int, epochs: int | None = None, plan: int = 0
    ) -> PlanLoader:
        """See `FederatedData.training_loader`."""
        loader = super().training_loader(client, round_, epochs, plan)
        return replace(loader, plan=loader.plan[:_STEPS])


def _few_batches(data: FederatedData) -> FederatedData:
    return _FewBatches(**{field.name: getattr(data, field.name) for field in fields(data)})

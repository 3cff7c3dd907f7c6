"""Clients on several CPU cores at once, each core with a process of its own.

Legend: m clients of a cohort, K classes, F features.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cwfed.clients.epoch import WholeTrainingClient
from cwfed.clients.phase import TrainingPhase
from cwfed.data.federated import Part
from cwfed.engines.base import Engine, Fitted, Precision, Workload
from cwfed.engines.parallel.workers import Task, WorkerPool
from cwfed.engines.sequential import SequentialEngine, model_state
from cwfed.functional.stacking import Bank, row
from cwfed.objectives.base import Objective

Models = Sequence[Mapping[str, Tensor]]


class ParallelEngine(Engine):
    """Trains different clients in different processes, through Lightning on the CPU.

    Two processes of one thread each beat one process of two threads: batches of ten images are too
    small to share. The processes start with the first task, live as long as the engine, and hold
    one model each. The numbers are those of `SequentialEngine`, to the bit, whatever the number of
    workers, for models and terms that keep no state of their own (see `ObjectiveTerm`).

    Args:
        workload: What local training is.
        precision: Lightning's precision.
        workers: Number of processes.
        threads: CPU threads of each.
    """

    def __init__(
        self,
        workload: Workload,
        precision: Precision = "32-true",
        workers: int = 2,
        threads: int = 1,
    ) -> None:
        self.workload = workload
        self.workers = workers
        self.threads = threads
        self._make = partial(WorkerHandler, workload, precision, threads)
        self._pool: WorkerPool | None = None

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
        trained = {
            name: torch.empty((len(clients), *value.shape[1:]), dtype=value.dtype)
            for name, value in start.items()
        }
        anchored = anchors is not start

        def load(position: int, shared: Models) -> None:
            _copy_row(start, position, shared[0])
            if anchored:
                _copy_row(anchors, position, shared[1])

        def read(position: int, shared: Models) -> None:
            for name, value in shared[0].items():
                trained[name][position] = value

        arguments = (round_, anchored, phase, objective)
        losses = self._map("fit", clients, "train", arguments, load, read)
        return Fitted(trained, losses)

    def evaluate(self, clients: Sequence[int], models: Bank, part: Part) -> Tensor:
        """See `Engine.evaluate`."""
        rows = self._map("evaluate", clients, part, (part,), partial(_load, models))
        return torch.tensor(rows, dtype=torch.float64).reshape(len(clients), 3)

    def class_means(self, clients: Sequence[int], models: Bank) -> tuple[Tensor, Tensor]:
        """See `Engine.class_means`."""
        answers = self._map("class_means", clients, "train", (), partial(_load, models))
        means, counts = zip(*answers, strict=True)
        return torch.from_numpy(np.stack(means)), torch.from_numpy(np.stack(counts))

    def close(self) -> None:
        """End the processes; the next task starts new ones."""
        if self._pool:
            self._pool.close()
            self._pool = None

    def __del__(self) -> None:
        """End the processes of an engine that nobody closed."""
        if getattr(self, "_pool", None):
            self.close()

    def _map(
        self,
        call: str,
        clients: Sequence[int],
        part: Part,
        arguments: tuple[Any, ...],
        load: Callable[[int, Models], None],
        read: Callable[[int, Models], None] = lambda position, shared: None,
    ) -> list[Any]:
        """Have workers carry out one call for each client; return the replies in order.

        Args:
            call: Method of `WorkerHandler`.
            clients: Ids.
            part: The part of the data whose size is the cost.
            arguments: What the method is given after the client.
            load: Copies what the client at a position needs into a worker's shared models.
            read: Copies out of them what the client at a position left there.
        """
        replies: list[Any] = [None] * len(clients)

        def store(position: int, reply: Any, shared: Models) -> None:
            replies[position] = reply
            read(position, shared)

        tasks = [
            Task(
                client,
                len(self.workload.data.indices(client, part)),
                call,
                (client, *arguments),
                partial(load, position),
                partial(store, position),
            )
            for position, client in enumerate(clients)
        ]
        try:
            if self._pool is None:
                like = model_state(self.workload.model)
                self._pool = WorkerPool(self._make, self.workers, like, self.threads, models=2)
            self._pool.run(tasks)
        except BaseException:
            # What is still in the pipes belongs to nobody.
            self.close()
            raise
        return replies


class WorkerHandler:
    """Serves a worker's tasks: the sequential engine on the one client whose model it holds.

    Args:
        workload: What is trained.
        precision: Lightning's precision.
        threads: CPU threads of the worker.
    """

    def __init__(self, workload: Workload, precision: Precision, threads: int) -> None:
        torch.set_num_threads(threads)
        self.engine = SequentialEngine(workload, "cpu", precision, client=WholeTrainingClient)

    def fit(
        self,
        shared: Models,
        client: int,
        round_: int,
        anchored: bool,
        phase: TrainingPhase,
        objective: Objective,
    ) -> float:
        """Train the client in place, in the shared model; return its mean loss."""
        start = _bank(shared[0])
        anchors = _bank(shared[1]) if anchored else start
        fitted = self.engine.fit(round_, [client], start, anchors, phase, objective)
        for name, value in fitted.models.items():
            shared[0][name].copy_(value[0])
        return fitted.losses[0]

    def evaluate(self, shared: Models, client: int, part: Part) -> list[float]:
        """Return correct predictions, samples and summed loss of the client."""
        scores: list[float] = self.engine.evaluate([client], _bank(shared[0]), part)[0].tolist()
        return scores

    def class_means(self, shared: Models, client: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the means of features by class, ``[K, F]``, and the counts, ``[K]``."""
        means, counts = self.engine.class_means([client], _bank(shared[0]))
        return means[0].numpy(), counts[0].numpy()


def _bank(model: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Show the client's model as a cohort of one."""
    return {name: value[None] for name, value in model.items()}


def _copy_row(bank: Bank, position: int, target: Mapping[str, Tensor]) -> None:
    for name, value in row(bank, position).items():
        target[name].copy_(value)


def _load(bank: Bank, position: int, shared: Models) -> None:
    _copy_row(bank, position, shared[0])

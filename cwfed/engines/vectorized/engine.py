"""All clients of a cohort stacked into one training step.

Legend: M clients of the run, m clients of a cohort, K classes.
"""

import logging
from collections.abc import Callable, Sequence
from functools import cached_property

import torch
from torch import Tensor

from cwfed.clients.phase import TrainingPhase
from cwfed.data.federated import Part
from cwfed.engines import precision as precisions
from cwfed.engines.base import (
    MEMORY_FORMATS,
    Engine,
    Fitted,
    Kernel,
    MatmulPrecision,
    Precision,
    Workload,
)
from cwfed.engines.sequential import calling, make_trainer, model_state
from cwfed.engines.vectorized.capture import Capture, CudaGraphs, Replay
from cwfed.engines.vectorized.cohort import Chunk, ChunkLoader, CohortModule, make_chunks, schedule
from cwfed.engines.vectorized.kernels import LocalLoss, make_kernel
from cwfed.engines.vectorized.memory import find_chunk, free_memory
from cwfed.engines.vectorized.program import Eager, Program, Runner, train_chunk
from cwfed.engines.vectorized.resident import ResidentData
from cwfed.engines.vectorized.scoring import Scorer
from cwfed.engines.vectorized.stack import Stack
from cwfed.engines.vectorized.stacked_optimizer import zeroed_is_fresh
from cwfed.functional.stacking import Bank
from cwfed.objectives.base import Objective

log = logging.getLogger("cwfed")


class VectorizedEngine(Engine):
    """Trains stacked clients through a single reused Lightning Trainer.

    The numbers are those of the sequential engine up to the order of sums, where
    `cwfed.engines.vectorized.exactness.reason_against` finds nothing against it.

    Args:
        workload: What local training is.
        accelerator: Lightning's accelerator.
        precision: Lightning's precision. The banks of models stay in full precision.
        matmul_precision: Precision of float32 products on a GPU.
        kernel: How the gradients of stacked clients are computed. Only ``streams`` follows the
            workload's memory format in training.
        chunk: Most clients of a stack; None takes what the memory holds, found when first needed.

    Raises:
        ValueError: Lightning does not know or cannot use the accelerator.
    """

    def __init__(
        self,
        workload: Workload,
        accelerator: str = "auto",
        precision: Precision = "32-true",
        matmul_precision: MatmulPrecision = "highest",
        kernel: Kernel = "grouped",
        chunk: int | None = None,
    ) -> None:
        self.workload = workload
        self.trainer = make_trainer(accelerator, precision)
        self.device = self.trainer.strategy.root_device
        self.matmul_precision: MatmulPrecision = matmul_precision
        self.kernel: Kernel = kernel
        self.chunk = chunk
        self.gradients = make_kernel(kernel, self.device)
        self.capture: Capture | None = CudaGraphs() if self.device.type == "cuda" else None
        self.module = CohortModule(workload.model)
        self.p_MK = torch.stack([context.p_K for context in workload.contexts])
        self._runners: dict[tuple[object, ...], Runner] = {}

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
        data = self.workload.data
        plans = [data.training_loader(i, round_, phase.epochs, phase.plan).plan for i in clients]
        trained = {n: v.clone(memory_format=torch.contiguous_format) for n, v in start.items()}
        losses = torch.full((len(clients),), torch.nan, dtype=torch.float64)

        def train(chunk: Chunk) -> None:
            runner = self.prepare(chunk, phase, objective)
            self.load(runner, chunk, clients, start, anchors)
            train_chunk(runner, chunk)
            size, positions = len(chunk.positions), torch.tensor(chunk.positions)
            for name, value in self._stack.results.items():
                trained[name][positions] = value[:size].cpu()
            sums = self._stack.loss_results_C[:size].cpu()
            losses[positions] = sums / torch.tensor(chunk.steps)

        if any(plans):
            self.run(train, make_chunks(plans, self.find_chunk(phase, objective)))
        return Fitted(trained, losses.tolist())

    def evaluate(self, clients: Sequence[int], models: Bank, part: Part) -> Tensor:
        """See `Engine.evaluate`."""
        with (
            precisions.matmul_precision(self.matmul_precision),
            self.trainer.precision_plugin.forward_context(),
        ):
            return self._scorer.scores(clients, models, part)

    def class_means(self, clients: Sequence[int], models: Bank) -> tuple[Tensor, Tensor]:
        """See `Engine.class_means`."""
        with precisions.matmul_precision(self.matmul_precision):
            return self._scorer.class_means(clients, models)

    def close(self) -> None:
        """See `Engine.close`."""
        self._runners.clear()
        if self.capture:
            self.capture.forget()
        for name in ("_stack", "_data", "_scorer"):
            self.__dict__.pop(name, None)
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    @property
    def captured(self) -> int:
        """Return how many steps have been captured and are at hand."""
        runners = self._runners.values()
        return sum(len(runner.replays) for runner in runners if isinstance(runner, Replay))

    def find_chunk(self, phase: TrainingPhase, objective: Objective) -> int:
        """Return the number of clients to stack; found out and kept if it was left open."""
        if self.chunk is None:
            names = self.workload.contract.parameters
            batch_size = self.workload.data.batch_size

            def make(size: int) -> Program:
                return self._program(self._new_stack(size), names, objective, (1, size, batch_size))

            with precisions.matmul_precision(self.matmul_precision):
                self.chunk = find_chunk(make, len(self.p_MK), free_memory(self.device))
        return self.chunk

    def run(self, train: Callable[[Chunk], None], chunks: Sequence[Chunk]) -> None:
        """Let Lightning hand the chunks one by one to a function."""
        self.module.train_chunk = train
        self.trainer.fit_loop.max_epochs = self.trainer.current_epoch + 1
        with precisions.matmul_precision(self.matmul_precision), calling(self.trainer):
            self.trainer.fit(self.module, train_dataloaders=ChunkLoader(chunks))

    def prepare(self, chunk: Chunk, phase: TrainingPhase, objective: Objective) -> Runner:
        """Return what carries out a chunk's steps, ready for the clients to be loaded."""
        runner = self._runner(phase, objective, chunk.batch_size)
        try:
            runner.prepare([part.width for part in schedule(chunk.steps, runner.widths)])
        except Exception as error:  # a capture fails in many ways
            if not isinstance(runner, Replay):
                raise
            self._give_up_capture(f"{type(error).__name__}: {error}")
            return self.prepare(chunk, phase, objective)
        return runner

    def load(
        self, runner: Runner, chunk: Chunk, clients: Sequence[int], start: Bank, anchors: Bank
    ) -> None:
        """Copy a chunk's clients and plan to where the runner works.

        Args:
            runner: From `prepare`.
            chunk: The chunk.
            clients: Ids of the cohort.
            start: Their models, ``[m, ...]`` by name.
            anchors: What proximal terms pull towards, ``[m, ...]`` by name.
        """
        ids = [clients[position] for position in chunk.positions]
        self._stack.load(chunk.positions, start, anchors, self.p_MK[ids])
        runner.program.load_plan(chunk)

    def _give_up_capture(self, reason: str) -> None:
        log.warning("training steps are not captured, which makes them slower: %s", reason)
        self.capture = None
        self._runners.clear()
        # A step that failed half-way leaves copies of weights there.
        torch.clear_autocast_cache()

    def _runner(self, phase: TrainingPhase, objective: Objective, batch_size: int) -> Runner:
        data = self.workload.data
        names = phase.names(self.workload.contract)
        epochs = phase.epochs or data.local_epochs
        key = (names, id(objective), epochs, batch_size)
        if key not in self._runners:
            sizes = [len(data.indices(i, "train")) for i in range(data.num_clients)]
            alike = [size for size in sizes if min(size, data.batch_size) == batch_size]
            rows = min(len(alike), self._stack.size)
            shape = (epochs * (max(alike) // batch_size), rows, batch_size)
            program = self._program(self._stack, names, objective, shape)
            self._runners[key] = self._new_runner(program)
        return self._runners[key]

    def _new_runner(self, program: Program) -> Runner:
        if self.capture and not zeroed_is_fresh(self.workload.optimizer):
            self._give_up_capture("the optimiser cannot be reset in place")
        return Replay(program, self.capture) if self.capture else Eager(program)

    def _program(
        self,
        stack: Stack,
        names: Sequence[str],
        objective: Objective,
        shape: tuple[int, int, int],
    ) -> Program:
        workload = self.workload
        loss = LocalLoss(workload.model, workload.contract, objective, self._memory_format)
        return Program(stack, self._data, loss, self.gradients, workload.optimizer, names, shape)

    def _new_stack(self, size: int) -> Stack:
        model, contract = self.workload.model, self.workload.contract
        return Stack(
            model_state(model),
            [name for name, _ in model.named_parameters()],
            contract,
            self.workload.data.images.num_classes,
            size,
            self.device,
            self._memory_format,
        )

    @property
    def _memory_format(self) -> torch.memory_format:
        wanted = self.workload.memory_format if self.kernel == "streams" else "contiguous"
        return MEMORY_FORMATS[wanted]

    @cached_property
    def _stack(self) -> Stack:
        assert self.chunk is not None
        return self._new_stack(min(self.chunk, len(self.p_MK)))

    @cached_property
    def _data(self) -> ResidentData:
        return ResidentData(self.workload.data, self.device)

    @cached_property
    def _scorer(self) -> Scorer:
        return Scorer(self.workload, self._data, self.device)

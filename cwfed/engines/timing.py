"""How long stacked training steps take, kernel by kernel."""

import logging
from collections.abc import Callable
from time import perf_counter
from typing import get_args

import torch

from cwfed.clients.phase import TrainingPhase
from cwfed.engines.base import Kernel, MatmulPrecision, Precision, Workload
from cwfed.engines.cohort import Chunk, make_chunks
from cwfed.engines.exactness import Phases, reason_against
from cwfed.engines.sequential import model_state
from cwfed.engines.vectorized import VectorizedEngine
from cwfed.functional.stacking import replicate
from cwfed.objectives.base import Objective

log = logging.getLogger("cwfed")


def step_seconds(
    engine: VectorizedEngine, phase: TrainingPhase, objective: Objective, steps: int = 5
) -> float:
    """Return the time of one step of the first chunk of all clients, after as many untimed ones.

    Args:
        engine: How it is done.
        phase: What is trained.
        objective: With which objective.
        steps: Most steps to time.
    """
    data, seconds = engine.workload.data, []
    clients = range(data.num_clients)
    bank = replicate(model_state(engine.workload.model), data.num_clients)

    def train(chunk: Chunk) -> None:
        runner = engine.prepare(chunk, phase, objective)
        engine.load(runner, chunk, clients, bank, bank)
        width, count = runner.widths(len(chunk.positions)), min(steps, chunk.steps[0])

        def run() -> None:
            runner.program.stack.step.zero_()
            for _ in range(count):
                runner.step(width)

        run()
        seconds.append(_seconds(run, engine.device) / count)

    plans = [data.training_loader(i, 1, phase.epochs, phase.plan).plan for i in clients]
    engine.run(train, make_chunks(plans, engine.find_chunk(phase, objective))[:1])
    return seconds[0]


def choose_kernel(
    workload: Workload,
    phases: Phases,
    accelerator: str = "auto",
    precision: Precision = "32-true",
    matmul_precision: MatmulPrecision = "highest",
    chunk: int | None = None,
) -> tuple[Kernel, dict[Kernel, float]]:
    """Return the kernel with the shortest steps, and the seconds of a step of each phase by kernel.

    Arguments as for `VectorizedEngine` and `reason_against`.

    Raises:
        ValueError: None can be used.
    """
    seconds: dict[Kernel, float] = {}
    reasons: dict[Kernel, str] = {}
    for kernel in get_args(Kernel):
        engine = VectorizedEngine(workload, accelerator, precision, matmul_precision, kernel, chunk)
        reason = reason_against(workload, phases, precision, kernel, engine.device)
        try:
            if reason:
                raise ValueError(reason)
            seconds[kernel] = sum(step_seconds(engine, *phase) for phase in phases)
        except Exception as error:  # whatever a kernel lacks on a device, another may have
            reasons[kernel] = str(error)
            log.info("kernel %s is left out: %s", kernel, error)
        finally:
            engine.close()
    if not seconds:
        raise ValueError(f"trainer.kernel: expected one that can be used, got {reasons}")
    return min(seconds, key=lambda kernel: seconds[kernel]), seconds


def _seconds(run: Callable[[], None], device: torch.device) -> float:
    def now() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return perf_counter()

    start = now()
    run()
    return now() - start

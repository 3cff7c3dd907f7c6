"""Times stacked training steps, kernel by kernel."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from time import perf_counter

import torch

from cwfed.clients.phase import TrainingPhase
from cwfed.engines.base import Kernel, MatmulPrecision, MemoryFormat, Precision, Workload
from cwfed.engines.sequential import model_state
from cwfed.engines.vectorized.cohort import Chunk, make_chunks
from cwfed.engines.vectorized.engine import VectorizedEngine
from cwfed.engines.vectorized.exactness import Phases, reason_against
from cwfed.functional.stacking import replicate
from cwfed.objectives.base import Objective

log = logging.getLogger("cwfed")

Variant = tuple[Kernel, MemoryFormat]
VARIANTS: tuple[Variant, ...] = (
    ("grouped", "contiguous"),
    ("unfold", "contiguous"),
    ("streams", "contiguous"),
    ("streams", "channels_last"),
)
"""Kernels in the layouts that make a difference to them."""


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
    variants: Sequence[Variant] = VARIANTS,
) -> tuple[Variant, dict[Variant, float]]:
    """Return the variant with the shortest steps, and what each variant's steps take.

    Arguments as for `VectorizedEngine` and `reason_against`; `variants` are what is tried.

    Raises:
        ValueError: None can be used.
    """
    seconds: dict[Variant, float] = {}
    reasons: list[str] = []
    for kernel, memory_format in variants:
        work = replace(workload, memory_format=memory_format)
        engine = VectorizedEngine(work, accelerator, precision, matmul_precision, kernel, chunk)
        reason = reason_against(work, phases, precision, kernel, engine.device)
        try:
            if reason:
                raise ValueError(reason)
            seconds[kernel, memory_format] = sum(step_seconds(engine, *phase) for phase in phases)
        except Exception as error:  # whatever a kernel lacks on a device, another may have
            reasons.append(f"{kernel}, {memory_format}: {error}")
            log.info("left out: %s", reasons[-1])
        finally:
            engine.close()
    if not seconds:
        raise ValueError(f"trainer.kernel: none can be used: {'; '.join(reasons)}")
    return min(seconds, key=lambda variant: seconds[variant]), seconds


def _seconds(run: Callable[[], None], device: torch.device) -> float:
    def now() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return perf_counter()

    start = now()
    run()
    return now() - start

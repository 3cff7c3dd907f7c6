"""Selects the engine of a run where the options leave it open, and says why."""

import logging
import os
import pickle
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

import torch

from cwfed.engines.base import (
    Engine,
    EngineFactory,
    EngineName,
    Kernel,
    Workload,
)
from cwfed.engines.layout import settle_layout
from cwfed.engines.options import TrainerOptions
from cwfed.engines.own import arguments_of, engine_name, make_own
from cwfed.engines.parallel.engine import ParallelEngine
from cwfed.engines.parallel.workers import start_method
from cwfed.engines.sequential import SequentialEngine, resolve_accelerator
from cwfed.engines.vectorized.engine import VectorizedEngine
from cwfed.engines.vectorized.exactness import Phases, reason_against
from cwfed.engines.vectorized.timing import VARIANTS, Variant, choose_kernel
from cwfed.messages.shortage import shortage

BUILT_IN: dict[EngineName, type[Engine]] = {
    "sequential": SequentialEngine,
    "parallel": ParallelEngine,
    "vectorized": VectorizedEngine,
}

log = logging.getLogger("cwfed")

_CPU_EVALUATION_BATCH = 100  # activations of the CNN stay in a core's cache
_GPU_EVALUATION_BATCH = 1000


def settle_device(options: TrainerOptions) -> TrainerOptions:
    """Decide what depends on the device alone: accelerator and size of evaluation batches.

    Raises:
        ValueError: This machine does not have the accelerator, or it lacks the precision.
    """
    device = resolve_accelerator(options.accelerator)
    if device == "cpu" and options.precision == "16-mixed":
        raise ValueError(
            "trainer.precision: expected 32-true, 64-true or bf16-mixed on a CPU, got 16-mixed"
        )
    batch = _CPU_EVALUATION_BATCH if device == "cpu" else _GPU_EVALUATION_BATCH
    return replace(options, accelerator=device, eval_batch_size=options.eval_batch_size or batch)


def settle(
    options: TrainerOptions, workload: Workload, phases: Phases, participants: int
) -> tuple[TrainerOptions, str]:
    """Decide what depends on the model and the clients.

    Args:
        options: From `settle_device`. What is settled already stays as it is.
        workload: What is trained.
        phases: The phases of local training and their objectives.
        participants: Clients of a round.

    Returns:
        Options without anything open that the engine reads, and the reason for the engine.

    Raises:
        ValueError: The engine that was asked for cannot train this exactly, or local training
            fails in its first steps.
    """
    options = _no_idle_workers(options, workload.data.num_clients)
    engine, reason = _engine(options, workload, phases, participants)
    options = _without_unread(replace(options, engine=engine))
    if engine == "vectorized":
        return _settle_vectorized(options, workload, phases, participants), reason
    if "workers" in _read(engine):
        options = replace(options, workers=options.workers or _workers(options, participants))
    return replace(options, memory_format=settle_layout(options, workload, phases)), reason


def make_engine(options: TrainerOptions, workload: Workload) -> Engine:
    """Return the engine that settled options name.

    Raises:
        ValueError: An engine of another module refuses its arguments, or is none.
    """
    assert options.memory_format != "auto"
    workload = replace(workload, memory_format=options.memory_format)
    if not isinstance(options.engine, str):
        return make_own(options.engine, workload, _settled(options))
    if options.engine == "parallel":
        return ParallelEngine(workload, options.precision, options.workers or 1, options.threads)
    if options.engine == "vectorized":
        return _vectorized(options, workload)
    return SequentialEngine(
        workload, options.accelerator, options.precision, options.matmul_precision
    )


def describe_engine(options: TrainerOptions) -> str:
    """Return settled options in a few words."""
    parts = [f"engine {engine_name(options.engine)} on {options.accelerator}"]
    if options.engine == "parallel":
        parts.append(f"{options.workers} workers")
    elif options.engine == "vectorized":
        parts.append(f"{options.chunk} clients at once, convolutions {options.kernel}")
    parts.append(f"{options.threads} thread{'s' * (options.threads > 1)}")
    return ", ".join(parts)


def cores() -> int:
    """Return the number of CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _engine(
    options: TrainerOptions, workload: Workload, phases: Phases, participants: int
) -> tuple[EngineName | EngineFactory, str]:
    if options.engine != "auto":
        if options.engine == "parallel":
            _refuse_parallel(options, workload, phases)
        return options.engine, "as configured"
    if options.accelerator != "cpu":
        reason = _cannot_stack(options, workload, phases, "streams")
        return ("sequential", reason) if reason else ("vectorized", "all clients on one GPU")
    workers = options.workers or _workers(options, participants)
    if workers < 2:
        return "sequential", f"no GPU, {cores()} cores, {participants} clients a round"
    obstacle = _cannot_send(options, workload, phases)
    if obstacle:
        return "sequential", obstacle
    return "parallel", f"no GPU, {cores()} cores"


def _without_unread(options: TrainerOptions) -> TrainerOptions:
    """Open again what the engine does not read, and say so."""
    read = _read(options.engine)
    nothing = TrainerOptions()
    unread = {
        name: getattr(nothing, name)
        for name in {"workers", "chunk", "kernel"} - read
        if getattr(options, name) != getattr(nothing, name)
    }
    for name in sorted(unread):
        log.warning("trainer.%s: not used by the %s engine", name, engine_name(options.engine))
    return replace(options, **unread)


def _read(engine: str | EngineFactory) -> set[str]:
    """Return which of the options that not every engine reads this one does."""
    if not isinstance(engine, str):
        return arguments_of(engine) & {"workers", "chunk", "kernel"}
    return {"parallel": {"workers"}, "vectorized": {"chunk", "kernel"}}.get(engine, set())


def _settled(options: TrainerOptions) -> dict[str, Any]:
    """Return what an engine of another module may ask for; what is open it knows best itself."""
    names = ("accelerator", "precision", "matmul_precision", "workers", "threads", "chunk")
    settled = {name: getattr(options, name) for name in names}
    return settled if options.kernel == "auto" else {**settled, "kernel": options.kernel}


def _settle_vectorized(
    options: TrainerOptions, workload: Workload, phases: Phases, participants: int
) -> TrainerOptions:
    """Decide on kernel, memory format and chunk; a GPU is timed, a CPU goes by rule."""
    variants = [
        (kernel, memory_format)
        for kernel, memory_format in VARIANTS
        if options.kernel in ("auto", kernel) and options.memory_format in ("auto", memory_format)
    ]
    if not variants:
        raise ValueError(
            f"trainer.memory_format: expected contiguous with kernel {options.kernel}, got "
            f"{options.memory_format}"
        )
    variants = _usable(options, workload, phases, variants)
    kernel, memory_format = variants[0]
    if options.accelerator == "cuda" and len(variants) > 1:
        (kernel, memory_format), _ = choose_kernel(
            workload,
            phases,
            options.accelerator,
            options.precision,
            options.matmul_precision,
            options.chunk,
            variants,
        )
    options = replace(options, kernel=kernel, memory_format=memory_format)
    engine = _vectorized(options, replace(workload, memory_format=memory_format))
    chunk = min(engine.find_chunk(*phases[0]), participants)
    engine.close()
    return replace(options, chunk=chunk)


def _usable(
    options: TrainerOptions, workload: Workload, phases: Phases, variants: Sequence[Variant]
) -> list[Variant]:
    """Return the variants that train exactly.

    Raises:
        ValueError: There is none.
    """
    reasons = {
        kernel: _cannot_stack(options, workload, phases, kernel) for kernel in dict(variants)
    }
    usable = [variant for variant in variants if not reasons[variant[0]]]
    if not usable:
        raise ValueError(
            f"trainer.engine: vectorized cannot be used: {next(iter(reasons.values()))}"
        )
    return usable


def _cannot_stack(
    options: TrainerOptions, workload: Workload, phases: Phases, kernel: Kernel
) -> str | None:
    """Return why stacked clients would not train as each one alone, or None."""
    work = replace(workload, model=deepcopy(workload.model))
    return reason_against(
        work, phases, options.precision, kernel, torch.device(options.accelerator)
    )


def _vectorized(options: TrainerOptions, workload: Workload) -> VectorizedEngine:
    assert options.kernel != "auto"
    return VectorizedEngine(
        workload,
        options.accelerator,
        options.precision,
        options.matmul_precision,
        options.kernel,
        options.chunk,
    )


def _no_idle_workers(options: TrainerOptions, num_clients: int) -> TrainerOptions:
    """Take no more workers than there are clients: each costs memory, and has one at a time."""
    if options.workers is None or options.workers <= num_clients:
        return options
    log.warning(
        "trainer.workers: %d, one for each client, instead of %d", num_clients, options.workers
    )
    return replace(options, workers=num_clients)


def _workers(options: TrainerOptions, participants: int) -> int:
    return max(1, min(cores() // options.threads, participants))


def _refuse_parallel(options: TrainerOptions, workload: Workload, phases: Phases) -> None:
    if options.accelerator != "cpu":
        raise ValueError(
            f"trainer.engine: expected auto, sequential or vectorized on {options.accelerator}, "
            f"got parallel, which is for CPU cores"
        )
    obstacle = _cannot_send(options, workload, phases)
    if obstacle:
        raise ValueError(f"trainer.engine: parallel cannot be used: {obstacle}")


def _cannot_send(options: TrainerOptions, workload: Workload, phases: Phases) -> str | None:
    """Return why another process could not train, or None."""
    sent: list[tuple[str, object]] = [("a term of the objective", list(phases))]
    if start_method(options.threads) == "spawn":
        sent += [("the model", workload.model), ("the optimiser", workload.optimizer)]
    for what, value in sent:
        try:
            pickle.dumps(value)
        except Exception as error:  # whatever a user's class raises
            if shortage(error):
                raise
            return f"{what} cannot be sent to another process ({error})"
    return None

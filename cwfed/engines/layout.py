"""Settles the layout of convolutions in memory where the options leave it open."""

import logging
from copy import deepcopy
from dataclasses import replace

import torch
from torch import nn

from cwfed.engines.base import MEMORY_FORMATS, MemoryFormat, Workload
from cwfed.engines.options import TrainerOptions
from cwfed.engines.sequential import seeded
from cwfed.engines.trial import failure_in_first_steps
from cwfed.engines.vectorized.exactness import Phases
from cwfed.functional.seeding import derive_seed
from cwfed.messages.shortage import shortage

log = logging.getLogger("cwfed")


def settle_layout(options: TrainerOptions, workload: Workload, phases: Phases) -> MemoryFormat:
    """Decide on the memory format, and try local training in it.

    Raises:
        ValueError: Its first steps fail.
    """
    chosen = options.memory_format
    if chosen == "auto":
        chosen = _memory_format(options, workload)
    failure = _failure(options, workload, phases, chosen)
    if failure is None:
        return chosen
    if chosen == "contiguous" or _failure(options, workload, phases, "contiguous"):
        raise ValueError(f"client: local training fails in its first steps: {failure}")
    why = f"since local training fails in {chosen}: {failure}"
    if options.memory_format == chosen:
        raise ValueError(f"trainer.memory_format: expected contiguous, {why}; got {chosen}")
    log.warning("trainer.memory_format: contiguous, %s", why)
    return "contiguous"


def _failure(
    options: TrainerOptions, workload: Workload, phases: Phases, memory_format: MemoryFormat
) -> str | None:
    return failure_in_first_steps(
        replace(workload, memory_format=memory_format),
        phases,
        "parallel" if options.engine == "parallel" else "sequential",
        options.accelerator,
        options.precision,
        options.matmul_precision,
    )


def _memory_format(options: TrainerOptions, workload: Workload) -> MemoryFormat:
    """Take channels_last for float32 convolutions on a CPU: by rule, so that runs repeat."""
    has_convolutions = any(isinstance(m, nn.Conv2d) for m in workload.model.modules())
    wins = options.accelerator == "cpu" and options.precision != "64-true" and has_convolutions
    wins = wins and len(workload.data.images.input_shape) == 3
    return "channels_last" if wins and _allows_channels_last(workload) else "contiguous"


def _allows_channels_last(workload: Workload) -> bool:
    """Try a copy of the model in both formats, in training and in evaluation."""
    seed = derive_seed(workload.data.seed, "memory format")
    shape = workload.data.images.input_shape
    logits: list[torch.Tensor] = []
    for memory_format in MEMORY_FORMATS.values():
        with seeded(seed):
            images = torch.randn(2, *shape, dtype=workload.data.dtype)
            images = images.contiguous(memory_format=memory_format)
            model = deepcopy(workload.model).train().to(memory_format=memory_format)
            try:
                output = model(images)
                output.sum().backward()
                scored = model.eval()(images)
            except Exception as error:  # such as a view of what is not contiguous
                if shortage(error):
                    raise
                return False
            logits.append(torch.cat([output, scored]).detach())
    plain, channels_last = logits
    return torch.allclose(plain, channels_last, rtol=1e-3, atol=1e-3)

"""Options of engines, as they stand in a run's configuration under ``trainer``."""

from dataclasses import dataclass
from typing import Literal

from cwfed.engines.base import (
    EngineFactory,
    EngineName,
    Kernel,
    MatmulPrecision,
    MemoryFormat,
    Precision,
)
from cwfed.messages.checks import require_at_least

MOST_THREADS = 1024


@dataclass
class TrainerOptions:
    """Place and way of computing the numbers.

    What is left open is settled when a run starts and written to its ``config.yaml``.

    Attributes:
        accelerator: Lightning's accelerator: auto, cpu, cuda or mps.
        precision: Lightning's precision.
        matmul_precision: Precision of float32 products on a GPU: highest, or high and medium,
            which let it use TF32. Aggregation is always exact float32.
        engine: How a round's clients are trained: one Lightning fit after the other (sequential,
            the reference), on several CPU cores at once (parallel), or stacked into one step for
            all of them (vectorized). auto picks by device and model. Or a subclass of
            `cwfed.engines.Engine`, by class_path.
        threads: CPU threads of a process. One by default: the same bits on any number of cores,
            runs side by side do not stall each other, and small batches gain little from more.
        workers: Processes of the parallel engine, never more than clients; null takes one for each
            core.
        chunk: Clients that the vectorized engine stacks at once; null takes what the memory holds.
        kernel: How the vectorized engine computes convolutions: grouped, unfold (matrix products)
            or streams (client by client, on streams). auto times them on a GPU.
        memory_format: Layout of images and convolution weights. auto takes channels_last where
            the model and the optimiser allow it and it is faster.
        eval_batch_size: Samples of an evaluation batch; null takes what suits the device.
    """

    accelerator: str = "auto"
    precision: Precision = "32-true"
    matmul_precision: MatmulPrecision = "highest"
    engine: EngineName | Literal["auto"] | EngineFactory = "auto"
    threads: int = 1
    workers: int | None = None
    chunk: int | None = None
    kernel: Kernel | Literal["auto"] = "auto"
    memory_format: MemoryFormat | Literal["auto"] = "auto"
    eval_batch_size: int | None = None

    def __post_init__(self) -> None:
        """Check ranges."""
        for name, most in (("threads", MOST_THREADS), ("workers", MOST_THREADS)):
            value = getattr(self, name)
            if value is None:
                continue
            require_at_least(f"trainer.{name}", value, 1)
            if value > most:
                raise ValueError(f"trainer.{name}: expected at most {most}, got {value}")
        for name in ("chunk", "eval_batch_size"):
            if getattr(self, name) is not None:
                require_at_least(f"trainer.{name}", getattr(self, name), 1)

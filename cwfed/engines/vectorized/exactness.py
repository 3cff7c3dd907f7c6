"""Measures whether stacked clients train as each one would alone.

Legend: B samples of a batch.
"""

import random
from collections.abc import Sequence
from copy import deepcopy

import numpy as np
import torch
from torch import Tensor

from cwfed.clients.phase import TrainingPhase
from cwfed.engines.base import Kernel, Precision, Workload
from cwfed.engines.precision import matmul_precision
from cwfed.engines.sequential import model_state, seeded
from cwfed.engines.vectorized.kernels import ByClient, LocalLoss, Stacked
from cwfed.engines.vectorized.stack import Rows, Stack
from cwfed.engines.vectorized.stacked_optimizer import reason_against_stacking
from cwfed.functional.stacking import replicate
from cwfed.objectives.base import Objective

# Of the largest entry. Rounding is far below, another computation far above.
_TOLERANCE = 1e-3

Phases = Sequence[tuple[TrainingPhase, Objective]]


def reason_against(
    workload: Workload,
    phases: Phases,
    precision: Precision,
    kernel: Kernel = "grouped",
    device: torch.device | None = None,
) -> str | None:
    """Return why the vectorized engine would not give the numbers of the sequential one.

    Some steps of the optimiser, and the gradients of two clients of the run for each phase, are
    compared with what each client gets alone.

    Args:
        workload: What local training is.
        phases: Phases of local training with their objectives.
        precision: Lightning's precision.
        kernel: How the gradients of stacked clients are computed.
        device: Where to try; the CPU by default.

    Returns:
        The reason as half a sentence, or None: the engine can be used.
    """
    device = device or torch.device("cpu")
    if precision == "16-mixed":
        return "16-mixed scales each client's loss by what that client has seen"
    if device.type == "mps":
        return "stacked losses are added up in float64, which mps does not have"
    reason = reason_against_stacking(workload.optimizer)
    batch = _batch(workload, device)
    if reason or batch is None:
        return reason
    # TF32 would blur the comparison, whatever the run itself is going to use.
    with matmul_precision("highest"):
        reasons = (_reason_against(workload, *phase, kernel, device, batch) for phase in phases)
        return next((reason for reason in reasons if reason), None)


def _reason_against(
    workload: Workload,
    phase: TrainingPhase,
    objective: Objective,
    kernel: Kernel,
    device: torch.device,
    batch: tuple[Tensor, Tensor],
) -> str | None:
    loss = LocalLoss(workload.model, workload.contract, objective)
    alone = _two_clients(workload, phase.names(workload.contract), device)
    with seeded(0):
        before = _generators(device)
        expected = ByClient(0)(loss, alone, *batch)
        if before != _generators(device):
            return "the model or a term of its objective draws random numbers in training"
    if kernel == "streams":
        return None
    together = _two_clients(workload, phase.names(workload.contract), device)
    try:
        found = Stacked(unfold=kernel == "unfold")(loss, together, *batch)
    except Exception as error:  # models fail under vmap in many ways
        reason = str(error).strip().split("\n")[0]
        return f"the model or a term of its objective cannot be stacked ({reason})"
    same = _same([*expected[1].values(), expected[0]], [*found[1].values(), found[0]])
    if same and _same(list(alone.buffers.values()), list(together.buffers.values())):
        return None
    return "the model or a term of its objective gives other numbers when it is stacked"


def _batch(workload: Workload, device: torch.device) -> tuple[Tensor, Tensor] | None:
    """Return images ``[2, B, C, H, W]`` and labels ``[2, B]`` of the largest client."""
    data = workload.data
    index = max((data.indices(i, "train") for i in range(data.num_clients)), key=len)
    size = min(len(index), data.batch_size)
    if not size:
        return None
    pair = torch.stack([index[:size], index[-size:]])
    images = data.images.served(data.images.images_NCHW[pair], data.dtype)
    return images.to(device), data.images.labels_N[pair].to(device)


def _two_clients(workload: Workload, trainable: Sequence[str], device: torch.device) -> Rows:
    """Return the model twice, the second time with larger weights."""
    state = model_state(workload.model)
    named = [name for name, _ in workload.model.named_parameters()]
    p_2K = torch.stack([workload.contexts[client].p_K for client in (0, -1)])
    stack = Stack(state, named, workload.contract, p_2K.shape[1], 2, device)
    bank = replicate(state, 2)
    stack.load([0, 1], bank, bank, p_2K)
    for name in workload.contract.parameters:
        stack.values[name][1] *= 1.25
    return stack.rows({name: stack.values[name].requires_grad_() for name in trainable})


def _generators(device: torch.device) -> list[object]:
    """Return the states of the global generators of PyTorch, NumPy and Python."""
    states: list[object] = [torch.get_rng_state().tolist(), random.getstate()]
    states.append(str(np.random.get_state()))
    if device.type == "cuda":
        states.append(torch.cuda.get_rng_state(device).tolist())
    return states


def check_objectives(workload: Workload, phases: Phases) -> None:
    """Try every phase's objective on two clients.

    Raises:
        ValueError: A term fails, or the objective is no scalar that depends on what is trained.
    """
    device = torch.device("cpu")
    batch = _batch(workload, device)
    if batch is None:
        return
    for phase, objective in phases:
        model = deepcopy(workload.model).train()
        loss = LocalLoss(model, workload.contract, deepcopy(objective))
        rows = _two_clients(workload, phase.names(workload.contract), device)
        try:
            with seeded(0):
                ByClient(0)(loss, rows, *batch)
        except Exception as error:  # whatever a user's class raises
            raise ValueError(
                f"algorithm.objectives: a term fails in training: {type(error).__name__}: {error}"
            ) from error


def _same(expected: Sequence[Tensor | None], found: Sequence[Tensor | None]) -> bool:
    for a, b in zip(expected, found, strict=True):
        if a is None or b is None:
            if a is not b:
                return False
            continue
        a, b = a.to(torch.float64), b.to(torch.float64)
        largest = a.abs().nan_to_num(0).max().item()
        if not torch.allclose(b, a, rtol=0, atol=_TOLERANCE * largest + 1e-6, equal_nan=True):
            return False
    return True

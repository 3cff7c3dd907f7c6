"""Whole rounds in which some clients' uploads are lost, in plain PyTorch.

Written from the equations, with nothing of the package: who is lost in a round is skipped in it.
"""

import copy

import torch
from classwise import (
    TwoStepServer,
    class_distribution_from_counts,
    class_distribution_from_heads,
    fedavg,
)
from rounds import local_training


def flat(model, names):
    state = model.state_dict()
    return [value for name in names for value in state[name].flatten().tolist()]


def written(model, names, values):
    """A copy of the model with the named tensors made from a flat list."""
    model = copy.deepcopy(model)
    state, values = model.state_dict(), torch.tensor(values, dtype=torch.float64)
    for name in names:
        size = state[name].numel()
        state[name], values = values[:size].reshape(state[name].shape), values[size:]
    model.load_state_dict(state)
    return model


def rounds_without(initial, batches, counts, uploading, lr, head=(), extra=None, labels=False):
    """Return received models and last uploads after the last round.

    `uploading[r - 1]` lists whose uploads count in round r; `head` names what is averaged by
    class, with label counts where `labels`, else with norms of the first of them.
    """
    clients = range(len(counts))
    n = [sum(row) for row in counts]
    received = [copy.deepcopy(initial) for _ in clients]
    uploads = [copy.deepcopy(initial) for _ in clients]
    tensors = [name for name, value in initial.state_dict().items() if value.is_floating_point()]
    base = [name for name in tensors if name not in head]
    counters = [name for name in initial.state_dict() if name not in tensors]
    server = TwoStepServer(flat(initial, head), len(counts[0]))
    for r, remaining in enumerate(uploading, 1):
        for i in remaining:
            term = extra(i) if extra else None
            uploads[i] = local_training(received[i], batches(i, r), lr, term)
        if not remaining:
            continue
        shared = fedavg([flat(model, base) for model in uploads], n, remaining)
        received = [written(model, base, shared) for model in uploads]
        for name in counters:
            top = max(uploads[i].state_dict()[name].item() for i in remaining)
            for model in received:
                model.state_dict()[name].fill_(top)
        if head:
            heads = [model.state_dict()[head[0]].tolist() for model in uploads]
            p = class_distribution_from_counts(counts) if labels else None
            p = p or class_distribution_from_heads(heads)
            personal = server.round([flat(model, head) for model in uploads], n, p, remaining)
            received = [written(m, head, v) for m, v in zip(received, personal, strict=True)]
    return received, uploads

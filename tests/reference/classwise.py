"""Class-wise averaging as slow loops, written from the equations of arXiv 2406.07800.

Models are flat lists of float64 values; nothing here comes from the package.
"""

import torch


def class_distribution_from_counts(counts):
    return [[n / sum(row) if sum(row) else 0.0 for n in row] for row in counts]


def class_distribution_from_heads(heads):
    """heads[i][j] is row j of client i's output layer, a list of floats."""
    result = []
    for rows in heads:
        norms = [sum(x * x for x in row) ** 0.5 for row in rows]
        total = sum(norms)
        result.append([n / total if total else 1 / len(norms) for n in norms])
    return result


def class_model(j, models, n, p, participants):
    """Step 1 for one class: FedAvg weighted by n_i p_ij; None where nobody holds the class."""
    total = sum(n[i] * p[i][j] for i in participants)
    if total == 0:
        return None
    size = len(models[0])
    return [sum(n[i] * p[i][j] / total * models[i][d] for i in participants) for d in range(size)]


def personal_model(p_i, class_models):
    """Step 2: mix the class models by the client's own class distribution."""
    size = len(next(m for m in class_models if m is not None))
    out = [0.0] * size
    for j, weight in enumerate(p_i):
        if weight:
            for d in range(size):
                out[d] += weight * class_models[j][d]
    return out


class TwoStepServer:
    """Keeps the K class models between rounds, as the two-step form has to."""

    def __init__(self, initial, num_classes):
        self.class_models = [list(initial) for _ in range(num_classes)]

    def round(self, models, n, p, participants):
        for j in range(len(self.class_models)):
            fresh = class_model(j, models, n, p, participants)
            if fresh is not None:
                self.class_models[j] = fresh
        return [personal_model(p_i, self.class_models) for p_i in p]


def fedavg(models, n, participants):
    total = sum(n[i] for i in participants)
    size = len(models[0])
    return [sum(n[i] * models[i][d] for i in participants) / total for d in range(size)]


def as_lists(theta_M):
    return [row.flatten().tolist() for row in theta_M.to(torch.float64)]

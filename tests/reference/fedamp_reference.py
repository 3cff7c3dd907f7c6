"""FedAMP as whole rounds in plain PyTorch.

Written from the equations, with nothing of the package. A problem offers ``initial`` (a model),
``batches(client, round)``, ``clients`` (how many), ``lr`` and ``participants(round)``.
"""

import copy
import math

import torch
from rounds import local_training


def pull(lam, alpha, u):
    """The client's term (λ / 2α) ||w - u||²."""

    def extra(model, images, logits, targets):
        total = 0.0
        for name, w in model.named_parameters():
            total = total + ((w - u[name]) ** 2).sum()
        return lam / (2 * alpha) * total

    return extra


def pull_without_gradient(lam, alpha, u):
    """The same pull in a code base that takes the distance from tensors cut off the graph.

    There it is not squared either; a constant is a constant.
    """

    def extra(model, images, logits, targets):
        w = torch.cat([value.data.reshape(-1) for value in model.parameters()])
        far = torch.cat([u[name].reshape(-1) for name, _ in model.named_parameters()])
        return 0.5 * lam / alpha * torch.linalg.vector_norm(w - far)

    return extra


def parameters(model):
    return {name: w.detach().clone() for name, w in model.named_parameters()}


def squared_distance(a, b):
    return sum(((a[name] - b[name]) ** 2).sum().item() for name in a)


def weights(models, alpha, sigma, uploaded):
    """c_ij as nested lists; 0 on the diagonal and for who has not uploaded."""
    w = [parameters(model) for model in models]
    clients = range(len(w))
    return [
        [
            alpha / sigma * math.exp(-squared_distance(w[i], w[j]) / sigma)
            if i != j and i in uploaded and j in uploaded
            else 0.0
            for j in clients
        ]
        for i in clients
    ]


def mixtures(models, c):
    """u_i by name, for every client."""
    w = [parameters(model) for model in models]
    out = []
    for i in range(len(w)):
        u = {name: value.clone() for name, value in w[i].items()}
        for j in range(len(w)):
            for name in u:
                u[name] += c[i][j] * (w[j][name] - w[i][name])
        out.append(u)
    return out


def fedamp(problem, rounds, lam, alpha, sigma, pull=pull):
    """Return the clients' models, u_i and c_ij after the last round; alpha None is sigma / M."""
    alpha = sigma / problem.clients if alpha is None else alpha
    models = [copy.deepcopy(problem.initial) for _ in range(problem.clients)]
    u = [parameters(model) for model in models]
    uploaded = set()
    for r in range(1, rounds + 1):
        for i in problem.participants(r):
            term = pull(lam, alpha, u[i])
            models[i] = local_training(models[i], problem.batches(i, r), problem.lr, term)
            uploaded.add(i)
        c = weights(models, alpha, sigma, uploaded)
        u = mixtures(models, c)
    return models, u, torch.tensor(c, dtype=torch.float64)

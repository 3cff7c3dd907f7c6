"""FedProx, Ditto, FedPer, FedRep and fine-tuned FedAvg as whole rounds in plain PyTorch.

Written from the equations, with nothing of the package. A problem offers
``initial`` (a model), ``batches(client, round, plan, epochs)``, ``n`` (samples) and ``lr``.
"""

import copy

import torch
from rounds import average, local_training


def proximal(weight, anchor):
    anchor = {name: value.detach().clone() for name, value in anchor.named_parameters()}

    def extra(model, images, logits, targets):
        return (
            weight
            / 2
            * sum(((value - anchor[name]) ** 2).sum() for name, value in model.named_parameters())
        )

    return extra


def fedavg_model(models, n, personal=()):
    """Every client's next model: weighted mean, but for the personal layers."""
    weights = [n_i / sum(n) for n_i in n]
    states = [model.state_dict() for model in models]
    out = []
    for model in models:
        fresh = copy.deepcopy(model)
        state = fresh.state_dict()
        for name in state:
            if not any(name.startswith(prefix) for prefix in personal):
                state[name] = average([s[name] for s in states], weights)
        fresh.load_state_dict(state)
        out.append(fresh)
    return out


def fedprox(problem, rounds, mu):
    received = [copy.deepcopy(problem.initial) for _ in problem.n]
    for r in range(1, rounds + 1):
        uploads = [
            local_training(w, problem.batches(i, r, 0, 1), problem.lr, proximal(mu, w))
            for i, w in enumerate(received)
        ]
        received = fedavg_model(uploads, problem.n)
    return received, uploads


def ditto(problem, rounds, lam):
    received = [copy.deepcopy(problem.initial) for _ in problem.n]
    personal = [copy.deepcopy(problem.initial) for _ in problem.n]
    for r in range(1, rounds + 1):
        uploads, fresh = [], []
        for i, w in enumerate(received):
            uploads.append(local_training(w, problem.batches(i, r, 0, 1), problem.lr))
            batches = problem.batches(i, r, 0, 1)
            fresh.append(local_training(personal[i], batches, problem.lr, proximal(lam, w)))
        personal = fresh
        received = fedavg_model(uploads, problem.n)
    return received, personal


def fedper(problem, rounds, personal):
    received = [copy.deepcopy(problem.initial) for _ in problem.n]
    for r in range(1, rounds + 1):
        uploads = [
            local_training(w, problem.batches(i, r, 0, 1), problem.lr)
            for i, w in enumerate(received)
        ]
        received = fedavg_model(uploads, problem.n, personal)
    return received, uploads


def fedrep(problem, rounds, head, head_epochs=1, base_epochs=1):
    received = [copy.deepcopy(problem.initial) for _ in problem.n]
    for r in range(1, rounds + 1):
        uploads = []
        for i, w in enumerate(received):
            w = local_training(
                w,
                problem.batches(i, r, 0, head_epochs),
                problem.lr,
                None,
                lambda n: n.startswith(head),
            )
            w = local_training(
                w,
                problem.batches(i, r, 1, base_epochs),
                problem.lr,
                None,
                lambda n: not n.startswith(head),
            )
            uploads.append(w)
        received = fedavg_model(uploads, problem.n, (head,))
    return received, uploads


def fine_tuned(problem, rounds, extra_epochs):
    received = [copy.deepcopy(problem.initial) for _ in problem.n]
    for r in range(1, rounds + 1):
        uploads = [
            local_training(w, problem.batches(i, r, 0, 1), problem.lr)
            for i, w in enumerate(received)
        ]
        tuned = [
            local_training(w, problem.batches(i, r, 1, extra_epochs), problem.lr)
            for i, w in enumerate(uploads)
        ]
        received = fedavg_model(uploads, problem.n)
    return received, tuned


def distance(model, other):
    pairs = zip(model.parameters(), other.parameters(), strict=True)
    return torch.stack([(a - b).pow(2).sum() for a, b in pairs]).sum().sqrt().item()

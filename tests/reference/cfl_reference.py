"""CFL as whole rounds in plain PyTorch.

Written from the equations, with nothing of the package. A problem offers ``initial`` (a model),
``batches(client, round)``, ``n`` (samples) and ``lr``.
"""

import copy

import torch
from rounds import average, local_training


def flat_update(after, before):
    pairs = zip(after.parameters(), before.parameters(), strict=True)
    return torch.cat([(a - b).detach().flatten() for a, b in pairs])


def cosine(a, b):
    return (a @ b / (a.norm() * b.norm())).item()


def complete_linkage(members, update):
    """Join groups, those with the most similar least similar pair first, until two are left."""
    groups = [[i] for i in members]
    while len(groups) > 2:
        candidates = []
        for a in range(len(groups)):
            for b in range(a + 1, len(groups)):
                worst = min(cosine(update[i], update[j]) for i in groups[a] for j in groups[b])
                candidates.append((-worst, a, b))
        _, a, b = min(candidates)
        joined = sorted(groups[a] + groups[b])
        groups = sorted([g for k, g in enumerate(groups) if k not in (a, b)] + [joined])
    return groups


def cluster_weights(members, n, uniform):
    n = [1 if uniform else n[i] for i in members]
    return [n_i / sum(n) for n_i in n]


def split(members, update, n, uniform, eps1, eps2, late_enough):
    weights = cluster_weights(members, n, uniform)
    mean = sum(p * update[i] for p, i in zip(weights, members, strict=True))
    largest = max(update[i].norm() for i in members)
    if mean.norm() < eps1 and largest > eps2 and len(members) > 2 and late_enough:
        return complete_linkage(members, update)
    return [members]


def moved_by_mean_update(start, uploads, weights):
    """The start plus the mean update; counters take the maximum."""
    fresh = copy.deepcopy(start)
    before, states = start.state_dict(), [model.state_dict() for model in uploads]
    after = {}
    for name, value in before.items():
        if value.is_floating_point():
            updates = [state[name] - value for state in states]
            after[name] = value + average(updates, weights)
        else:
            after[name] = average([state[name] for state in states], weights)
    fresh.load_state_dict(after)
    return fresh


def cfl(problem, rounds, eps1, eps2, warm_up, uniform=False):
    """Return received models, uploads and the clusters after every round."""
    clients = range(len(problem.n))
    models = [copy.deepcopy(problem.initial) for _ in clients]
    clusters, history = [list(clients)], []
    for r in range(1, rounds + 1):
        uploads = [local_training(models[i], problem.batches(i, r), problem.lr) for i in clients]
        update = [flat_update(uploads[i], models[i]) for i in clients]
        parts = []
        for members in clusters:
            parts += split(members, update, problem.n, uniform, eps1, eps2, r > warm_up)
        clusters = parts
        received = list(models)
        for members in clusters:
            weights = cluster_weights(members, problem.n, uniform)
            mean = moved_by_mean_update(models[members[0]], [uploads[i] for i in members], weights)
            for i in members:
                received[i] = copy.deepcopy(mean)
        models = received
        history.append(sorted(clusters))
    return models, uploads, history

"""FedFomo in plain PyTorch, client by client (Zhang et al. 2021, Equations 5 and 6).

``weight(n) = (L_i(old_i) - L_i(theta_n)) / (||theta_n - old_i|| + 1e-5)``.
"""

import copy
import math

import torch
from rounds import average, cross_entropy, local_training


def loss(model, images, labels):
    with torch.no_grad():
        return float(cross_entropy(copy.deepcopy(model).eval()(images), labels))


def distance(a, b):
    b = dict(b.named_parameters())
    with torch.no_grad():
        return math.sqrt(sum(float((p - b[name]).pow(2).sum()) for name, p in a.named_parameters()))


def offered(i, preferences, have_uploaded, num_models):
    others = [j for j in have_uploaded if j != i]
    others.sort(key=lambda j: (-preferences[i][j], j))
    return [i, *others[: num_models - 1]]


def weights_of(old, models, images, labels):
    before = loss(old, images, labels)
    return {
        n: (before - loss(model, images, labels)) / (distance(model, old) + 1e-5)
        for n, model in models.items()
    }


def mixture(own, models, weights, without_help):
    positive = {n: w for n, w in weights.items() if w > 0}
    if not positive:
        return copy.deepcopy(without_help)
    shares = [w / sum(positive.values()) for w in positive.values()]
    states = [models[n].state_dict() for n in positive]
    mixed = copy.deepcopy(own)
    mixed.load_state_dict(
        {name: average([state[name] for state in states], shares) for name in states[0]}
    )
    return mixed


def fedfomo(model, clients, schedule, batches, kept, lr, num_models, fallback):
    """Run the rounds; returns uploads, P and the weights by round and client.

    `fallback` is where a client goes on from that nobody helps: ``trained`` or ``before_training``,
    the model that its last training started from. `schedule` lists the participants of each round,
    ``batches(i, r)`` gives training batches and ``kept(i)`` images and labels of the kept part.
    """
    uploads = [copy.deepcopy(model) for _ in range(clients)]
    old = [copy.deepcopy(model) for _ in range(clients)]
    preferences = [[float(i == j) for j in range(clients)] for i in range(clients)]
    before = [copy.deepcopy(model) for _ in range(clients)]
    have_uploaded, log = set(), {}
    for round_, participants in enumerate(schedule, start=1):
        starts = {}
        for i in participants:
            starts[i] = uploads[i]
            if i in have_uploaded:
                ids = offered(i, preferences, sorted(have_uploaded), num_models)
                models = {n: uploads[n] for n in ids}
                weights = weights_of(old[i], models, *kept(i))
                for n, weight in weights.items():
                    preferences[i][n] += weight
                without_help = {"trained": uploads[i], "before_training": before[i]}[fallback]
                starts[i] = old[i] = mixture(uploads[i], models, weights, without_help)
                log[round_, i] = weights
        for i, start in starts.items():
            before[i] = copy.deepcopy(start)
            uploads[i] = local_training(start, batches(i, round_), lr)
            have_uploaded.add(i)
    return uploads, torch.tensor(preferences, dtype=torch.float64), log

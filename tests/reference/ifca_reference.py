"""IFCA in plain PyTorch, client by client (Ghosh et al. 2020, Algorithm 1, model averaging)."""

import copy

import torch
from rounds import average, cross_entropy, local_training


def best_centre(centres, images, labels):
    losses = []
    for centre in centres:
        with torch.no_grad():
            losses.append(float(cross_entropy(copy.deepcopy(centre).eval()(images), labels)))
    return losses.index(min(losses))


def mean_model(models, weights):
    states = [model.state_dict() for model in models]
    mean = copy.deepcopy(models[0])
    mean.load_state_dict(
        {
            name: average([state[name] for state in states], [w / sum(weights) for w in weights])
            for name in states[0]
        }
    )
    return mean


def ifca(centres, schedule, batches, training, n, lr, uniform=False):
    """Run the rounds; returns centres, last uploads by client and the choices of every round.

    `schedule` lists the participants of each round, ``batches(i, r)`` gives training batches and
    ``training(i)`` images and labels of the whole training part.
    """
    uploads, choices = {}, []
    for round_, participants in enumerate(schedule, start=1):
        choice = {i: best_centre(centres, *training(i)) for i in participants}
        for i, k in choice.items():
            uploads[i] = local_training(centres[k], batches(i, round_), lr)
        fresh = list(centres)
        for k in range(len(centres)):
            members = [i for i in participants if choice[i] == k]
            if members:
                weights = [1 if uniform else n[i] for i in members]
                fresh[k] = mean_model([uploads[i] for i in members], weights)
        centres = fresh
        choices.append(choice)
    return centres, uploads, choices

"""FedNH in plain PyTorch: whole rounds from the equations, in loops.

Logits s · z/||z|| · Wᵀ; clients train all but W; the server moves each row of W towards the mean
of the clients' normalised mean features, weighted by their counts, and averages the rest.
"""

import copy

import torch
from rounds import average, local_training
from torch import nn


def unit(vector):
    length = (vector * vector).sum().sqrt()
    return vector / length if length.item() > 0 else 0.0 * vector


class PrototypeNet(nn.Module):
    """A trunk that returns features, prototypes W and a scale s."""

    def __init__(self, trunk, prototypes, scale):
        super().__init__()
        self.trunk = trunk
        self.register_buffer("W", prototypes.clone())
        self.s = nn.Parameter(scale.clone())

    def forward(self, images):
        features = self.trunk(images)
        rows = []
        for z in features:
            direction = unit(z)
            rows.append(torch.stack([self.s * (direction * w).sum() for w in self.W]))
        return torch.stack(rows)


def mean_features(net, images, labels):
    """Return {class: (normalised mean of the unit-length features, count)} of one client."""
    net = copy.deepcopy(net).eval()
    sums, counts = {}, {}
    with torch.no_grad():
        for image, label in zip(images, labels.tolist(), strict=True):
            direction = unit(net.trunk(image[None])[0])
            sums[label] = sums.get(label, 0.0) + direction
            counts[label] = counts.get(label, 0) + 1
    return {c: (unit(sums[c] / counts[c]), counts[c]) for c in sums}


def moved(prototypes, sent, rho):
    """Return the new prototypes from what the participants sent."""
    rows = []
    for c, old in enumerate(prototypes):
        holders = [means[c] for means in sent if c in means]
        if not holders:
            rows.append(old.clone())
            continue
        total = sum(count for _, count in holders)
        mean = sum(count * mu for mu, count in holders) / total
        rows.append(unit(rho * old + (1 - rho) * unit(mean)))
    return torch.stack(rows)


def fednh_rounds(net, participants, batches, data, lr, rho, weighting):
    """Return after each round (global net, {client: last upload}).

    `participants` lists the clients of each round, `batches(client, round)` yields images and
    targets, `data(client)` returns all training images and labels.
    """
    net, uploads, history = copy.deepcopy(net), {}, []
    for round_, clients in enumerate(participants, start=1):
        fresh = {i: local_training(net, batches(i, round_), lr) for i in clients}
        uploads = {**uploads, **fresh}
        sizes = [len(data(i)[1]) if weighting == "samples" else 1 for i in clients]
        states = [fresh[i].state_dict() for i in clients]
        state = {
            name: average([state[name] for state in states], [n / sum(sizes) for n in sizes])
            for name in states[0]
        }
        state["W"] = moved(net.W, [mean_features(fresh[i], *data(i)) for i in clients], rho)
        net = copy.deepcopy(net)
        net.load_state_dict(state)
        history.append((net, uploads))
    return history

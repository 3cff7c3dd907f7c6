"""FedUV in plain PyTorch: whole rounds from the equations, in loops.

FedAvg whose clients add λ mean_c ReLU(1/√K - std_batch(softmax_c)) and
μ mean_{a<b} exp(-||z_a - z_b||² / σ), σ the median of the non-zero squared distances.
"""

import copy
from math import sqrt

import torch
from rounds import average, local_training


def variance_term(logits):
    size, classes = logits.shape
    if size < 2:
        return 0.0 * logits.sum()
    probabilities = torch.exp(logits) / torch.exp(logits).sum(1, keepdim=True)
    total = 0.0
    for c in range(classes):
        column = [probabilities[b, c] for b in range(size)]
        mean = sum(column) / size
        std = (sum((p - mean) ** 2 for p in column) / (size - 1)).sqrt()
        gap = 1 / sqrt(classes) - std
        if gap > 0:
            total = total + gap
    return total / classes


def uniformity_term(features, detach_sigma=False):
    size = len(features)
    distances = [
        ((features[a] - features[b]) ** 2).sum() for a in range(size) for b in range(a + 1, size)
    ]
    nonzero = [d for d in distances if d.item() != 0]
    if not nonzero:
        return 0.0 * features.sum()
    sigma = torch.median(torch.stack(nonzero))
    if detach_sigma:
        sigma = sigma.item()
    return sum(torch.exp(-d / sigma) for d in distances) / len(distances)


def feduv_rounds(model, head, batches, samples, rounds, lr, lam, mu, detach_sigma=False):
    """Return the global model and the clients' uploads after the rounds, everybody taking part.

    `batches(client, round)` yields images and targets; `head` is the name of the output layer.
    """
    seen = {}
    model = copy.deepcopy(model)
    model.get_submodule(head).register_forward_pre_hook(
        lambda module, inputs: seen.update(features=inputs[0])
    )

    def extra(model, images, logits, targets):
        terms = lam * variance_term(logits)
        return terms + mu * uniformity_term(seen["features"], detach_sigma)

    for round_ in range(1, rounds + 1):
        uploads = [
            local_training(model, batches(client, round_), lr, extra)
            for client in range(len(samples))
        ]
        states = [upload.state_dict() for upload in uploads]
        weights = [n / sum(samples) for n in samples]
        model.load_state_dict(
            {name: average([state[name] for state in states], weights) for name in states[0]}
        )
    return model, uploads

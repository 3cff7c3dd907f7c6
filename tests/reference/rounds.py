"""Whole federated rounds in plain PyTorch, without Lightning and without banks.

Written from the equations: SGD steps ``w <- w - lr * gradient`` of cross-entropy plus λ R, then
averaging tensor by tensor in loops.
"""

import copy

import torch


def local_training(model, batches, p, lam, lr, head):
    model = copy.deepcopy(model).train()
    for images, targets in batches:
        logits = model(images)
        loss = -torch.log_softmax(logits, 1)[torch.arange(len(targets)), targets].mean()
        if lam:
            rows = dict(model.named_parameters())[head]
            norms = torch.stack([row.pow(2).sum().sqrt() for row in rows])
            loss = loss + lam * (p - norms / norms.sum()).pow(2).sum().sqrt()
        parameters = list(model.parameters())
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter -= lr * gradient
    return model


def average(tensors, weights):
    if not tensors[0].is_floating_point():
        return torch.stack(tensors).max(0).values
    total = torch.zeros_like(tensors[0])
    for tensor, weight in zip(tensors, weights, strict=True):
        total += weight * tensor
    return total


def cwfedavg_server(models, n, p_of, classwise):
    """Two-step class-wise averaging of whole models with full participation."""
    states = [model.state_dict() for model in models]
    p = [p_of(i, states[i]) for i in range(len(models))]
    classes = len(p[0])
    out = [dict(state) for state in states]
    for name in states[0]:
        tensors = [state[name] for state in states]
        if not any(name.startswith(prefix) for prefix in classwise):
            for state in out:
                state[name] = average(tensors, [n_i / sum(n) for n_i in n])
            continue
        class_models = []
        for j in range(classes):
            total = sum(n[i] * p[i][j] for i in range(len(n)))
            class_models.append(average(tensors, [n[i] * p[i][j] / total for i in range(len(n))]))
        for i, state in enumerate(out):
            state[name] = average(class_models, p[i])
    result = []
    for model, state in zip(models, out, strict=True):
        fresh = copy.deepcopy(model)
        fresh.load_state_dict(state)
        result.append(fresh)
    return result

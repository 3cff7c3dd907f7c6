"""Whole federated rounds in plain PyTorch, without Lightning and without banks.

Written from the equations: SGD steps ``w <- w - lr * gradient`` of cross-entropy plus λ R, then
averaging tensor by tensor in loops.
"""

import copy

import torch


def cross_entropy(logits, targets):
    return -torch.log_softmax(logits, 1)[torch.arange(len(targets)), targets].mean()


def wdr(lam, p, head):
    """λ R as an extra term for `local_training`."""

    def extra(model, images, logits, targets):
        rows = dict(model.named_parameters())[head]
        norms = torch.stack([row.pow(2).sum().sqrt() for row in rows])
        return lam * (p - norms / norms.sum()).pow(2).sum().sqrt()

    return extra


def local_training(model, batches, lr, extra=None, trainable=None):
    """SGD on cross-entropy plus ``extra(model, images, logits, targets)``; returns a new model.

    `trainable` is a predicate on parameter names; everything that requires a gradient by default.
    """
    model = copy.deepcopy(model).train()
    for images, targets in batches:
        logits = model(images)
        loss = cross_entropy(logits, targets)
        if extra:
            loss = loss + extra(model, images, logits, targets)
        named = [
            (name, parameter)
            for name, parameter in model.named_parameters()
            if parameter.requires_grad and (trainable is None or trainable(name))
        ]
        gradients = torch.autograd.grad(loss, [parameter for _, parameter in named])
        with torch.no_grad():
            for (_, parameter), gradient in zip(named, gradients, strict=True):
                parameter -= lr * gradient
    return model


def assert_models_equal(bank, models, tolerance=1e-9):
    """Assert that row i of a bank of tensors is model i, within a tolerance."""
    for i, model in enumerate(models):
        for name, value in (*model.named_parameters(), *model.named_buffers()):
            torch.testing.assert_close(bank[name][i], value.detach(), atol=tolerance, rtol=0)


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

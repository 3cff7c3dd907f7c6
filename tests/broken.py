"""Clients whose training goes wrong, for tests."""

import torch

from cwfed.engines.base import Engine, Fitted


class BrokenEngine(Engine):
    """Another engine, with what some clients return spoilt.

    `plan[round][client]` is what to put there: "loss", or a number for one entry of the model.
    """

    def __init__(self, engine, plan, target="upload"):
        self.engine, self.plan, self.target = engine, plan, target

    def fit(self, round_, clients, start, anchors, phase, objective):
        fitted = self.engine.fit(round_, clients, start, anchors, phase, objective)
        losses = list(fitted.losses)
        models = {name: value.clone() for name, value in fitted.models.items()}
        for client, value in self.plan.get(round_, {}).items():
            if client not in clients or phase.target != self.target:
                continue
            position = list(clients).index(client)
            if value == "loss":
                losses[position] = torch.nan
            else:
                models["hidden.weight"][position].view(-1)[3] = value
        return Fitted(models, losses)

    def evaluate(self, clients, models, part):
        return self.engine.evaluate(clients, models, part)

    def class_means(self, clients, models):
        return self.engine.class_means(clients, models)

    def close(self):
        self.engine.close()


def broken_run(prepared, plan, callbacks=(), target="upload"):
    """Run a prepared experiment with a `BrokenEngine`; return the last state."""
    loop = prepared.loop(callbacks)
    loop.engine = BrokenEngine(loop.engine, plan, target)
    return loop.run(loop.initial_state(prepared.initialisation()))

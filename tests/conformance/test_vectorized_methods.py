"""Every shipped method with stacked clients."""

from typing import get_args

import pytest
import torch
from helpers import Keep, run
from methods import NAMES, NEEDS_EVERYONE, experiment

from cwfed.engines.base import Kernel
from cwfed.engines.vectorized.engine import VectorizedEngine


def stacked_loop(prepared, callbacks, kernel, chunk):
    loop = prepared.loop(callbacks)
    engine = VectorizedEngine(loop.engine.workload, "cpu", "64-true", kernel=kernel, chunk=chunk)
    loop.engine = engine
    return loop


def largest_difference(a, b):
    """Of two states: of the models, and of the scores."""
    worst = 0.0
    for field in ("uploads", "received", "anchors", "personal", "server", "post_local"):
        ours, theirs = getattr(a, field), getattr(b, field)
        assert ours.keys() == theirs.keys()
        for name in ours:
            difference = (ours[name].double() - theirs[name].double()).abs()
            worst = max(worst, difference.nan_to_num(0.0).max().item())
    return worst


@pytest.mark.parametrize("name", NAMES)
def test_every_method_gives_the_numbers_of_the_sequential_engine(name, tmp_path):
    few = () if name in NEEDS_EVERYONE else ("--participation", "0.6")
    of = experiment(name, tmp_path, "--model.dropout", "0", "--rounds", "3", *few)
    kept = Keep()
    reference = run(of, [kept])
    for kernel in get_args(Kernel):
        prepared, ours = of.prepare(), Keep()
        loop = stacked_loop(prepared, [ours], kernel, 3)
        state = loop.run(loop.initial_state(prepared.initialisation()))
        assert largest_difference(state, reference) < 1e-10
        for a, b in zip(ours.records, kept.records, strict=True):
            torch.testing.assert_close(a.train_loss, b.train_loss, atol=1e-10, rtol=0)

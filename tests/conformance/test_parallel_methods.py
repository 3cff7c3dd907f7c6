"""Every shipped method trained in several processes gives the bits of the sequential engine."""

import pytest
from helpers import Keep, assert_same, run
from methods import NAMES, NEEDS_EVERYONE, experiment


@pytest.mark.parametrize("name", NAMES)
def test_to_the_bit(name, tmp_path):
    part = () if name in NEEDS_EVERYONE else ("--participation", "0.6")
    kept = {}
    for engine in ("sequential", "parallel"):
        kept[engine] = Keep()
        options = ("--rounds", "3", "--trainer.engine", engine, "--trainer.workers", "2")
        run(experiment(name, tmp_path, *options, *part), [kept[engine]])
    for one, many in zip(kept["sequential"].states, kept["parallel"].states, strict=True):
        for field in ("uploads", "received", "anchors", "personal", "server", "post_local"):
            assert_same(dict(getattr(one, field)), dict(getattr(many, field)))
    for one, many in zip(kept["sequential"].records, kept["parallel"].records, strict=True):
        assert_same(dict(one.received), dict(many.received))
        assert one.train_loss == many.train_loss

"""Every shipped method goes on without clients that fail, as if they had not been asked."""

import pytest
import torch
from broken import broken_run
from helpers import Keep, assert_same
from methods import NAMES, NEEDS_EVERYONE, experiment

NAN = torch.nan
FAILING = {2: {1: NAN, 3: "loss"}, 3: {1: torch.inf}, 4: dict.fromkeys(range(5), NAN)}
FIELDS = ("uploads", "received", "anchors", "personal", "server", "post_local")


@pytest.mark.parametrize("name", NAMES)
def test_a_client_that_fails_leaves_no_trace(name, tmp_path):
    seldom = ("--evaluate_every", "3")
    prepared, ours, theirs = experiment(name, tmp_path, *seldom).prepare(), Keep(), Keep()
    broken_run(prepared, FAILING, [ours])
    loop = prepared.loop([theirs])
    loop.rounds = 3
    loop.sampler.sample = lambda round_: [i for i in range(5) if i not in FAILING.get(round_, {})]
    loop.run(loop.initial_state(prepared.initialisation()))
    for ran, expected in zip(ours.states, theirs.states, strict=False):
        for field in FIELDS:
            found, wanted = dict(getattr(ran, field)), dict(getattr(expected, field))
            assert found.keys() == wanted.keys()
            for tensor, value in wanted.items():
                # FedFomo mixes what the others start from in a product with one row more.
                torch.testing.assert_close(
                    found[tensor], value, atol=1e-12, rtol=0, equal_nan=field == "post_local"
                )
                assert field == "post_local" or found[tensor].isfinite().all()
    assert all(torch.isfinite(torch.tensor(record.mean_r)) for record in ours.records)
    assert [sorted(r.excluded) for r in ours.records] == [[], [], [1, 3], [1], [0, 1, 2, 3, 4]]
    for field in FIELDS:
        assert_same(dict(getattr(ours.states[4], field)), dict(getattr(ours.states[3], field)))


LOST = ("--faults.dropout", "0.3", "--faults.deadline", "1.2", "--faults.jitter_sigma", "0.4")


@pytest.mark.parametrize("name", NAMES)
def test_lost_clients_and_partial_participation(name, tmp_path):
    part = () if name in NEEDS_EVERYONE else ("--participation", "0.6")
    kept = Keep()
    often = ("--rounds", "3", "--evaluate_every", "3")
    prepared = experiment(name, tmp_path, *LOST, *part, *often).prepare()
    loop = prepared.loop([kept])
    loop.run(loop.initial_state(prepared.initialisation()))
    assert any(record.excluded for record in kept.records)
    for before, after, record in zip(kept.states, kept.states[1:], kept.records[1:], strict=False):
        gone = set(range(5)) - set(record.participants) | set(record.excluded)
        for client in gone:
            assert torch.equal(
                before.uploads["hidden.weight"][client], after.uploads["hidden.weight"][client]
            )
        for client in set(range(5)) - gone:
            assert not torch.equal(
                before.uploads["hidden.weight"][client], after.uploads["hidden.weight"][client]
            )
        for bank in (after.received, after.anchors):
            assert all(value.isfinite().all() for value in bank.values())

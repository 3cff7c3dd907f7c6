"""The loop hands an engine the rows of the cohort, and copies as few as there can be."""

from types import SimpleNamespace

import pytest
import torch
from helpers import small_experiment

from cwfed.aggregators import FedAMP, FedFomo
from cwfed.federated.clients import cohort_rows
from cwfed.functional.stacking import row, take_rows
from cwfed.objectives import AttentionProximal

ROUNDS = 3


def watched(aggregator=None, sample=None, **changes):
    """Run rounds; return what each call of the engine was given and what the state was then."""
    prepared = small_experiment(aggregator, **changes).prepare()
    loop, calls = prepared.loop(), []
    if sample:
        loop.sampler.sample = lambda round_: sample
    engine, states = loop.engine, []
    select, score = loop.select, loop.score_post_local

    def fit(round_, clients, start, anchors, phase, objective):
        calls.append(SimpleNamespace(clients=clients, start=start, anchors=anchors, of=states[-1]))
        return of_engine(round_, clients, start, anchors, phase, objective)

    def evaluate(clients, models, part):
        calls.append(SimpleNamespace(clients=clients, models=models, of=states[-1:]))
        return of_evaluation(clients, models, part)

    def selected(round_, state, participants):
        states.append((state, select(round_, state, participants)[1]))
        return select(round_, state, participants)

    def scored(round_, state, participants):
        states.append(state)
        return score(round_, state, participants)

    of_engine, of_evaluation = engine.fit, engine.evaluate
    engine.fit, engine.evaluate, loop.select, loop.score_post_local = (
        fit,
        evaluate,
        selected,
        scored,
    )
    loop.run(loop.initial_state(prepared.initialisation()))
    return calls


def test_everybody_in_order_is_the_bank_itself():
    fits = [call for call in watched(rounds=2, dropout=0.0) if hasattr(call, "start")]
    assert len(fits) == 2
    for call in fits:
        _, starts = call.of
        assert call.start is starts
        assert call.anchors is call.start


@pytest.mark.parametrize("sample", [[0, 3, 4], [2], [1, 2, 3]])
def test_row_i_is_that_of_client_i_of_the_cohort(sample):
    amp = {"objectives": [AttentionProximal()], "dropout": 0.0}
    calls = watched(FedAMP(100.0, 10.0), sample, **amp)
    fits = [call for call in calls if hasattr(call, "start")]
    assert len(fits) == 3
    for call in fits:
        assert list(call.clients) == sample
        state, starts = call.of
        for name, theta_m in call.start.items():
            assert torch.equal(theta_m, starts[name][sample])
        for name, theta_m in (state.anchors or starts).items():
            assert torch.equal(call.anchors[name], theta_m[sample])
    for call in calls:
        if hasattr(call, "models"):
            assert len(call.models["out.weight"]) == len(call.clients)


def test_what_a_server_asks_of_clients_is_asked_of_their_rows():
    sample = [1, 4]
    asked = [call for call in watched(FedFomo(2), sample, dropout=0.0) if hasattr(call, "models")]
    of_cohort = [call for call in asked if list(call.clients) != list(range(5))]
    assert len(of_cohort) > ROUNDS, "losses on held-out samples beside scores after training"
    for call in of_cohort:
        assert {len(value) for value in call.models.values()} == {len(call.clients)}


def test_rows_are_copied_only_where_they_are_scattered():
    bank = {"w": torch.arange(12.0).view(6, 2), "shared": torch.ones(2).expand(6, 2)}
    assert take_rows(bank, range(6)) is bank
    middle = take_rows(bank, [2, 3, 4])
    assert middle["w"].data_ptr() == bank["w"][2].data_ptr()
    some = take_rows(bank, [0, 5])
    assert some["w"].tolist() == [[0, 1], [10, 11]]
    assert some["w"].data_ptr() != bank["w"].data_ptr()
    assert some["shared"].stride(0) == 0
    assert len(some["shared"]) == 2
    assert take_rows(bank, [5, 4])["w"].tolist() == [[10, 11], [8, 9]]
    assert {name: len(value) for name, value in take_rows(bank, []).items()} == {
        "w": 0,
        "shared": 0,
    }
    rows, anchors = cohort_rows(bank, bank, [0, 5])
    assert anchors is rows
    other = {name: value + 1 for name, value in bank.items()}
    assert cohort_rows(bank, other, range(6))[1] is other
    _, anchors = cohort_rows(bank, other, [5, 0])
    assert {name: value.tolist() for name, value in anchors.items()} == {
        "w": [[11, 12], [1, 2]],
        "shared": [[2, 2], [2, 2]],
    }
    assert len(anchors) == 2
    assert row(anchors, 0)["w"].data_ptr() == other["w"][5].data_ptr()


def test_the_loop_alone_holds_the_engine():
    loop = small_experiment().prepare().loop()
    loop.engine = other = object()
    assert loop.clients.engine is other
    holders = [name for name, value in vars(loop).items() if value is other]
    assert holders == ["engine"]

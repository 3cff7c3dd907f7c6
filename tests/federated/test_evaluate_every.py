"""Rounds without an evaluation change nothing but what is reported."""

import json

import pytest
from helpers import Keep, assert_same, run, small_experiment

from cwfed.aggregators import FedAvg
from cwfed.cli import main
from cwfed.clients import TrainingPhase
from cwfed.federated import Algorithm
from cwfed.objectives import Proximal
from cwfed.records.round_lines import read_lines
from cwfed.records.scalars import flatten
from cwfed.runs.checkpoint import load_newest, save_checkpoint
from cwfed.tracking.progress import describe

ROUNDS = 5


def experiment(every, participation, personal=False, **changes):
    settings = {"participation": participation, "rounds": ROUNDS, "val_fraction": 0.2}
    if personal:
        phases = [
            TrainingPhase(),
            TrainingPhase("personal", "personal", objectives=[Proximal(0.1)]),
        ]
        settings["algorithm"] = Algorithm("test", FedAvg(), [], phases)
    return small_experiment(evaluate_every=every, **settings | changes)


def recorded(of, state=None):
    kept = Keep()
    run(of, [kept], state)
    return kept


@pytest.fixture(scope="module")
def always():
    """What a run reports that evaluates every round, by participation and kind."""
    return {
        (participation, personal): recorded(experiment(1, participation, personal))
        for participation in (1.0, 0.4)
        for personal in (False, True)
    }


@pytest.mark.parametrize("personal", [False, True])
@pytest.mark.parametrize("participation", [1.0, 0.4])
@pytest.mark.parametrize(("every", "due"), [(2, {0, 2, 4, 5}), (3, {0, 3, 5}), (9, {0, 5})])
def test_models_and_scored_rounds_are_the_same(always, every, due, participation, personal):
    ours, theirs = (
        recorded(experiment(every, participation, personal)),
        always[participation, personal],
    )
    for round_, (a, b) in enumerate(zip(ours.states, theirs.states, strict=True)):
        for bank in ("uploads", "received", "personal", "server"):
            assert_same(dict(getattr(a, bank)), dict(getattr(b, bank)))
        mine, reported = ours.records[round_], theirs.records[round_]
        assert (mine.train_loss, mine.mean_r) == (reported.train_loss, reported.mean_r)
        if round_ not in due:
            assert mine.received is mine.post_local is None
            continue
        assert_same(dict(mine.received), dict(reported.received))
        if round_:
            assert_same(dict(mine.post_local), dict(reported.post_local))


def test_a_score_that_was_not_taken_is_not_reported_as_if_it_were(always):
    ours = recorded(experiment(3, 0.4))
    for state, record in zip(ours.states[1:3], ours.records[1:3], strict=True):
        trained = {client for r in ours.records[1 : record.round + 1] for client in r.participants}
        missing = state.post_local["test"].isnan().all(1).nonzero()[:, 0].tolist()
        assert missing == sorted(trained)
    assert ours.states[3].post_local["test"].isfinite().all()


@pytest.mark.parametrize("participation", [1.0, 0.4])
def test_resumes_to_the_bit_between_evaluations(participation, tmp_path):
    ours = recorded(experiment(3, participation))
    for state in ours.states[1:-1]:
        folder = tmp_path / str(state.round)
        save_checkpoint(folder, state, "me", keep=1)
        again = recorded(experiment(3, participation), load_newest(folder, "me"))
        for mine, theirs in zip(again.records, ours.records[state.round + 1 :], strict=True):
            assert mine.to_line() | {"seconds": 0} == theirs.to_line() | {"seconds": 0}
        assert_same(dict(again.states[-1].post_local), dict(ours.states[-1].post_local))


def test_a_client_is_scored_once_for_each_evaluation_that_finds_it_trained():
    prepared = experiment(3, 0.4).prepare()
    loop = prepared.loop()
    asked, evaluate = [], loop.engine.evaluate

    def counted(clients, models, part):
        asked.append((list(clients), part))
        return evaluate(clients, models, part)

    loop.engine.evaluate = counted
    loop.run(loop.initial_state(prepared.initialisation()))
    drawn = [loop.sampler.sample(round_) for round_ in range(1, ROUNDS + 1)]
    first, second = sorted(set().union(*drawn[:3])), sorted(set().union(*drawn[3:]))
    everyone = list(range(5))
    assert [c for c, part in asked if part == "test"] == [
        everyone,
        first,
        everyone,
        second,
        everyone,
    ]


def test_what_reads_a_record_copes_without_scores():
    record = recorded(experiment(2, 1.0, rounds=2)).records[1]
    line = json.loads(json.dumps(record.to_line()))
    assert line["received"] is line["post_local"] is None
    assert describe(record) == f"R {record.mean_r:.3f}"
    figures = flatten(line)
    assert figures["mean_R"] == record.mean_r
    assert not any(name.startswith(("received", "post_local")) for name in figures)


def test_a_run_folder(tmp_path):
    command = [
        *("fit", "--config", "quickstart", "--rounds", "3", "--evaluate_every", "2"),
        *("--data", "SyntheticImages", "--data.image_size", "16", "--data.samples_per_class", "20"),
        *("--partition.num_clients", "4", "--logger", "tensorboard"),
    ]
    results = []
    for name, more in (("some", []), ("all", ["--evaluate_every", "1"])):
        assert main([*command, "--run_dir", str(tmp_path / name), *more]) == 0
        results.append(read_lines(tmp_path / name / "rounds.jsonl"))
    some, every = results
    assert [line["received"] is None for line in some] == [False, True, False, False]
    assert [line["post_local"] is None for line in some] == [True, True, False, False]
    for number in (0, 2, 3):
        assert some[number]["received"] == every[number]["received"]
    table = [(tmp_path / name / "clients.csv").read_text() for name in ("some", "all")]
    assert table[0] == table[1]
    result = json.loads((tmp_path / "some" / "result.json").read_text())
    assert result["received"]["last"]["round"] == 3
    assert result["received"]["best"]["round"] in (2, 3)
    assert result["received"]["fairness"] == some[3]["received"]["fairness"]


@pytest.mark.parametrize("every", [0, -1])
def test_a_bad_number_is_refused(every):
    with pytest.raises(ValueError, match="evaluate_every: expected a number >= 1, got"):
        experiment(every, 1.0)

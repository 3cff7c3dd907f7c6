"""Clients that fail, against references and against runs that never asked them."""

import logging
from dataclasses import replace

import pytest
import torch
from broken import broken_run
from faults_reference import rounds_without
from helpers import Keep, assert_same, run, small_experiment
from rounds import assert_models_equal, wdr

from cwfed.aggregators import CwFedAvg, FedAvg
from cwfed.clients import TrainingPhase
from cwfed.engines.base import Fitted
from cwfed.engines.vectorized.engine import VectorizedEngine
from cwfed.federated import Algorithm, FaultOptions, TrainerOptions
from cwfed.federated.faults import FaultModel, RunStopped, require_finite
from cwfed.objectives import WDR, ObjectiveTerm, Proximal
from cwfed.runs.checkpoint import load_newest, save_checkpoint
from cwfed.tracking.progress import describe

NAN, INF = torch.nan, torch.inf
PLAN = {1: {2: NAN}, 2: {0: INF, 4: "loss"}, 4: {2: -INF}}
FIELDS = ("uploads", "received", "anchors", "personal", "server", "post_local")


@pytest.mark.parametrize("method", ["fedavg", "estimated", "true"])
def test_without_failed_clients_as_in_plain_pytorch(method):
    aggregator = FedAvg() if method == "fedavg" else CwFedAvg("output", method)
    terms = [WDR()] if method == "estimated" else []
    prepared = small_experiment(aggregator, terms, rounds=5, dropout=0.0).prepare()
    state = broken_run(prepared, PLAN)
    counts = prepared.label_counts_MK()
    p_MK = counts.double() / counts.sum(1, keepdim=True)
    received, uploads = rounds_without(
        prepared.model,
        prepared.data.training_loader,
        counts.tolist(),
        [[i for i in range(5) if i not in PLAN.get(r, {})] for r in range(1, 6)],
        0.05,
        () if method == "fedavg" else ("out.weight", "out.bias"),
        (lambda i: wdr(2.0, p_MK[i], "out.weight")) if terms else None,
        labels=method == "true",
    )
    assert_models_equal(state.received, received, 1e-10)
    assert_models_equal(state.uploads, uploads, 1e-10)


def lost_run(participation=1.0, state=None, callbacks=(), **changes):
    faults = FaultOptions(dropout=0.25, deadline=1.1, jitter_sigma=0.5)
    settings = {"participation": participation, "rounds": 6, "faults": faults, **changes}
    return run(small_experiment(**settings), callbacks, state)


@pytest.mark.parametrize("participation", [1.0, 0.6])
def test_lost_clients_are_those_that_plain_pytorch_leaves_out(participation):
    kept = Keep()
    state = lost_run(participation, None, [kept], aggregator=FedAvg(), objectives=[], dropout=0.0)
    prepared = small_experiment(dropout=0.0).prepare()
    uploading = [sorted(set(r.participants) - set(r.excluded)) for r in kept.records[1:]]
    assert len({tuple(ids) for ids in uploading}) > 2
    assert {reason for r in kept.records for reason in r.excluded.values()} == {
        "dropout",
        "straggler",
    }
    received, uploads = rounds_without(
        prepared.model,
        prepared.data.training_loader,
        prepared.label_counts_MK().tolist(),
        uploading,
        0.05,
    )
    assert_models_equal(state.received, received, 1e-10)
    assert_models_equal(state.uploads, uploads, 1e-10)
    for record in kept.records[1:]:
        sent = {i for i, size in zip(record.participants, record.bytes_up, strict=True) if size}
        assert sent == set(record.participants) - set(record.excluded)
        assert len(set(record.bytes_down)) == 1
        assert record.bytes_down[0] > 0


def test_resumes_to_the_bit_with_faults(tmp_path):
    kept, again = Keep(), Keep()
    whole = lost_run(0.8, None, [kept])
    save_checkpoint(tmp_path, kept.states[3], "me", keep=1)
    rest = lost_run(0.8, load_newest(tmp_path, "me"), [again])
    for field in FIELDS:
        assert_same(dict(getattr(rest, field)), dict(getattr(whole, field)))
    assert [r.excluded for r in again.records] == [r.excluded for r in kept.records[4:]]
    assert any(r.excluded for r in again.records)


class NanFor(ObjectiveTerm):
    """NaN on the client whose share of the first class is given."""

    weight = 1.0

    def __init__(self, share):
        self.share = share

    def value(self, step, client):
        mine = (client.p_K[0] - self.share).abs() < 1e-9
        return torch.where(mine, torch.nan, 0.0) * step.logits_BK.sum()


@pytest.mark.parametrize(
    "engine", ["sequential", "parallel", "grouped", "unfold", "streams", "not asked"]
)
def test_engines_leave_the_other_clients_untouched(engine):
    p_MK = small_experiment().prepare().loop().p_MK
    assert len(p_MK[:, 0].unique()) == 5
    term = NanFor(p_MK[1, 0].item())
    results = {}
    for name in ("sequential", engine):
        workers = 2 if name == "parallel" else None
        trainer = TrainerOptions(
            "cpu", "64-true", engine="parallel" if workers else "sequential", workers=workers
        )
        terms = [WDR()] if name == "not asked" else [WDR(), term]
        of = small_experiment(objectives=terms, trainer=trainer, rounds=2, dropout=0.0)
        prepared, kept = of.prepare(), Keep()
        loop = prepared.loop([kept])
        if name == "not asked":
            loop.sampler.sample = lambda round_: [0, 2, 3, 4]
        elif name not in ("sequential", "parallel"):
            loop.engine = VectorizedEngine(
                loop.engine.workload, "cpu", "64-true", kernel=name, chunk=3
            )
        results[name] = loop.run(loop.initial_state(prepared.initialisation()))
        if name != "not asked":
            assert [dict(r.excluded) for r in kept.records] == [{}] + 2 * [{1: "non-finite model"}]
    exact = engine in ("sequential", "parallel", "not asked")
    for field in FIELDS:
        ours, theirs = (dict(getattr(results[name], field)) for name in ("sequential", engine))
        for name in theirs:
            torch.testing.assert_close(
                ours[name], theirs[name], atol=0 if exact else 1e-10, rtol=0, check_dtype=False
            )


def test_rounds_in_which_nobody_remains_change_nothing(caplog):
    prepared, kept = small_experiment(rounds=4, objectives=[Proximal(0.1)]).prepare(), Keep()
    broken_run(prepared, {2: dict.fromkeys(range(5), NAN)}, [kept])
    for field in FIELDS:
        assert_same(dict(getattr(kept.states[2], field)), dict(getattr(kept.states[1], field)))
    assert not torch.equal(
        kept.states[3].received["out.weight"], kept.states[2].received["out.weight"]
    )
    assert kept.records[2].train_loss is None
    assert [r.levelname for r in caplog.records if "round 2 changes nothing" in r.message] == [
        "WARNING"
    ]
    assert "clients 0, 1, 2, 3, 4 (non-finite model); a smaller learning rate" in caplog.text


def test_one_short_warning_a_round(caplog):
    prepared, kept = small_experiment(rounds=2).prepare(), Keep()
    with caplog.at_level(logging.WARNING, "cwfed"):
        broken_run(prepared, PLAN, [kept])
    assert caplog.messages == [
        "round 1 goes on without client 2 (non-finite model)",
        "round 2 goes on without clients 0, 4 (1 non-finite model, 1 non-finite loss)",
    ]
    assert describe(kept.records[2]).endswith("  2 of 5 left out")
    assert kept.records[2].to_line()["excluded"] == {
        "0": "non-finite model",
        "4": "non-finite loss",
    }
    assert "excluded" not in kept.records[0].to_line()


def test_stop_names_client_and_round():
    prepared = small_experiment(faults=FaultOptions(policy="stop")).prepare()
    kept = Keep()
    with pytest.raises(RunStopped, match=r"^round 2: stopped by clients 0, 4 \(1 non-finite mod"):
        broken_run(prepared, {2: PLAN[2]}, [kept])
    assert [record.round for record in kept.records] == [0, 1]


def test_a_personal_model_that_fails_takes_its_upload_with_it():
    phases = [TrainingPhase(), TrainingPhase("personal", "personal", objectives=[Proximal(0.1)])]
    of = small_experiment(algorithm=Algorithm("test", FedAvg(), [], phases), rounds=2)
    kept = Keep()
    broken_run(of.prepare(), {2: {3: NAN}}, [kept], target="personal")
    before, after = kept.states[1:]
    for bank in ("uploads", "personal"):
        for name, value in getattr(after, bank).items():
            assert torch.equal(value[3], getattr(before, bank)[name][3])
    assert torch.equal(before.post_local["test"][3], after.post_local["test"][3])
    assert kept.records[2].excluded == {3: "non-finite model"}


class Spoiling(FedAvg):
    """A server that makes something else than finite numbers of client 1's model."""

    def __init__(self, anchors):
        super().__init__()
        self.anchors = anchors

    def aggregate(self, round_, state, server):
        broadcast, state = super().aggregate(round_, state, server)
        models = {name: value.clone() for name, value in broadcast.models.items()}
        models["conv.weight"][1, 0] = torch.inf
        if self.anchors:
            return replace(broadcast, anchors=models), state
        return replace(broadcast, models=models), state


@pytest.mark.parametrize("anchors", [False, True])
def test_a_server_that_makes_no_numbers_is_stopped_by_name(anchors):
    what = "anchors" if anchors else "models"
    with pytest.raises(
        RunStopped, match=rf"^round 1: Spoiling made {what} that .* conv.weight for client 1;"
    ):
        run(small_experiment(Spoiling(anchors), objectives=[]))
    big = {"w": torch.full((2, 9), 3e38)}
    require_finite(1, "", {"models": big}, {})


def test_norms_that_overflow_are_no_upload():
    model = FaultModel(FaultOptions(), 0, torch.ones(2, dtype=torch.int64))
    head = torch.tensor([[[1e200, 1.0]], [[1e100, 1.0]]], dtype=torch.float64)
    failed = model.failures([0, 1], Fitted({"w": head}, [0.0, 0.0]), "w")
    assert failed == {0: "non-finite model"}


def test_a_client_without_steps_has_no_loss_to_fail_by():
    model = FaultModel(FaultOptions(), 0, torch.tensor([0, 3]))
    fitted = Fitted({"w": torch.ones(2, 1, 1)}, [NAN, NAN])
    assert model.failures([0, 1], fitted, "w") == {1: "non-finite loss"}


def excluded(options, steps_M, rounds, seed=0):
    model = FaultModel(options, seed, steps_M)
    ids = range(len(steps_M))
    return [dict(model.cohort(r, ids).excluded) for r in range(1, rounds + 1)]


def test_dropout_is_a_share_of_all_and_a_function_of_seed_round_and_client():
    options, steps_M = FaultOptions(dropout=0.3), torch.full((40,), 5)
    rounds = excluded(options, steps_M, 50)
    share = sum(map(len, rounds)) / 2000
    assert abs(share - 0.3) < 4 * (0.3 * 0.7 / 2000) ** 0.5
    assert rounds != excluded(options, steps_M, 50, seed=1)
    model = FaultModel(options, 0, steps_M)
    for r in (7, 3):
        alone = {i for i in range(40) if model.cohort(r, [i]).excluded}
        assert alone == set(rounds[r - 1])


def test_stragglers_are_those_with_more_than_the_deadline_of_the_median_time():
    steps_M = torch.tensor([10, 10, 10, 21, 19, 0])
    even = FaultOptions(deadline=2.0, speed_sigma=0.0)
    assert excluded(even, steps_M, 3) == 3 * [{3: "straggler"}]
    same_M = torch.full((400,), 7)
    speeds = excluded(FaultOptions(deadline=1.5, speed_sigma=0.8), same_M, 2)
    assert speeds[0] == speeds[1], "a speed is drawn once"
    # P(exp(0.8 z) > 1.5) = 0.306
    assert abs(len(speeds[0]) / 400 - 0.306) < 0.08
    jitter = excluded(FaultOptions(deadline=1.5, speed_sigma=0.0, jitter_sigma=0.8), same_M, 2)
    assert jitter[0] != jitter[1]
    assert all(abs(len(late) / 400 - 0.306) < 0.08 for late in jitter)


@pytest.mark.parametrize(
    ("field", "value", "wanted"),
    [
        ("policy", "ignore", "exclude or stop"),
        ("dropout", 1, r"a number in \[0, 1\)"),
        ("dropout", NAN, "a number >= 0"),
        ("deadline", 0, "a finite number > 0"),
        ("deadline", INF, "a finite number > 0"),
        ("speed_sigma", -1, "a number >= 0"),
        ("jitter_sigma", INF, "a finite number >= 0"),
    ],
)
def test_options_out_of_range_are_refused_by_name(field, value, wanted):
    with pytest.raises(ValueError, match=rf"faults.{field}: expected {wanted}, got '?{value}"):
        FaultOptions(**{field: value})


def test_late_evaluation_scores_the_last_training_that_counted():
    """A client that fails in the round of an evaluation is scored with what it trained before."""
    plan, kept, often = {2: {1: NAN}, 3: {1: NAN}}, Keep(), Keep()
    broken_run(small_experiment(rounds=4, evaluate_every=3).prepare(), plan, [kept])
    broken_run(small_experiment(rounds=4).prepare(), plan, [often])
    assert torch.equal(kept.records[3].post_local["test"], often.records[3].post_local["test"])
    assert torch.equal(
        often.records[3].post_local["test"][1], often.records[1].post_local["test"][1]
    )

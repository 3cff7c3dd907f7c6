"""The whole job against plain PyTorch."""

import copy

import pytest
import torch
from helpers import assert_same, run, small_experiment
from rounds import assert_models_equal, cwfedavg_server, local_training, wdr

from cwfed.aggregators import CwFedAvg, FedAvg, Local
from cwfed.federated import LocalTraining, LoopCallback, ReleasedCode

ROUNDS, LR, LAMBDA = 3, 0.05, 2.0


def estimated(i, state):
    norms = [row.pow(2).sum().sqrt() for row in state["out.weight"]]
    return [norm / sum(norms) for norm in norms]


@pytest.mark.parametrize("scope", ["output", "all"])
def test_cwfedavg_equals_plain_pytorch(scope):
    experiment = small_experiment(CwFedAvg(scope=scope), rounds=ROUNDS, dropout=0.0)
    prepared = experiment.prepare()
    data = prepared.data
    counts = torch.stack(
        [
            torch.bincount(data.images.labels_N[data.indices(i, "train")], minlength=4)
            for i in range(5)
        ]
    )
    n = counts.sum(1).tolist()
    models = [copy.deepcopy(prepared.model) for _ in range(5)]
    classwise = ("out.",) if scope == "output" else ("",)
    for round_ in range(1, ROUNDS + 1):
        models = [
            local_training(
                model,
                data.training_loader(i, round_),
                LR,
                wdr(LAMBDA, counts[i].double() / counts[i].sum(), "out.weight"),
            )
            for i, model in enumerate(models)
        ]
        uploads = [copy.deepcopy(model) for model in models]
        models = cwfedavg_server(models, n, estimated, classwise)
    state = run(experiment)
    assert_models_equal(state.received, models, 1e-10)
    assert_models_equal(state.uploads, uploads, 1e-10)
    with torch.no_grad():
        images = (data.images.images_NCHW.double() / 255 - 0.5) / 0.5
        for i, model in enumerate(uploads):
            test = data.indices(i, "test")
            correct = model.eval()(images[test]).argmax(1).eq(data.images.labels_N[test]).sum()
            assert state.post_local["test"][i, 0] == correct
            assert state.post_local["test"][i, 1] == len(test)


def test_methods_and_lambda_make_a_difference():
    weights = [
        run(experiment).received["out.weight"]
        for experiment in (
            small_experiment(CwFedAvg()),
            small_experiment(CwFedAvg(), objectives=[]),
            small_experiment(CwFedAvg(scope="all")),
            small_experiment(CwFedAvg(distribution="true")),
            small_experiment(FedAvg()),
            small_experiment(Local()),
            small_experiment(CwFedAvg(), seed=1),
        )
    ]
    for i, a in enumerate(weights):
        for b in weights[i + 1 :]:
            assert (a - b).abs().max() > 1e-6


def test_wdr_brings_r_down():
    def mean_r(objectives):
        records = []

        class Keep(LoopCallback):
            def on_round(self, record, state):
                records.append(record.mean_r)

        run(
            small_experiment(CwFedAvg(), objectives=objectives, rounds=8, wdr_lambda=10.0), [Keep()]
        )
        return records

    with_wdr, without = mean_r(None), mean_r([])
    assert with_wdr[-1] < 0.7 * with_wdr[0]
    assert with_wdr[-1] < 0.7 * without[-1]


def test_same_seed_same_bits_whatever_ran_before():
    first = run(small_experiment(dropout=0.5))
    torch.manual_seed(12345)
    torch.randn(1000)
    second = run(small_experiment(dropout=0.5))
    assert_same(first.received, second.received)
    assert torch.equal(first.post_local["test"], second.post_local["test"])


def test_a_run_leaves_the_global_generator_alone():
    torch.manual_seed(7)
    before = torch.random.get_rng_state()
    run(small_experiment(dropout=0.5, rounds=1))
    assert torch.equal(before, torch.random.get_rng_state())


def test_partial_participation():
    records, states = [], []

    class Keep(LoopCallback):
        def on_round(self, record, state):
            records.append(record)
            states.append(state)

    run(small_experiment(participation=0.4, rounds=6), [Keep()])
    assert all(len(record.participants) == 2 for record in records[1:])
    assert len({record.participants for record in records[1:]}) > 1
    for before, after, record in zip(states, states[1:], records[1:], strict=False):
        for client in range(5):
            same = torch.equal(
                before.uploads["hidden.weight"][client], after.uploads["hidden.weight"][client]
            )
            assert same == (client not in record.participants)
            if client not in record.participants:
                assert torch.equal(
                    before.post_local["test"][client], after.post_local["test"][client]
                )


def test_local_scores_the_clients_own_model():
    state = run(small_experiment(Local(), participation=0.4))
    assert_same(state.received, state.uploads)


def test_half_lambda_of_the_released_code():
    half = run(small_experiment(released_code=ReleasedCode(half_lambda=True)))
    explicit = run(small_experiment(wdr_lambda=1.0))
    assert_same(half.received, explicit.received)


def test_test_labels_in_p_of_the_released_code():
    experiment = small_experiment(released_code=ReleasedCode(test_labels_in_p=True))
    prepared = experiment.prepare()
    both = prepared.data.label_counts_MK("train") + prepared.data.label_counts_MK("test")
    assert torch.equal(prepared.label_counts_MK(), both)
    torch.testing.assert_close(
        prepared.loop().p_MK, both.double() / both.sum(1, keepdim=True).double()
    )
    assert not torch.equal(
        run(experiment).received["out.weight"], run(small_experiment()).received["out.weight"]
    )


def test_small_clients_train_unless_the_released_code_is_followed():
    client = LocalTraining(batch_size=1000)
    ours = run(small_experiment(client=client, rounds=1))
    theirs = run(
        small_experiment(
            client=client, rounds=1, released_code=ReleasedCode(skip_small_clients=True)
        )
    )
    initial = small_experiment().prepare().model.out.weight
    assert torch.equal(theirs.uploads["out.weight"], initial.expand(5, -1, -1))
    assert not torch.equal(ours.uploads["out.weight"][0], initial)

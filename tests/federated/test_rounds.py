"""The whole job against plain PyTorch."""

import copy

import pytest
import torch
from helpers import Keep, assert_same, run, small_experiment
from rounds import assert_models_equal, cwfedavg_server, local_training, wdr

from cwfed.aggregators import CwFedAvg, FedAvg, Local
from cwfed.federated import LocalTraining, ReleasedCode

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


def test_what_a_round_reports():
    """Received scores those models, R is that of the uploads, the loss the mean over clients."""
    kept = Keep()
    experiment = small_experiment(dropout=0.0)
    run(experiment, [kept])
    prepared = experiment.prepare()
    data = prepared.data
    images = (data.images.images_NCHW.double() / 255 - 0.5) / 0.5
    record, state = kept.records[-1], kept.states[-1]
    distances = []
    for i in range(5):
        test, train = data.indices(i, "test"), data.indices(i, "train")
        labels = data.images.labels_N
        for bank, score in ((state.received, record.received), (state.uploads, record.post_local)):
            model = copy.deepcopy(prepared.model).eval()
            model.load_state_dict({name: value[i] for name, value in bank.items()})
            logits = model(images[test])
            assert score["test"][i, 0] == logits.argmax(1).eq(labels[test]).sum()
            loss = torch.nn.functional.cross_entropy(logits, labels[test], reduction="sum")
            assert score["test"][i, 2].item() == pytest.approx(loss.item())
        p = torch.bincount(labels[train], minlength=4).double() / len(train)
        norms = state.uploads["out.weight"][i].norm(dim=1)
        distances.append((p - norms / norms.sum()).norm().item())
    assert record.mean_r == pytest.approx(sum(distances) / 5, abs=1e-12)
    assert not torch.equal(record.received["test"], record.post_local["test"])


def test_clients_without_steps_do_not_count_in_the_training_loss():
    kept = Keep()
    client = LocalTraining(batch_size=25)
    released = ReleasedCode(skip_small_clients=True)
    run(small_experiment(client=client, released_code=released, rounds=1), [kept])
    sizes = [len(c.train) for c in small_experiment().prepare().data.manifest.clients]
    assert min(sizes) < 25 <= max(sizes)
    assert kept.records[-1].train_loss > 0


def test_the_seed_decides_the_initialisation():
    a, b = (small_experiment(seed=seed).prepare().model.out.weight for seed in (0, 1))
    assert not torch.equal(a, b)


def test_batches_and_dropout_differ_by_client_and_round():
    data = small_experiment().prepare().data
    orders = {
        (client, round_): torch.argsort(torch.cat(list(data.training_loader(client, round_).plan)))
        for client in (0, 1)
        for round_ in (1, 2)
    }
    size = min(map(len, orders.values()))
    plans = {tuple(order[:size].argsort().tolist()) for order in orders.values()}
    assert len(plans) == 4


def test_a_prepared_run_can_be_run_twice():
    prepared = small_experiment(rounds=1).prepare()
    first = prepared.loop()
    a = first.run(first.initial_state(prepared.initialisation()))
    second = prepared.loop()
    b = second.run(second.initial_state(prepared.initialisation()))
    assert_same(dict(a.received), dict(b.received))


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
        kept = Keep()
        run(small_experiment(CwFedAvg(), objectives=objectives, rounds=8, wdr_lambda=10.0), [kept])
        return [record.mean_r for record in kept.records]

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
    kept = Keep()
    run(small_experiment(participation=0.4, rounds=6), [kept])
    records, states = kept.records, kept.states
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
    samples = prepared.loop().server.num_samples_M
    assert torch.equal(samples, prepared.data.label_counts_MK("train").sum(1))
    assert torch.equal(prepared.label_counts_MK(), both)
    torch.testing.assert_close(
        prepared.loop().p_MK, both.double() / both.sum(1, keepdim=True).double()
    )
    assert not torch.equal(
        run(experiment).received["out.weight"], run(small_experiment()).received["out.weight"]
    )


def test_validation_samples_are_no_training_samples():
    prepared = small_experiment(val_fraction=0.3).prepare()
    assert torch.equal(prepared.label_counts_MK(), prepared.data.label_counts_MK("train"))
    assert prepared.data.label_counts_MK("val").sum() > 0


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

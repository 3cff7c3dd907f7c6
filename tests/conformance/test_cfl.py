"""CFL against plain PyTorch, its limits, and what it splits."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from cfl_reference import cfl
from helpers import Keep, assert_same, run, small_experiment
from rounds import assert_models_equal

from cwfed.aggregators import CFL, FedAvg
from cwfed.aggregators.base import ServerContext, ServerRound
from cwfed.aggregators.cfl import CLUSTER, clusters
from cwfed.contract.spec import ModelSpec
from cwfed.data.partitioners import Dirichlet
from cwfed.data.sources import SyntheticImages
from cwfed.federated import Algorithm
from cwfed.functional.cfl import bipartition, cosines
from cwfed.runs.checkpoint import load_newest, save_checkpoint

ROUNDS = 4


def experiment(aggregator, **changes):
    algorithm = Algorithm("test", aggregator, [])
    return small_experiment(algorithm=algorithm, dropout=0.0, **{"rounds": ROUNDS} | changes)


def problem(of):
    data = of.prepare().data
    return SimpleNamespace(
        initial=of.prepare().model,
        n=[len(data.indices(i, "train")) for i in range(data.num_clients)],
        batches=data.training_loader,
        lr=0.05,
    )


def members(state):
    return sorted(part.tolist() for part in clusters(state.server))


@pytest.mark.parametrize(
    ("eps1", "eps2", "warm_up", "weighting", "sizes"),
    [
        (0.1, 0.1, 0, "samples", [2, 3, 3, 3]),
        (0.0625, 0.1, 0, "samples", [2, 2, 2, 2]),
        (9.0, 0.175, 0, "samples", None),
        (9.0, 0.0, 1, "uniform", [1, 2, 3, 3]),
        (0.1, 0.1, 0, "uniform", None),
    ],
)
def test_cfl_equals_plain_pytorch(eps1, eps2, warm_up, weighting, sizes):
    ours, kept = experiment(CFL(eps1, eps2, warm_up, weighting)), Keep()
    state = run(ours, [kept])
    received, uploads, history = cfl(
        problem(ours), ROUNDS, eps1, eps2, warm_up, weighting == "uniform"
    )
    assert [members(s) for s in kept.states[1:]] == history
    assert len(history[-1]) > 1, "a split must happen"
    assert sizes in (None, [len(parts) for parts in history])
    assert_models_equal(state.received, received)
    assert_models_equal(state.uploads, uploads)
    assert [r.figures["clusters"] for r in kept.records] == [1, *map(len, history)]


@pytest.mark.parametrize("settings", [(0.4, 1.6, 20), (0.0, 0.0, 0), (9.0, 9.0, 0), (9.0, 0.0, 4)])
def test_identity_without_a_split_cfl_is_fedavg(settings):
    ours, fedavg = run(experiment(CFL(*settings))), run(experiment(FedAvg()))
    assert members(ours) == [[0, 1, 2, 3, 4]]
    for name, value in fedavg.received.items():
        torch.testing.assert_close(ours.received[name], value, atol=1e-9, rtol=0)


def test_weighting_and_splits_make_a_difference():
    weights = [
        run(experiment(aggregator)).received["out.weight"]
        for aggregator in (CFL(), CFL(weighting="uniform"), CFL(9.0, 0.0, 0), CFL(9.0, 0.0, 1))
    ]
    for i, a in enumerate(weights):
        for b in weights[i + 1 :]:
            assert (a - b).abs().max() > 1e-5


def planted(contradict):
    """Clients 1, 3 and 4 call every class by the next one's name, or nobody does."""
    data = SyntheticImages(num_classes=4, samples_per_class=120, image_size=8)
    partition = Dirichlet(num_clients=6, alpha=100.0)
    ours = experiment(CFL(0.15, 0.3, 12), data=data, partition=partition, rounds=18)
    prepared = ours.prepare()
    labels_N = prepared.data.images.labels_N
    for client in (1, 3, 4) if contradict else ():
        for part in ("train", "test"):
            index = prepared.data.indices(client, part)
            labels_N[index] = (labels_N[index] + 1) % 4
    kept = Keep()
    loop = prepared.loop([kept])
    loop.run(loop.initial_state(prepared.initialisation()))
    return kept


def test_clients_that_contradict_each_other_are_told_apart_and_no_others():
    kept = planted(contradict=True)
    assert members(kept.states[12]) == [[0, 1, 2, 3, 4, 5]]
    for state in kept.states[13:]:
        assert members(state) == [[0, 2, 5], [1, 3, 4]]


def test_clients_that_agree_stay_together():
    assert members(planted(contradict=False).states[-1]) == [[0, 1, 2, 3, 4, 5]]


# The server alone, on four clients of one parameter whose updates have round norms.
MODEL = ModelSpec("head", "w", None, (("w", "v", "t"),), ("w",), ("v",), ("t",))
START = torch.tensor([[10.0, -20.0]], dtype=torch.float64).expand(4, 2)
APART = torch.tensor([[3.0, 4.0], [-3.0, 4.0], [3.0, 4.0], [-3.0, 4.0]], dtype=torch.float64)


def server_round(updates, n=(1, 1, 1, 1), start=START):
    size = len(updates)
    buffers = {"v": torch.arange(float(size))[:, None], "t": torch.arange(size)}
    uploads = {"w": start + updates, **buffers}
    server = ServerContext(torch.tensor(n), torch.ones(size, 2, dtype=torch.int64), MODEL)
    return ServerRound(uploads, {"w": start, **buffers}, torch.arange(size), None), server


def step(aggregator, updates, state=None, **changes):
    sent, server = server_round(updates, **changes)
    state = aggregator.init_state(server, sent.uploads) if state is None else state
    broadcast, state = aggregator.aggregate(sent, state, server)
    return broadcast.models, state


@pytest.mark.parametrize(
    ("eps1", "eps2", "parts"),
    [
        (4.001, 4.999, 2),
        (4.0, 4.999, 1),  # the mean update's norm is 4: not below
        (4.001, 5.0, 1),  # the largest update's norm is 5: not above
    ],
)
def test_both_thresholds_are_strict(eps1, eps2, parts):
    models, state = step(CFL(eps1, eps2, 0), APART)
    assert len(clusters(state)) == parts
    expected = START + (APART if parts == 2 else APART.mean(0))
    torch.testing.assert_close(models["w"], expected, atol=1e-12, rtol=0)


def test_the_mean_that_decides_is_weighted():
    updates, n = APART[[0, 1, 1]] * torch.tensor([1.0, 0.0]), (2, 1, 1)  # 3, -3 and -3
    start = START[:3]
    _, state = step(CFL(0.5, 1, 0), updates, n=n, start=start)
    assert len(clusters(state)) == 2, "the weighted mean is 0"
    _, state = step(CFL(0.5, 1, 0, "uniform"), updates, n=n, start=start)
    assert len(clusters(state)) == 1, "the plain mean is -1"
    models, _ = step(CFL(0, 1, 0), APART[:3], n=(3, 1, 4), start=start)
    torch.testing.assert_close(models["w"][0], START[0] + torch.tensor([2.25, 4.0]).double())


def test_two_members_stay_together():
    _, state = step(CFL(9, 0, 0), APART)
    for _ in range(3):
        _, state = step(CFL(9, 0, 0), APART * torch.tensor([[1.0], [1], [-1], [-1]]), state)
    assert [part.tolist() for part in clusters(state)] == [[0, 2], [1, 3]]


def test_the_warm_up_is_counted_over_rounds():
    state, found = None, []
    for _ in range(4):
        _, state = step(CFL(9, 0, 2), APART, state)
        found.append(len(clusters(state)))
    assert found == [1, 1, 2, 2]


def test_a_new_cluster_is_looked_at_again_in_the_next_round_only():
    g = torch.Generator().manual_seed(0)
    updates = torch.randn(8, 2, generator=g, dtype=torch.float64)
    start, state, found = START[:1].expand(8, 2), None, []
    for _ in range(4):
        _, state = step(CFL(9, 0, 0), updates, state, n=(1,) * 8, start=start)
        found.append(len(clusters(state)))
    assert found[0] == 2 < found[1]
    assert all(len(part) <= 2 for part in clusters(state))
    assert all(part[0] == state[CLUSTER][part].unique() for part in clusters(state))


def test_buffers_are_averaged_and_counters_peak_within_the_cluster():
    models, _ = step(CFL(9, 0, 0), APART, n=(1, 1, 3, 1))
    assert models["v"].flatten().tolist() == [1.5, 2, 1.5, 2]
    assert models["t"].tolist() == [2, 3, 2, 3]
    models, _ = step(CFL(9, 0, 0, aggregate_buffers=False), APART)
    assert models["v"].flatten().tolist() == [0, 1, 2, 3]
    assert models["t"].tolist() == [0, 1, 2, 3]


def test_an_update_that_is_not_a_number_splits_nothing():
    broken = APART.clone()
    broken[1] = torch.nan
    _, state = step(CFL(9, 0, 0), broken)
    assert len(clusters(state)) == 1
    assert all(value != value for name, value in CFL().figures(state).items() if "norm" in name)


def without(participants, state=None):
    """Return models and state after a round in which only some clients have sent an update."""
    sent, server = server_round(APART)
    sent = replace(sent, participants=torch.tensor(participants))
    aggregator = CFL(9, 0, 0)
    state = state or aggregator.init_state(server, sent.starts)
    broadcast, state = aggregator.aggregate(sent, state, server)
    return sent, broadcast, state


def test_a_cluster_with_a_missing_update_moves_by_the_others_and_is_not_split():
    sent, broadcast, state = without([0, 1, 3])
    assert len(clusters(state)) == 1
    for name in ("w", "v"):
        mean = (sent.uploads[name][0] + sent.uploads[name][1] + sent.uploads[name][3]) / 3
        torch.testing.assert_close(broadcast.models[name], mean.expand_as(sent.uploads[name]))
    assert len(clusters(without([0, 1, 2, 3])[2])) == 2
    assert broadcast.mixing["w"][:, 2].tolist() == [0] * 4


def test_a_cluster_without_any_update_stays():
    _, _, split = without([0, 1, 2, 3])
    gone = [part.tolist() for part in clusters(split)][1]
    present = [i for i in range(4) if i not in gone]
    sent, broadcast, state = without(present, split)
    for name, value in broadcast.models.items():
        assert torch.equal(value[gone], sent.starts[name][gone])
    assert not torch.equal(broadcast.models["w"][present], sent.starts["w"][present])
    assert broadcast.mixing["w"][gone].sum() == 0
    for name in ("mean_update_norm_M", "update_norm_M"):
        assert torch.equal(state[name][gone], split[name][gone])
        assert (split[name] > 0).all()


def test_clients_that_do_not_move_have_no_direction():
    updates = APART * torch.tensor([[1.0], [1], [0], [0]])
    _, state = step(CFL(9, 0, 0), updates)
    assert len(clusters(state)) == 2
    sent, _ = server_round(updates)
    alpha = cosines({"w": sent.uploads["w"]}, {"w": START}, torch.arange(4))
    assert (alpha[2:] == 0).all()
    torch.testing.assert_close(alpha[0, 1], torch.tensor(7 / 25, dtype=torch.float64))


def test_permuting_the_clients_permutes_everything():
    of = experiment(CFL(9.0, 0.0, 0))
    kept = Keep()
    run(of, [kept])
    server, order = of.prepare().loop().server, torch.tensor([3, 0, 4, 1, 2])
    permuted = replace(
        server,
        num_samples_M=server.num_samples_M[order],
        label_counts_MK=server.label_counts_MK[order],
    )
    uploads, starts = kept.states[1].uploads, kept.states[0].received
    results = []
    for who, known in ((torch.arange(5), server), (order, permuted)):
        banks = [{n: v[who] for n, v in bank.items()} for bank in (uploads, starts)]
        sent = ServerRound(*banks, who, None)
        state = CFL().init_state(known, sent.uploads)
        results.append(CFL(9.0, 0.0, 0).aggregate(sent, state, known))
    (sent, state), (other, theirs) = results
    for name, value in sent.models.items():
        torch.testing.assert_close(value[order], other.models[name], atol=1e-12, rtol=0)
    same = state[CLUSTER][:, None] == state[CLUSTER]
    assert torch.equal(same[order][:, order], theirs[CLUSTER][:, None] == theirs[CLUSTER])
    assert len(clusters(state)) == 2


def test_resume_gives_the_same_bits(tmp_path):
    ours, kept = experiment(CFL(0.1, 0.1, 0)), Keep()
    run(ours, [kept])
    assert [len(members(state)) for state in kept.states] == [1, 2, 3, 3, 3]
    for round_ in (1, 3):
        save_checkpoint(tmp_path / str(round_), kept.states[round_], "me", keep=1)
        last = run(ours, state=load_newest(tmp_path / str(round_), "me"))
        for field in ("uploads", "received", "anchors", "server", "post_local"):
            assert_same(dict(getattr(last, field)), dict(getattr(kept.states[-1], field)))


def test_partial_participation_is_refused_with_the_reason():
    with pytest.raises(ValueError, match=r"participation: expected 1 .* all its members have sent"):
        experiment(CFL(), participation=0.5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"eps1": -0.1}, "eps1: expected a number >= 0, got -0.1"),
        ({"eps2": float("nan")}, "eps2: expected a number >= 0, got nan"),
        ({"warm_up": -1}, "warm_up: expected an integer >= 0, got -1"),
        ({"warm_up": 1.5}, "warm_up: expected an integer >= 0, got 1.5"),
        ({"weighting": "size"}, "weighting: expected 'samples' or 'uniform', got 'size'"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        CFL(**arguments)


@pytest.mark.parametrize("seed", range(20))
def test_the_bipartition_is_that_of_scikit_learn(seed):
    from sklearn.cluster import AgglomerativeClustering

    g = torch.Generator().manual_seed(seed)
    vectors = torch.randn(3 + seed, 4, generator=g, dtype=torch.float64)
    alpha = cosines({"w": vectors}, {"w": torch.zeros_like(vectors)}, torch.arange(3 + seed))
    model = AgglomerativeClustering(2, metric="precomputed", linkage="complete")
    labels = torch.tensor(model.fit(1 - alpha.numpy()).labels_)
    assert torch.equal(bipartition(alpha), labels != labels[0])


def test_ties_go_by_client_id():
    assert bipartition(torch.ones(5, 5)).tolist() == [False, False, False, False, True]
    assert bipartition(torch.zeros(2, 2)).tolist() == [False, True]
    pairs = torch.eye(4, dtype=torch.float64)
    pairs[0, 3] = pairs[3, 0] = pairs[1, 2] = pairs[2, 1] = 0.5
    assert bipartition(pairs).tolist() == [False, True, True, False]
    lopsided = torch.tensor([[1, 0.5, 0.1], [0.6, 1, 0.1], [0.1, 0.1, 1]])  # rounding, exaggerated
    assert bipartition(lopsided).tolist() == [False, False, True]

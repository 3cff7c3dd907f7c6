"""IFCA against its equations."""

import copy
from dataclasses import replace

import pytest
import torch
from helpers import Keep, TinyNet, assert_same, run, small_experiment
from ifca_reference import best_centre, ifca
from planted import planted_experiment
from rounds import assert_models_equal

from cwfed.aggregators import IFCA, FedAvg, ServerContext
from cwfed.aggregators.base import ServerRound
from cwfed.aggregators.ifca import CENTRES, CHOICE
from cwfed.federated.sampler import UniformSampler
from cwfed.models import describe_model
from cwfed.runs.checkpoint import load_newest, save_checkpoint

LR = 0.05
CONCEPTS = [0, 1, 0, 1, 1]


def experiment(aggregator=None, **changes):
    return planted_experiment(aggregator or IFCA(), CONCEPTS, **{"rounds": 4} | changes)


def in_plain_pytorch(made, num_centres, uniform=False):
    prepared = made.prepare()
    data = prepared.data
    centres = [prepared.model]
    for k in range(1, num_centres):
        centres.append(copy.deepcopy(prepared.model))
        centres[k].load_state_dict(prepared.new_initialisation(k))
    images = (data.images.images_NCHW.double() / 255 - 0.5) / 0.5

    def training(i):
        part = data.indices(i, "train")
        return images[part], data.images.labels_N[part]

    sampler = UniformSampler(data.num_clients, made.participation, made.seed)
    schedule = [sampler.sample(r) for r in range(1, made.rounds + 1)]
    n = [len(data.indices(i, "train")) for i in range(data.num_clients)]
    outcome = ifca(centres, schedule, data.training_loader, training, n, LR, uniform)
    return *outcome, training


@pytest.mark.parametrize("num_centres", [2, 3])
@pytest.mark.parametrize("weighting", ["samples", "uniform"])
@pytest.mark.parametrize(("participation", "rounds"), [(1.0, 4), (0.4, 8)])
def test_equals_plain_pytorch(num_centres, weighting, participation, rounds):
    made = experiment(IFCA(num_centres, weighting), participation=participation, rounds=rounds)
    centres, uploads, choices, training = in_plain_pytorch(
        made, num_centres, weighting == "uniform"
    )
    kept = Keep()
    state = run(made, [kept])
    assert_models_equal({name: state.server[CENTRES + name] for name in state.uploads}, centres)
    for i, model in uploads.items():
        assert_models_equal({name: value[[i]] for name, value in state.uploads.items()}, [model])
    last = [best_centre(centres, *training(i)) for i in range(5)]
    assert state.server[CHOICE].tolist() == last
    assert_models_equal(state.received, [centres[k] for k in last])
    for before, choice in zip(kept.states[1:], choices[1:], strict=False):
        assert {i: int(before.server[CHOICE][i]) for i in choice} == choice
    assert any(len(set(choice.values())) > 1 for choice in choices), "both must be used"


def test_one_centre_is_fedavg():
    for participation in (1.0, 0.6):
        ours = run(experiment(IFCA(1), participation=participation))
        theirs = run(experiment(FedAvg(), participation=participation))
        for name, value in theirs.received.items():
            torch.testing.assert_close(ours.received[name], value, atol=1e-12, rtol=0)


def test_the_other_initialisations_are_different_and_fixed():
    prepared = small_experiment(IFCA()).prepare()
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    one, two = prepared.new_initialisation(1), prepared.new_initialisation(2)
    assert torch.equal(before, torch.random.get_rng_state())
    assert_same(small_experiment(IFCA()).prepare().new_initialisation(1), one)
    common = dict(prepared.model.named_parameters())["out.weight"]
    other_seed = small_experiment(IFCA(), seed=1).prepare().new_initialisation(1)
    drawn = [common, one["out.weight"], two["out.weight"], other_seed["out.weight"]]
    for k, a in enumerate(drawn):
        assert a.dtype == torch.float64
        assert all((a - b).abs().max() > 0.01 for b in drawn[k + 1 :])
    centres = prepared.loop().initial_state(prepared.initialisation()).server
    for k, value in enumerate(drawn[:2]):
        assert torch.equal(centres[CENTRES + "out.weight"][k], value)


def test_recovers_planted_groups_and_beats_fedavg():
    ours, theirs = Keep(), Keep()
    run(experiment(rounds=12), [ours])
    run(experiment(FedAvg(), rounds=12), [theirs])
    choice = ours.states[-1].server[CHOICE]
    groups = [set(choice[torch.tensor(CONCEPTS) == concept].tolist()) for concept in (0, 1)]
    assert sorted(groups, key=min) == [{0}, {1}]
    assert ours.records[-1].figures == {
        f"clients_of_centre_{k}": float((choice == k).sum()) for k in (0, 1)
    }
    scores = [kept.records[-1].received["test"].sum(0) for kept in (ours, theirs)]
    accuracy = [float(score[0] / score[1]) for score in scores]
    assert accuracy[0] > accuracy[1] + 0.1


def test_resumes_to_the_bit(tmp_path):
    made = experiment(participation=0.6, rounds=5)

    kept = Keep()
    whole = run(made, [kept])
    save_checkpoint(tmp_path, kept.states[2], "me", keep=1)
    rest = run(made, state=load_newest(tmp_path, "me"))
    assert_same(rest.received, whole.received)
    assert_same(rest.server, whole.server)


class FakeClients:
    """Loss: distance of a model's output layer to a target of each client's own."""

    def __init__(self, targets):
        self.targets, self.asked = targets, []

    def loss(self, clients, models, part):
        self.asked.append((clients.tolist(), part))
        weight = models["out.weight"].flatten(1)
        return (weight[clients] - self.targets[clients]).square().sum(1)


def setting(size=6, seed=0):
    g = torch.Generator().manual_seed(seed)
    model = TinyNet(4, 1, 8).double()
    named = dict((*model.named_parameters(), *model.named_buffers()))

    def draw(value, *rows):
        if value.is_floating_point():
            return torch.randn(*rows, *value.shape, generator=g, dtype=torch.float64)
        return torch.randint(1, 50, (*rows, *value.shape), generator=g)

    uploads = {name: draw(value, size) for name, value in named.items()}
    others = {k: {name: draw(value) for name, value in named.items()} for k in (1, 2)}
    first = {name: draw(value) for name, value in named.items()}
    initial = {name: value.expand(size, *value.shape) for name, value in first.items()}
    counts = torch.randint(1, 30, (size, 4), generator=g)
    sizes = {name: value[0].numel() * value.element_size() for name, value in uploads.items()}
    contract = describe_model(model, 4)
    server = ServerContext(counts.sum(1), counts, contract, sizes, others.__getitem__)
    targets = torch.randn(size, 32, generator=g, dtype=torch.float64)
    return uploads, initial, server, FakeClients(targets)


def round_(aggregator, uploads, initial, server, clients, who, state=None):
    state = dict(state or aggregator.init_state(server, initial))
    before = {name: value.clone() for name, value in state.items()}
    who = torch.as_tensor(list(who))
    starts, chosen = aggregator.select(initial, uploads, who, state, server, clients)
    sent = ServerRound(uploads, starts, who, clients)
    broadcast, after = aggregator.aggregate(sent, chosen, server)
    assert_same(state, before)
    return starts, chosen, broadcast.models, after


def test_a_known_choice_is_not_evaluated_again():
    uploads, initial, server, clients = setting()
    state = round_(IFCA(2), uploads, initial, server, clients, [1, 4])[3]
    assert clients.asked == [([1, 4], "train")] * 2 + [([0, 1, 2, 3, 4, 5], "train")] * 2
    clients.asked.clear()
    received, after = IFCA(2).select(uploads, uploads, torch.tensor([0, 2]), state, server, clients)
    assert_same(received, uploads)
    assert after is state
    assert not clients.asked


def test_the_choice_and_the_means_by_hand():
    uploads, initial, server, clients = setting()
    centres = [
        initial["out.weight"][0],
        *(server.new_initialisation(k)["out.weight"] for k in (1, 2)),
    ]
    starts, chosen, models, state = round_(IFCA(3), uploads, initial, server, clients, [0, 1, 3, 5])
    nearest = {}
    for i in (0, 1, 3, 5):
        lengths = [float((c.flatten() - clients.targets[i]).square().sum()) for c in centres]
        nearest[i] = lengths.index(min(lengths))
        assert torch.equal(starts["out.weight"][i], centres[nearest[i]])
    assert chosen[CHOICE].tolist() == [nearest.get(i, -1) for i in range(6)]
    assert len(set(nearest.values())) > 1
    for k in range(3):
        members = [i for i in nearest if nearest[i] == k]
        for name, value in uploads.items():
            now, start = state[CENTRES + name][k], IFCA(3).init_state(server, initial)
            if not members:
                assert torch.equal(now, start[CENTRES + name][k]), "an empty centre stays"
            elif value.is_floating_point():
                n = server.num_samples_M[members].double()
                mean = sum(w * value[i] for i, w in zip(members, n / n.sum(), strict=True))
                torch.testing.assert_close(now, mean, atol=1e-12, rtol=0)
            else:
                assert now == value[members].max()
    for i in range(6):
        assert torch.equal(models["out.weight"][i], state[CENTRES + "out.weight"][state[CHOICE][i]])


def test_permuting_the_clients_permutes_the_models():
    uploads, initial, server, clients = setting()
    order = torch.tensor([4, 2, 0, 5, 1, 3])
    permuted = replace(
        server,
        num_samples_M=server.num_samples_M[order],
        label_counts_MK=server.label_counts_MK[order],
    )
    _, _, models, state = round_(IFCA(2), uploads, initial, server, clients, range(6))
    shuffled = {name: value[order] for name, value in uploads.items()}
    others = FakeClients(clients.targets[order])
    _, _, moved, after = round_(IFCA(2), shuffled, initial, permuted, others, range(6))
    assert torch.equal(after[CHOICE], state[CHOICE][order])
    for name, value in models.items():
        torch.testing.assert_close(moved[name], value[order], atol=1e-12, rtol=0)


def test_an_upload_that_is_not_finite_stays_in_its_centre():
    uploads, initial, server, clients = setting()
    chosen = round_(IFCA(2), uploads, initial, server, clients, range(6))[1][CHOICE]
    assert set(chosen.tolist()) == {0, 1}
    lost = int((chosen == 1).nonzero()[0])
    for value in uploads.values():
        if value.is_floating_point():
            value[lost] = torch.nan
    _, _, models, state = round_(IFCA(2), uploads, initial, server, clients, range(6))
    for name in uploads:
        assert state[CENTRES + name][0].isfinite().all()
    assert (state[CHOICE] == 0).all(), "nobody takes a centre whose loss is not a number"
    assert all(value.isfinite().all() for value in models.values())


def test_ties_and_all_infinite_go_to_the_lower_centre():
    uploads, initial, server, clients = setting()
    tied = replace(server, new_initialisation=lambda k: {n: v[0] for n, v in initial.items()})
    for targets in (clients.targets, torch.full_like(clients.targets, torch.inf)):
        _, chosen, _, _ = round_(IFCA(3), uploads, initial, tied, FakeClients(targets), range(6))
        assert chosen[CHOICE].tolist() == [0] * 6


def test_buffers_can_stay_the_clients_own():
    uploads, initial, server, clients = setting()
    aggregator = IFCA(2, aggregate_buffers=False)
    starts, _, models, state = round_(aggregator, uploads, initial, server, clients, range(6))
    for name in (*server.model.float_buffers, *server.model.counters):
        assert torch.equal(models[name], uploads[name])
        assert torch.equal(starts[name], uploads[name])
        assert CENTRES + name not in state
    ours = run(experiment(IFCA(aggregate_buffers=False)))
    assert not torch.equal(
        ours.received["norm.running_var"][0], ours.received["norm.running_var"][2]
    )


def test_bytes():
    _, initial, server, _ = setting()
    model = sum(server.sizes.values())
    for aggregator, up, down in (
        (IFCA(3), model + 16, 3 * model),
        (IFCA(2, "uniform"), model + 8, 2 * model),
        (IFCA(1), model + 8, model),
    ):
        state = aggregator.init_state(server, initial)
        sent, got = aggregator.traffic(torch.tensor([0, 2]), state, server)
        assert (sent.tolist(), got.tolist()) == ([up] * 2, [down] * 2)


def test_a_server_without_other_initialisations_says_so():
    _, initial, server, _ = setting()
    bare = ServerContext(server.num_samples_M, server.label_counts_MK, server.model)
    with pytest.raises(RuntimeError, match="no other initialisation"):
        IFCA(2).init_state(bare, initial)


@pytest.mark.parametrize("value", [0, -1, 2.0, True])
def test_bad_num_centres_is_refused(value):
    with pytest.raises(ValueError, match="num_centres: expected an integer >= 1"):
        IFCA(num_centres=value)


def test_bad_weighting_is_refused():
    with pytest.raises(ValueError, match="weighting: expected 'samples' or 'uniform'"):
        IFCA(weighting="labels")

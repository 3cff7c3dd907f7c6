"""FedFomo against its equations."""

from dataclasses import replace

import pytest
import torch
from fedfomo_reference import fedfomo
from helpers import TinyNet, assert_same, run, small_experiment
from methods import experiment as method
from planted import planted_experiment
from rounds import assert_models_equal

from cwfed.aggregators import FedFomo, Local, ServerContext
from cwfed.aggregators.base import ServerRound
from cwfed.aggregators.fedfomo import OLD, UPLOADED, WEIGHTS, P, mix_finite
from cwfed.federated import Algorithm, LocalTraining, LoopCallback
from cwfed.federated.sampler import UniformSampler
from cwfed.functional.fedfomo import candidates, mixing_weights, raw_weights
from cwfed.models import describe_model
from cwfed.runs.checkpoint import load_newest, save_checkpoint

LR = 0.05


def experiment(num_models=3, **changes):
    aggregator = FedFomo(
        num_models=num_models,
        aggregate_buffers=changes.pop("buffers", True),
        fallback=changes.pop("fallback", "before_training"),
    )
    settings = {"algorithm": Algorithm("fedfomo", aggregator, []), "dropout": 0.0, "rounds": 5}
    return small_experiment(**settings | changes)


def reference(made, num_models, fallback):
    prepared = made.prepare()
    data = prepared.data
    sampler = UniformSampler(data.num_clients, made.participation, made.seed)
    images = (data.images.images_NCHW.double() / 255 - 0.5) / 0.5

    def kept(i):
        part = data.indices(i, "holdout")
        assert len(part) > 0
        assert not set(part.tolist()) & set(data.indices(i, "train").tolist())
        return images[part], data.images.labels_N[part]

    schedule = [sampler.sample(r) for r in range(1, made.rounds + 1)]
    lr, batches = (
        made.client.optimizer([torch.zeros(1)]).param_groups[0]["lr"],
        data.training_loader,
    )
    return fedfomo(prepared.model, 5, schedule, batches, kept, lr, num_models, fallback)


FALLBACKS = ("before_training", "trained")


@pytest.mark.parametrize("fallback", FALLBACKS)
@pytest.mark.parametrize("num_models", [3, 5, 9])
@pytest.mark.parametrize(("participation", "rounds"), [(1.0, 5), (0.4, 9)])
def test_equals_plain_pytorch(num_models, participation, rounds, fallback):
    made = experiment(num_models, participation=participation, rounds=rounds, fallback=fallback)
    uploads, preferences, log = reference(made, num_models, fallback)
    state = run(made)
    assert_models_equal(state.uploads, uploads)
    torch.testing.assert_close(state.server[P], preferences, atol=1e-9, rtol=0)
    weights = [(i, n, w) for (_, i), found in log.items() for n, w in found.items()]
    assert sum(w > 0 for i, n, w in weights if n != i) > 3, "others must help"
    assert sum(w < 0 for i, n, w in weights if n != i) > 3, "others must harm"
    if num_models == 3:
        chosen = [set(found) for found in log.values()]
        assert len(set(map(frozenset, chosen))) > 3, "preferences must decide"


# Steps so long that training often makes a client worse on the kept part.
LONG = LocalTraining(8, 1, lambda parameters: torch.optim.SGD(parameters, lr=1.0))


@pytest.mark.parametrize("fallback", FALLBACKS)
@pytest.mark.parametrize("participation", [1.0, 0.6])
def test_without_help_a_client_goes_where_its_reference_goes(fallback, participation):
    changes = {"client": LONG, "rounds": 9, "participation": participation}
    made = experiment(2, fallback=fallback, **changes)
    uploads, preferences, log = reference(made, 2, fallback)
    state = run(made)
    assert_models_equal(state.uploads, uploads, tolerance=1e-7)
    torch.testing.assert_close(state.server[P], preferences, atol=1e-7, rtol=0)
    alone = [key for key, found in log.items() if max(found.values()) <= 0]
    assert 1 < len(alone) < len(log), "some are helped, and some are not"


def test_the_fallbacks_differ():
    ends = [run(experiment(2, client=LONG, fallback=f)).uploads["out.weight"] for f in FALLBACKS]
    assert (ends[0] - ends[1]).abs().max() > 1e-3


def test_the_shipped_method_goes_back_and_one_without_a_fallback_does_not(tmp_path):
    """Configurations that were written before there was a choice mean what they meant."""
    assert method("fedfomo", tmp_path).algorithm.aggregator.fallback == "before_training"
    keeps = ["--algorithm.aggregator.fallback", "trained"]
    assert method("fedfomo", tmp_path, *keeps).algorithm.aggregator.fallback == "trained"
    assert FedFomo().fallback == "trained"


def test_scores_its_own_model_before_the_next_mix():
    state = run(experiment(rounds=2))
    assert_same(state.received, state.uploads)


def test_alone_it_is_local_training_on_the_same_part():
    local = Local()
    local.holdout_fraction = 0.2
    expected = run(experiment(algorithm=Algorithm("local", local, [])))
    assert_same(run(experiment(num_models=1)).uploads, expected.uploads)
    assert not torch.equal(run(experiment()).uploads["out.weight"], expected.uploads["out.weight"])


def test_its_buffers_can_stay_its_own():
    buffers = run(experiment(buffers=False)).uploads["norm.running_mean"]
    assert not torch.equal(buffers, run(experiment()).uploads["norm.running_mean"])


def test_resumes_to_the_bit(tmp_path):
    made = experiment(participation=0.6, rounds=6)

    class Save(LoopCallback):
        def on_round(self, record, state):
            if state.round == 3:
                save_checkpoint(tmp_path, state, "me", keep=1)

    whole = run(made, [Save()])
    rest = run(made, state=load_newest(tmp_path, "me"))
    assert_same(rest.uploads, whole.uploads)
    assert_same(rest.server, whole.server)


def test_prefers_a_client_of_the_same_concept():
    made = planted_experiment(FedFomo(num_models=4), [0, 0, 1, 1], rounds=8)
    preferences = run(made).server[P]
    for client, friend in enumerate([1, 0, 3, 2]):
        strangers = [j for j in range(4) if j not in (client, friend)]
        assert preferences[client, friend] > 0.1
        assert preferences[client, strangers].max() < preferences[client, friend] - 0.1


class FakeClients:
    """Loss: squared distance to a target of each client's own, as slopes differ."""

    def __init__(self, targets, broken=()):
        self.targets, self.broken, self.asked = targets, broken, []

    def loss(self, clients, models, part):
        self.asked.append((clients.tolist(), part))
        weight = models["out.weight"].flatten(1)
        loss = (weight[clients] - self.targets[clients]).square().sum(1)
        for value in self.broken:
            loss[(weight[clients, 0] == value)] = torch.nan
        return loss


def setting(size=6, seed=0):
    g = torch.Generator().manual_seed(seed)
    model = TinyNet(4, 1, 8).double()
    named = (*model.named_parameters(), *model.named_buffers())

    def draw(value):
        if value.is_floating_point():
            return torch.randn(size, *value.shape, generator=g, dtype=torch.float64)
        return torch.randint(1, 50, (size, *value.shape), generator=g)

    uploads, initial = ({name: draw(value) for name, value in named} for _ in range(2))
    counts = torch.ones(size, 4, dtype=torch.int64)
    server = ServerContext(counts.sum(1), counts, describe_model(model, 4))
    targets = torch.randn(size, 32, generator=g, dtype=torch.float64)
    preferences = torch.rand(size, size, generator=g, dtype=torch.float64)
    return uploads, initial, server, targets, preferences


def select(aggregator, uploads, initial, server, clients, preferences, who, uploaded=None):
    state = dict(aggregator.init_state(server, initial))
    state[P] = preferences
    everyone = torch.ones(server.num_clients, dtype=torch.bool)
    state[UPLOADED] = everyone if uploaded is None else uploaded
    before = {name: value.clone() for name, value in state.items()}
    starts, after = aggregator.select(
        uploads, uploads, torch.as_tensor(who), state, server, clients
    )
    assert_same(state, before)
    return starts, after


def test_permuting_the_clients_permutes_the_mixes():
    uploads, initial, server, targets, preferences = setting()
    order = torch.tensor([4, 2, 0, 5, 1, 3])
    starts, state = select(
        FedFomo(3), uploads, initial, server, FakeClients(targets), preferences, range(6)
    )
    other, permuted = select(
        FedFomo(3),
        {name: value[order] for name, value in uploads.items()},
        {name: value[order] for name, value in initial.items()},
        server,
        FakeClients(targets[order]),
        preferences[order][:, order],
        range(6),
    )
    for name, value in starts.items():
        torch.testing.assert_close(other[name], value[order], atol=1e-12, rtol=0)
    torch.testing.assert_close(permuted[P], state[P][order][:, order], atol=1e-12, rtol=0)
    assert (state[P] - preferences).fill_diagonal_(0).gt(0).any()


def test_only_participants_mix_and_only_with_uploads():
    uploads, initial, server, targets, preferences = setting()
    uploaded = torch.tensor([True, True, False, True, False, False])
    preferences[:, 2] = 100.0
    clients = FakeClients(targets)
    starts, state = select(
        FedFomo(5), uploads, initial, server, clients, preferences, [0, 2, 3], uploaded
    )
    assert clients.asked == [([0, 3], "holdout")] * 4, "the old model and three uploads"
    moved = (state[P] != preferences).nonzero().tolist()
    assert moved == [[i, j] for i in (0, 3) for j in (0, 1, 3)]
    for client in (1, 2, 4, 5):
        for name, value in starts.items():
            assert torch.equal(value[client], uploads[name][client])
            assert torch.equal(state[OLD + name][client], initial[name][client])
    for client in (0, 3):
        assert torch.equal(state[OLD + "out.weight"][client], starts["out.weight"][client])


def test_aggregate_keeps_the_uploads_and_remembers_who_sent_one():
    uploads, initial, server, _, _ = setting()
    aggregator = FedFomo()
    state = aggregator.init_state(server, initial)
    sent = ServerRound(uploads, uploads, torch.tensor([1, 4]), None)
    broadcast, after = aggregator.aggregate(sent, state, server)
    assert_same(broadcast.models, uploads)
    assert after[UPLOADED].tolist() == [False, True, False, False, True, False]
    assert not state[UPLOADED].any()


def test_counters_take_the_maximum_over_the_models_mixed():
    uploads, initial, server, targets, preferences = setting()
    starts, state = select(
        FedFomo(6), uploads, initial, server, FakeClients(targets), preferences, range(6)
    )
    raw = state[P] - preferences
    name = "norm.num_batches_tracked"
    mixed = 0
    for i in range(6):
        positive = (raw[i] > 1e-12).nonzero()[:, 0].tolist() or [i]
        mixed += len(positive) > 1
        assert starts[name][i] == uploads[name][positive].max()
    assert mixed > 1


@pytest.mark.parametrize("num_models", [2, 6])
def test_a_candidate_that_is_not_finite_never_spreads(num_models):
    uploads, initial, server, targets, preferences = setting()
    preferences[:, 3] = 10.0
    for value in uploads.values():
        if value.is_floating_point():
            value[3] = torch.nan
    starts, state = select(
        FedFomo(num_models), uploads, initial, server, FakeClients(targets), preferences, range(6)
    )
    assert torch.equal(state[P][:, 3], preferences[:, 3])
    assert state[P].isfinite().all()
    for name, value in starts.items():
        assert value[[0, 1, 2, 4, 5]].isfinite().all(), name
    if num_models == 6:
        assert starts["out.weight"][3].isfinite().all(), "a diverged client recovers"


def test_a_loss_that_is_not_finite_weighs_nothing():
    uploads, initial, server, targets, preferences = setting()
    broken = [uploads["out.weight"][3].flatten()[0]]
    _, state = select(
        FedFomo(6), uploads, initial, server, FakeClients(targets, broken), preferences, range(6)
    )
    assert torch.equal(state[P][:, 3], preferences[:, 3])
    assert not torch.equal(state[P][:, 2], preferences[:, 2])
    broken = initial["out.weight"].flatten(1)[:, 0]
    starts, state = select(
        FedFomo(6), uploads, initial, server, FakeClients(targets, broken), preferences, range(6)
    )
    assert torch.equal(state[P], preferences)
    assert_same(starts, uploads)


class Worse:
    """The old models have loss 1, and every upload more, but for the helped clients."""

    def __init__(self, helped):
        self.helped, self.first = helped, True

    def loss(self, clients, models, part):
        if self.first:
            self.first = False
            return torch.ones(len(clients))
        return torch.where(torch.isin(clients, self.helped), 0.5, 2.0)


@pytest.mark.parametrize("fallback", FALLBACKS)
@pytest.mark.parametrize("buffers", [True, False])
@pytest.mark.parametrize("helped", [[1, 4], [], [0, 1, 2, 4, 5], [4, 5]])
def test_who_is_helped_by_nobody(fallback, buffers, helped):
    uploads, initial, server, _, preferences = setting()
    who = [0, 1, 2, 4, 5]
    starts, state = select(
        FedFomo(6, aggregate_buffers=buffers, fallback=fallback),
        *(uploads, initial, server, Worse(torch.tensor(helped)), preferences, who),
    )
    for client in set(who) - set(helped):
        expected = initial if fallback == "before_training" else uploads
        for name, value in starts.items():
            assert torch.equal(value[client], expected[name][client]), name
            assert torch.equal(state[OLD + name][client], expected[name][client]), name
        own = torch.eye(6, dtype=torch.float64)[client] * (fallback == "trained")
        assert torch.equal(state[WEIGHTS][client], own)
        assert (state[P][client] < preferences[client]).all()
    for client in helped:
        assert (state[WEIGHTS][client] > 0).all()
        name = "out.weight"
        mixed = (state[WEIGHTS][client] @ uploads[name].flatten(1)).reshape(4, -1)
        torch.testing.assert_close(starts[name][client], mixed)
        assert torch.equal(state[OLD + name][client], starts[name][client])
    for name, value in starts.items():
        assert torch.equal(value[3], uploads[name][3])
        assert torch.equal(state[OLD + name][3], initial[name][3])


def test_ties_go_to_the_lower_id():
    uploaded = torch.ones(5, dtype=torch.bool)
    preferences = torch.eye(5, dtype=torch.float64)
    ids = candidates(preferences, uploaded, torch.tensor([0, 3]), 3)
    assert ids.tolist() == [[0, 1, 2], [3, 0, 1]]
    many = candidates(torch.eye(500), torch.ones(500, dtype=torch.bool), torch.tensor([9]), 500)
    assert many.tolist() == [[9, *range(9), *range(10, 500)]]
    preferences[3] = torch.tensor([-2.0, -1.0, -3.0, -9.0, -1.0])
    assert candidates(preferences, uploaded, torch.tensor([3]), 4).tolist() == [[3, 1, 4, 0]]


def test_weights_by_hand():
    raw = raw_weights(torch.tensor([2.0]), torch.tensor([[1.0, 1.0, 3.0, 2.0]]), torch.ones(1, 4))
    torch.testing.assert_close(raw, torch.tensor([[1.0, 1.0, -1.0, 0.0]]).double() / 1.00001)
    same_place = raw_weights(torch.tensor([2.0]), torch.tensor([[1.0]]), torch.zeros(1, 1))
    torch.testing.assert_close(same_place, torch.tensor([[1e5]]).double())
    far = raw_weights(torch.ones(1), torch.zeros(1, 2), torch.tensor([[torch.inf, torch.nan]]))
    assert far.tolist() == [[0.0, 0.0]]
    some = mixing_weights(torch.tensor([[-1.0, 0.0, -2.0], [3.0, -5.0, 1.0]]))
    assert some.tolist() == [[0.0, 0.0, 0.0], [0.75, 0.0, 0.25]]


def test_bytes():
    uploads, initial, server, _, _ = setting()
    sizes = {name: value[0].numel() * value.element_size() for name, value in uploads.items()}
    server = replace(server, sizes=sizes)
    model, aggregator = sum(sizes.values()), FedFomo(3)
    state = dict(aggregator.init_state(server, initial))
    state[UPLOADED] = torch.tensor([True, True, True, True, False, False])
    up, down = aggregator.traffic(torch.tensor([0, 5]), state, server)
    assert up.tolist() == [model + 3 * 8, model]
    assert down.tolist() == [2 * model, model]


@pytest.mark.parametrize("value", [0, -1, 2.5, True])
def test_bad_num_models_is_refused(value):
    with pytest.raises(ValueError, match="num_models: expected an integer >= 1"):
        FedFomo(num_models=value)


@pytest.mark.parametrize("value", [0, 1, -0.1, 1.5, float("nan")])
def test_bad_holdout_fraction_is_refused(value):
    with pytest.raises(ValueError, match="holdout_fraction: expected a number between 0 and 1"):
        FedFomo(holdout_fraction=value)


@pytest.mark.parametrize("value", ["keep", None, True])
def test_bad_fallback_is_refused(value):
    with pytest.raises(ValueError, match="fallback: expected 'before_training' or 'trained', got"):
        FedFomo(fallback=value)


def test_clients_that_keep_their_own_broken_model_do_not_touch_the_uploads():
    uploads = torch.randn(3, 2)
    uploads[1] = torch.nan
    version = uploads._version
    mixed = mix_finite(torch.eye(3, dtype=torch.float64), uploads)
    assert mixed[1].isnan().all()
    assert torch.equal(mixed[[0, 2]], uploads[[0, 2]])
    assert uploads._version == version

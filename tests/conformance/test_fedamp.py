"""FedAMP against plain PyTorch, its limits, and what its attention looks at."""

import logging
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import yaml
from fedamp_reference import fedamp, pull_without_gradient, squared_distance
from helpers import Keep, assert_same, run, small_experiment
from methods import experiment as method
from rounds import assert_models_equal

from cwfed.aggregators import FedAMP, FedAvg, Local
from cwfed.aggregators.base import ServerRound
from cwfed.aggregators.fedamp import ATTENTION, UPLOADED
from cwfed.config.files import config_root
from cwfed.data.partitioners import IID, Dirichlet
from cwfed.data.sources import SyntheticImages
from cwfed.federated import Algorithm, LocalTraining, TrainerOptions
from cwfed.functional.fedamp import attention, attentive_mixture, squared_distances
from cwfed.objectives import AttentionProximal, Proximal
from cwfed.records.scalars import flatten
from cwfed.runs.checkpoint import load_newest, save_checkpoint

ROUNDS, ALPHA, SIGMA, LAMBDA = 4, 0.3, 1.2, 0.3
RELEASED = {"alpha": 1000.0, "sigma": 0.1}
# Steps so long that the clients' models end up far apart.
FAR = LocalTraining(8, 10, lambda parameters: torch.optim.SGD(parameters, lr=0.5))


def experiment(aggregator=None, terms=None, **changes):
    aggregator = FedAMP(ALPHA, SIGMA) if aggregator is None else aggregator
    terms = [AttentionProximal(LAMBDA)] if terms is None else terms
    algorithm = Algorithm("test", aggregator, terms)
    return small_experiment(algorithm=algorithm, dropout=0.0, **{"rounds": ROUNDS} | changes)


def problem(of):
    prepared = of.prepare()
    return SimpleNamespace(
        initial=prepared.model,
        clients=prepared.data.num_clients,
        batches=prepared.data.training_loader,
        lr=0.05,
        participants=of.prepare().loop().sampler.sample,
    )


@pytest.fixture(scope="module")
def trained():
    """The server's knowledge, and a bank of models that local training left different."""
    of = experiment(Local(), [])
    return of.prepare().loop().server, dict(run(of).uploads)


def step(aggregator, uploads, server, participants=range(5), state=None):
    state = aggregator.init_state(server, uploads) if state is None else state
    sent = ServerRound(uploads, uploads, torch.as_tensor(list(participants)), None)
    return aggregator.aggregate(sent, state, server)


@pytest.mark.parametrize("participation", [1.0, 0.4])
def test_fedamp_equals_plain_pytorch(participation):
    ours = experiment(participation=participation)
    state = run(ours)
    models, u, c = fedamp(problem(ours), ROUNDS, LAMBDA, ALPHA, SIGMA)
    assert_models_equal(state.uploads, models)
    assert_same(dict(state.received), dict(state.uploads))
    for i, u_i in enumerate(u):
        for name, value in u_i.items():
            torch.testing.assert_close(state.anchors[name][i], value, atol=1e-9, rtol=0)
    torch.testing.assert_close(state.server[ATTENTION], c, atol=1e-9, rtol=0)
    if participation == 1:
        others = c[~torch.eye(5, dtype=torch.bool)]
        assert ((others > 0.05) & (others < 0.5)).all(), "attention must act"
        local = run(experiment(Local(), [], participation=participation))
        assert (local.uploads["out.weight"] - state.uploads["out.weight"]).abs().max() > 1e-3


@pytest.mark.parametrize("clients", [5, 9])
def test_without_alpha_it_is_sigma_over_the_number_of_clients(clients):
    """On both sides of the method: in c_ij, and in the strength of the pull."""
    ours = experiment(
        FedAMP(sigma=SIGMA),
        [AttentionProximal(0.1)],
        partition=Dirichlet(num_clients=clients, alpha=0.5, min_samples=8),
    )
    state = run(ours)
    models, _, c = fedamp(problem(ours), ROUNDS, 0.1, None, SIGMA)
    assert_models_equal(state.uploads, models)
    torch.testing.assert_close(state.server[ATTENTION], c, atol=1e-9, rtol=0)
    assert c.sum(1).max() > 0.2, "attention must act"


@pytest.mark.parametrize("clients", [2, 20, 300])
def test_without_alpha_the_mass_stays_below_one_for_any_models(trained, clients):
    server, uploads = trained
    server = replace(server, num_samples_M=torch.ones(clients, dtype=torch.int64))
    alike = {name: value[:1].repeat_interleave(clients, 0) for name, value in uploads.items()}
    aggregator = FedAMP(sigma=SIGMA)
    _, state = step(aggregator, alike, server, range(clients))
    c = state[ATTENTION]
    expected = 1 / torch.full((clients, clients), clients, dtype=torch.float64)
    torch.testing.assert_close(c, expected.fill_diagonal_(0), atol=1e-15, rtol=0)
    figures = aggregator.figures(state)
    assert figures["off_diagonal_mass_max"] == pytest.approx(1 - 1 / clients)
    assert figures["self_weight_min"] == pytest.approx(1 / clients)


class WithoutGradient(AttentionProximal):
    def value(self, step, client):
        return super().value(step, client).detach()


@pytest.mark.parametrize("precision", ["32-true", "64-true"])
def test_released_is_local_to_the_bit_since_no_gradient_comes_from_its_term(precision):
    """The mechanism: everything that FedAMP computes with these settings, cut off the graph."""
    changes = {"rounds": 2, "trainer": TrainerOptions("cpu", precision, engine="sequential")}
    kept = Keep()
    ours = run(experiment(FedAMP(**RELEASED), [WithoutGradient(1.0)], **changes), [kept])
    assert kept.states[1].server[ATTENTION].max() > 1, "there must be something to cut off"
    local = Keep()
    assert_same(
        dict(run(experiment(Local(), [], **changes), [local]).received), dict(ours.received)
    )
    assert_same(dict(local.states[-1].post_local), dict(kept.states[-1].post_local))
    acting = run(experiment(FedAMP(**RELEASED), [AttentionProximal(1.0)], **changes))
    assert not torch.equal(acting.received["out.weight"], ours.received["out.weight"])


def test_released_in_plain_pytorch_is_the_shipped_method(tmp_path):
    shipped = method("fedamp_released", tmp_path, "--rounds", "2", "--model.dropout", "0")
    models, u, _ = fedamp(problem(shipped), 2, 1.0, **RELEASED, pull=pull_without_gradient)
    assert_models_equal(run(shipped).received, models)
    apart = [u_i["out.weight"] - m.out.weight for u_i, m in zip(u, models, strict=True)]
    assert max(value.abs().max() for value in apart) > 1e-3, "the term must have something to say"


def test_the_shipped_settings_act_where_the_released_ones_with_a_gradient_break_down():
    """Many clients that are alike: their models stay near each other after a round."""
    shipped = yaml.safe_load((config_root() / "algorithm" / "fedamp.yaml").read_text())["algorithm"]
    arguments = shipped["aggregator"]["init_args"]
    assert arguments.pop("alpha") is None
    (term,) = shipped["objectives"]
    (weight,) = term["init_args"].values()
    changes = {
        "partition": IID(num_clients=20),
        "data": SyntheticImages(num_classes=4, samples_per_class=100, image_size=8),
        "rounds": 3,
    }
    losses = {}
    for name, aggregator, terms in (
        ("local", Local(), []),
        ("released", FedAMP(**RELEASED), [AttentionProximal(1.0)]),
        ("shipped", FedAMP(**arguments), [AttentionProximal(weight)]),
    ):
        kept = Keep()
        run(experiment(aggregator, terms, **changes), [kept])
        losses[name] = max(record.train_loss for record in kept.records[1:])
        if name == "shipped":
            masses = [record.figures["off_diagonal_mass_max"] for record in kept.records[1:]]
    assert losses["released"] > 100 * losses["local"]
    assert losses["shipped"] < 1.1 * losses["local"]
    assert all(0.5 < mass < 1 for mass in masses)


def test_released_is_the_configuration_of_local_under_another_name():
    def content(name):
        path = config_root() / "algorithm" / f"{name}.yaml"
        return yaml.safe_load(path.read_text(encoding="utf-8"))["algorithm"]

    assert content("fedamp_released") == content("local") | {"name": "fedamp_released"}


def test_identity_without_the_term_or_its_weight_fedamp_is_local():
    local = run(experiment(Local(), []))
    for terms in ([AttentionProximal(0.0)], []):
        assert_same(dict(run(experiment(terms=terms)).received), dict(local.received))


def test_identity_with_far_models_the_released_settings_are_local_training_with_a_weak_pull():
    ours = run(experiment(FedAMP(**RELEASED), [AttentionProximal()], client=FAR))
    assert ours.server[ATTENTION].max() < 1e-12
    weak = run(experiment(Local(), [Proximal(1 / 1000)], client=FAR))
    for name, value in weak.received.items():
        torch.testing.assert_close(ours.received[name], value, atol=1e-9, rtol=0)


def test_identity_with_one_model_for_all_every_mixture_is_that_model(trained):
    server, uploads = trained
    same = {name: value[:1].expand_as(value) for name, value in uploads.items()}
    sent, _ = step(FedAMP(**RELEASED), same, server)
    for name in server.model.parameters:
        torch.testing.assert_close(sent.anchors[name], same[name], atol=1e-10, rtol=0)


def test_far_clients_are_pulled_to_their_own_model_to_the_bit(trained):
    server, uploads = trained
    far = {name: value * 5 for name, value in uploads.items()}
    sent, state = step(FedAMP(**RELEASED), far, server)
    assert 0 < state[ATTENTION].max() < 1e-20
    assert_same({n: sent.anchors[n] for n in far}, far)


def test_attention_favours_clients_with_similar_data():
    ours = experiment(
        FedAMP(0.004, 0.02),
        [AttentionProximal(0.004)],
        client=LocalTraining(8, 3, lambda parameters: torch.optim.SGD(parameters, lr=0.05)),
        partition=Dirichlet(num_clients=6, alpha=100.0),
    )
    prepared = ours.prepare()
    labels_N = prepared.data.images.labels_N
    for client in (1, 3, 4):  # for these the labels mean something else
        index = prepared.data.indices(client, "train")
        labels_N[index] = (labels_N[index] + 1) % 4
    loop = prepared.loop()
    c = loop.run(loop.initial_state(prepared.initialisation())).server[ATTENTION]
    kind = torch.tensor([0, 1, 0, 1, 1, 0])
    alike = kind[:, None] == kind
    assert c[alike & ~torch.eye(6, dtype=torch.bool)].min() > 1.5 * c[~alike].max()


def test_permuting_the_clients_permutes_everything(trained):
    server, uploads = trained
    order = torch.tensor([3, 0, 4, 1, 2])
    permuted = replace(server, num_samples_M=server.num_samples_M[order])
    sent, state = step(FedAMP(ALPHA, SIGMA), uploads, server)
    other, theirs = step(FedAMP(ALPHA, SIGMA), {n: v[order] for n, v in uploads.items()}, permuted)
    for name, value in sent.anchors.items():
        torch.testing.assert_close(value[order], other.anchors[name], atol=1e-12, rtol=0)
    torch.testing.assert_close(state[ATTENTION][order][:, order], theirs[ATTENTION])


def test_who_never_uploaded_is_nobodys_peer(trained):
    server, uploads = trained
    sent, state = step(FedAMP(ALPHA, SIGMA), uploads, server, [1, 3])
    assert state[UPLOADED].tolist() == [False, True, False, True, False]
    c = state[ATTENTION]
    assert c[1, 3] == c[3, 1] > 0.05
    assert c.count_nonzero() == 2
    for client in (0, 2, 4):
        assert torch.equal(sent.anchors["out.weight"][client], uploads["out.weight"][client])
    _, state = step(FedAMP(ALPHA, SIGMA), uploads, server, [0], state)
    assert state[UPLOADED].tolist() == [True, True, False, True, False]
    assert state[ATTENTION].count_nonzero() == 6, "earlier uploads count on"


def test_buffers_stay_the_clients_own(trained):
    server, uploads = trained
    sent, _ = step(FedAMP(ALPHA, SIGMA), uploads, server)
    for name in (*server.model.float_buffers, *server.model.counters):
        assert torch.equal(sent.models[name], uploads[name])


def test_a_model_that_is_not_a_number_stays_alone(trained):
    server, uploads = trained
    for bad in (torch.nan, torch.inf):
        broken = {name: value.clone() for name, value in uploads.items()}
        broken["out.weight"][2] = bad
        sent, state = step(FedAMP(ALPHA, SIGMA), broken, server)
        assert state[ATTENTION][2].count_nonzero() == state[ATTENTION][:, 2].count_nonzero() == 0
        others = [0, 1, 3, 4]
        assert sent.anchors["out.weight"][others].isfinite().all()
        assert not torch.equal(sent.anchors["out.weight"][others], uploads["out.weight"][others])


def test_mass_above_one_is_logged_once_a_round(caplog):
    logger = logging.getLogger("cwfed")
    logger.addHandler(caplog.handler)
    try:
        kept = Keep()
        run(experiment(FedAMP(**RELEASED), [AttentionProximal()], rounds=2), [kept])
        warnings = [r.getMessage() for r in caplog.records if "sum to more than 1" in r.msg]
        assert len(set(warnings)) == 2
        assert "5 of 5 clients" in warnings[0]
        caplog.clear()
        run(experiment(rounds=2, aggregator=FedAMP(0.2, 1.0)))
        run(experiment(rounds=2, aggregator=FedAMP()))
        assert not caplog.records
    finally:
        logger.removeHandler(caplog.handler)
    assert kept.records[-1].figures["off_diagonal_mass_max"] > 1


def test_mass_and_self_weight_are_recorded_every_round():
    kept = Keep()
    run(experiment(), [kept])
    for record, state in zip(kept.records, kept.states, strict=True):
        mass = state.server[ATTENTION].sum(1)
        assert record.to_line()["method"] == {
            "off_diagonal_mass_mean": mass.mean().item(),
            "off_diagonal_mass_max": mass.max().item(),
            "self_weight_mean": (1 - mass).mean().item(),
            "self_weight_min": (1 - mass).min().item(),
        }
    assert flatten(record.to_line())["method/off_diagonal_mass_max"] == mass.max().item()
    line = replace(record, figures={"a": float("nan"), "b": float("inf"), "c": 1.0}).to_line()
    assert line["method"] == {"a": None, "b": None, "c": 1.0}
    assert "method/a" not in flatten(line)


def test_resume_gives_the_same_bits(tmp_path):
    kept = Keep()
    ours = experiment(participation=0.6)
    run(ours, [kept])
    save_checkpoint(tmp_path, kept.states[2], "me", keep=1)
    last = run(ours, state=load_newest(tmp_path, "me"))
    for field in ("uploads", "received", "anchors", "server", "post_local"):
        assert_same(dict(getattr(last, field)), dict(getattr(kept.states[-1], field)))


def test_the_term_takes_alpha_from_the_server():
    term = AttentionProximal(LAMBDA)
    loop = experiment(FedAMP(7.0, 1.0), [term]).prepare().loop()
    ((_, objective),) = loop.phases
    assert [t.alpha for t in objective.terms if isinstance(t, AttentionProximal)] == [7.0]
    loop = experiment(FedAMP(sigma=2.0), [term]).prepare().loop()
    ((_, objective),) = loop.phases
    assert [t.alpha for t in objective.terms if isinstance(t, AttentionProximal)] == [2.0 / 5]
    assert term.alpha == 1.0, "the caller's term stays as it was"
    with pytest.raises(ValueError, match=r"AttentionProximal takes alpha .* got FedAvg"):
        experiment(FedAvg()).prepare().loop()


@pytest.mark.parametrize("name", ["alpha", "sigma"])
@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_bad_arguments_are_refused(name, value):
    with pytest.raises(ValueError, match=f"{name}: expected a finite number > 0, got"):
        FedAMP(**{name: value})


def test_sigma_cannot_be_left_open():
    with pytest.raises(ValueError, match="sigma: expected a finite number > 0, got None"):
        FedAMP(sigma=None)


def near_and_far(dtype, gap=1e-3, distance=1e6, size=40_000):
    """Two models `gap` apart, and a third far away, in two parameters."""
    g = torch.Generator().manual_seed(1)
    near = torch.randn(size, generator=g, dtype=torch.float64)
    direction = torch.randn(size, generator=g, dtype=torch.float64)
    direction /= direction.norm()
    models = torch.stack([near, near + gap * direction, near + distance * direction]).to(dtype)
    return [models[:, :30_000].reshape(3, 100, 300), models[:, 30_000:]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("distance", [1.0, 1e3, 1e6, 1e9])
def test_two_near_models_keep_their_distance_beside_a_far_one(dtype, distance):
    thetas = near_and_far(dtype, distance=distance)
    found = squared_distances(thetas)
    exact = [dict(enumerate(theta[i].double() for theta in thetas)) for i in range(3)]
    expected = [[squared_distance(exact[i], exact[j]) for j in range(3)] for i in range(3)]
    torch.testing.assert_close(
        found, torch.tensor(expected, dtype=torch.float64), atol=0, rtol=1e-12
    )
    assert found[0, 1] > 0, "the near two are not the same"
    assert torch.equal(found, found.T)


@pytest.mark.parametrize("distance", [1.0, 1e3, 1e6])
def test_two_near_models_pull_each_other_rightly_beside_a_far_one(distance):
    thetas = near_and_far(torch.float32, distance=distance)
    c = attention(squared_distances(thetas), 0.3, 1.0, torch.ones(3, dtype=torch.bool))
    for theta in thetas:
        w = theta.double()
        mixed = attentive_mixture(c, theta)
        for i in range(3):
            u = w[i] + sum(c[i, j] * (w[j] - w[i]) for j in range(3))
            torch.testing.assert_close(mixed[i].double(), u, atol=3e-7, rtol=1e-7)


def test_distances_need_no_memory_beside_the_models(monkeypatch):
    """Blocks of pairs: what is converted at a time stays small whatever the model's size."""
    sizes, real = [], torch.pdist
    monkeypatch.setattr(torch, "pdist", lambda block: sizes.append(block.numel()) or real(block))
    squared_distances([torch.randn(7, 300, 1000), torch.randn(7, 11)])
    assert sum(sizes) == 7 * (300_000 + 11)
    assert max(sizes) < 10_000


def test_distances_are_exact_for_near_equal_models_and_over_blocks():
    g = torch.Generator().manual_seed(0)
    base = 1 + torch.randn(1, 1 << 18, generator=g, dtype=torch.float64)
    theta = base + 1e-9 * torch.randn(5, base.shape[1], generator=g, dtype=torch.float64)
    found = squared_distances([theta, torch.zeros(5, 3, 2)])
    for i in range(5):
        for j in range(5):
            expected = (theta[i] - theta[j]).square().sum()
            torch.testing.assert_close(found[i, j], expected, atol=0, rtol=1e-12)
    c = attention(torch.full((5, 5), 0.1), 0.1, 0.1, torch.ones(5, dtype=torch.bool))
    mixed = attentive_mixture(c, theta)
    expected = theta + sum(torch.exp(torch.tensor(-1.0)) * (theta[j] - theta) for j in range(5))
    torch.testing.assert_close(mixed, expected, atol=1e-14, rtol=1e-14)
    assert torch.equal(squared_distances([theta[:1]]), torch.zeros(1, 1, dtype=torch.float64))
    with pytest.raises(ValueError, match="thetas_M: expected at least one parameter"):
        squared_distances([])

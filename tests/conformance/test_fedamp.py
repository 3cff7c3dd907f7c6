"""FedAMP against plain PyTorch, its limits, and what its attention looks at."""

import logging
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from fedamp_reference import fedamp
from helpers import Keep, assert_same, run, small_experiment
from rounds import assert_models_equal

from cwfed.aggregators import FedAMP, FedAvg, Local
from cwfed.aggregators.base import ServerRound
from cwfed.aggregators.fedamp import ATTENTION, UPLOADED
from cwfed.data.partitioners import Dirichlet
from cwfed.federated import Algorithm, LocalTraining
from cwfed.federated.checkpoint import load_newest, save_checkpoint
from cwfed.federated.loggers import flatten
from cwfed.functional.fedamp import attention, attentive_mixture, squared_distances
from cwfed.objectives import AttentionProximal, Proximal

ROUNDS, ALPHA, SIGMA, LAMBDA = 4, 0.3, 1.2, 0.3
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


def test_identity_without_the_term_or_its_weight_fedamp_is_local():
    local = run(experiment(Local(), []))
    for terms in ([AttentionProximal(0.0)], []):
        assert_same(dict(run(experiment(terms=terms)).received), dict(local.received))


def test_identity_with_far_models_the_defaults_are_local_training_with_a_weak_pull():
    ours = run(experiment(FedAMP(), [AttentionProximal()], client=FAR))
    assert ours.server[ATTENTION].max() < 1e-12
    weak = run(experiment(Local(), [Proximal(1 / 1000)], client=FAR))
    for name, value in weak.received.items():
        torch.testing.assert_close(ours.received[name], value, atol=1e-9, rtol=0)


def test_identity_with_one_model_for_all_every_mixture_is_that_model(trained):
    server, uploads = trained
    same = {name: value[:1].expand_as(value) for name, value in uploads.items()}
    sent, _ = step(FedAMP(), same, server)
    for name in server.model.parameters:
        torch.testing.assert_close(sent.anchors[name], same[name], atol=1e-10, rtol=0)


def test_far_clients_are_pulled_to_their_own_model_to_the_bit(trained):
    server, uploads = trained
    far = {name: value * 5 for name, value in uploads.items()}
    sent, state = step(FedAMP(), far, server)
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
        run(experiment(FedAMP(), [AttentionProximal()], rounds=2), [kept])
        warnings = [r.getMessage() for r in caplog.records if "sum to more than 1" in r.msg]
        assert len(set(warnings)) == 2
        assert "5 of 5 clients" in warnings[0]
        caplog.clear()
        run(experiment(rounds=2, aggregator=FedAMP(0.2, 1.0)))
        assert not caplog.records
    finally:
        logger.removeHandler(caplog.handler)
    assert kept.records[-1].figures["off_diagonal_mass_max"] > 1


def test_the_off_diagonal_mass_is_recorded_every_round():
    kept = Keep()
    run(experiment(), [kept])
    for record, state in zip(kept.records, kept.states, strict=True):
        mass = state.server[ATTENTION].sum(1)
        assert record.to_line()["method"] == {
            "off_diagonal_mass_mean": mass.mean().item(),
            "off_diagonal_mass_max": mass.max().item(),
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
    assert term.alpha == 1.0, "the caller's term stays as it was"
    with pytest.raises(ValueError, match=r"AttentionProximal takes alpha .* got FedAvg"):
        experiment(FedAvg()).prepare().loop()


@pytest.mark.parametrize("name", ["alpha", "sigma"])
@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_bad_arguments_are_refused(name, value):
    with pytest.raises(ValueError, match=f"{name}: expected a finite number > 0, got"):
        FedAMP(**{name: value})


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

import inspect

import pytest
import torch
from classwise import (
    TwoStepServer,
    as_lists,
    class_distribution_from_counts,
    class_distribution_from_heads,
    fedavg,
)
from helpers import TinyNet

import cwfed.aggregators
from cwfed.aggregators import CwFedAvg, FedAvg, Local
from cwfed.aggregators.base import MixingAggregator, ServerContext, ServerRound
from cwfed.models import describe_model

METHODS = [
    c
    for _, c in inspect.getmembers(cwfed.aggregators, inspect.isclass)
    if issubclass(c, MixingAggregator) and not inspect.isabstract(c)
]
CLIENTS, CLASSES = 5, 4


def setting(seed=0, dtype=torch.float64):
    g = torch.Generator().manual_seed(seed)
    model = TinyNet(CLASSES, 1, 8).to(dtype)
    contract = describe_model(model, CLASSES)
    uploads = {}
    for name, value in (*model.named_parameters(), *model.named_buffers()):
        if value.is_floating_point():
            uploads[name] = torch.randn(CLIENTS, *value.shape, generator=g, dtype=dtype)
        else:
            uploads[name] = torch.randint(1, 50, (CLIENTS, *value.shape), generator=g)
    counts = torch.randint(0, 30, (CLIENTS, CLASSES), generator=g) + torch.eye(5, 4).long()
    server = ServerContext(counts.sum(1), counts, contract)
    return uploads, server


def step(aggregator, uploads, server, participants=range(CLIENTS), state=None):
    state = aggregator.init_state(server, uploads) if state is None else state
    sent = ServerRound(uploads, uploads, torch.as_tensor(list(participants)), None)
    broadcast, state = aggregator.aggregate(sent, state, server)
    return broadcast.models, state


@pytest.mark.parametrize("method", METHODS)
def test_contract(method):
    uploads, server = setting()
    before = {name: value.clone() for name, value in uploads.items()}
    for participants in (range(CLIENTS), [1, 3], [2]):
        models, state = step(method(), uploads, server, participants)
        again, _ = step(method(), uploads, server, participants)
        assert models.keys() == uploads.keys()
        for name, value in models.items():
            assert value.shape == uploads[name].shape
            assert value.dtype == uploads[name].dtype
            assert torch.equal(value, again[name])
            assert torch.equal(before[name], uploads[name]), "uploads must not change"
        assert all(isinstance(value, torch.Tensor) for value in state.values())


@pytest.mark.parametrize("method", METHODS)
def test_every_row_of_the_mixing_matrix_sums_to_one(method):
    uploads, server = setting()
    aggregator = method()
    for participants in (torch.arange(CLIENTS), torch.tensor([0, 4])):
        matrices, _ = aggregator.mixing(
            uploads, participants, aggregator.init_state(server, uploads), server
        )
        for matrix in matrices.values():
            assert matrix.dtype == torch.float64
            torch.testing.assert_close(matrix.sum(1), torch.ones(CLIENTS, dtype=torch.float64))


@pytest.mark.parametrize("method", METHODS)
def test_permuting_the_clients_permutes_the_models(method):
    uploads, server = setting()
    order = torch.tensor([3, 0, 4, 1, 2])
    permuted = ServerContext(
        server.num_samples_M[order], server.label_counts_MK[order], server.model
    )
    models, _ = step(method(), uploads, server)
    other, _ = step(method(), {n: v[order] for n, v in uploads.items()}, permuted)
    for name, value in models.items():
        torch.testing.assert_close(value[order], other[name], atol=1e-12, rtol=0)


def test_local_returns_the_uploads():
    uploads, server = setting()
    models, _ = step(Local(), uploads, server)
    assert all(torch.equal(models[n], uploads[n]) for n in uploads)


@pytest.mark.parametrize("participants", [range(CLIENTS), [1, 3]])
def test_fedavg_equals_loops(participants):
    uploads, server = setting()
    models, _ = step(FedAvg(), uploads, server, participants)
    for name in (*server.model.parameters, *server.model.float_buffers):
        expected = torch.tensor(
            fedavg(as_lists(uploads[name]), server.num_samples_M.tolist(), list(participants)),
            dtype=torch.float64,
        )
        for row in models[name].flatten(1):
            torch.testing.assert_close(row, expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("method", [FedAvg, CwFedAvg])
def test_buffers(method):
    uploads, server = setting()
    models, _ = step(method(aggregate_buffers=False), uploads, server)
    for name in (*server.model.float_buffers, *server.model.counters):
        assert torch.equal(models[name], uploads[name])
    models, _ = step(method(), uploads, server, [1, 3])
    top = uploads["norm.num_batches_tracked"][[1, 3]].max()
    assert (models["norm.num_batches_tracked"] == top).all()
    assert not torch.equal(models["norm.running_var"], uploads["norm.running_var"])


@pytest.mark.parametrize("distribution", ["true", "estimated"])
@pytest.mark.parametrize(
    ("scope", "classwise"),
    [
        ("output", {"out"}),
        ("all", {"conv", "norm", "hidden", "out"}),
        (1, {"out"}),
        (2, {"hidden", "out"}),
        (3, {"norm", "hidden", "out"}),
    ],
)
def test_cwfedavg_equals_loops_within_its_scope(scope, classwise, distribution):
    uploads, server = setting()
    aggregator = CwFedAvg(scope=scope, distribution=distribution)
    models, _ = step(aggregator, uploads, server)
    n, everyone = server.num_samples_M.tolist(), list(range(CLIENTS))
    if distribution == "true":
        p = class_distribution_from_counts(server.label_counts_MK.tolist())
    else:
        p = class_distribution_from_heads(uploads["out.weight"].tolist())
    for name in (*server.model.parameters, *server.model.float_buffers):
        values = as_lists(uploads[name])
        if name.split(".")[0] in classwise:
            expected = TwoStepServer(values[0], CLASSES).round(values, n, p, everyone)
        else:
            expected = [fedavg(values, n, everyone)] * CLIENTS
        torch.testing.assert_close(
            models[name].flatten(1), torch.tensor(expected, dtype=torch.float64), atol=1e-12, rtol=0
        )


@pytest.mark.parametrize("distribution", ["true", "estimated"])
def test_cwfedavg_with_partial_participation_over_many_rounds(distribution):
    """Against a server that stores the class models, whose own p is that of the last upload."""
    fresh, server = setting()
    g = torch.Generator().manual_seed(1)
    name = "out.weight"
    initial = torch.randn(fresh[name].shape[1:], generator=g, dtype=torch.float64)
    uploads = {n: v.clone() for n, v in fresh.items()}
    uploads[name] = initial.repeat(CLIENTS, 1, 1)
    counts = torch.tensor([[5, 0, 0, 0], [0, 9, 0, 0], [3, 2, 0, 0], [0, 0, 6, 0], [0, 0, 1, 8]])
    server = ServerContext(counts.sum(1), counts, server.model)
    reference = TwoStepServer(initial.flatten().tolist(), CLASSES)
    aggregator = CwFedAvg(distribution=distribution)
    state = aggregator.init_state(server, uploads)
    for _ in range(30):
        who = torch.randperm(CLIENTS, generator=g)[: int(torch.randint(1, 3, (), generator=g))]
        who = who.sort().values
        uploads[name] = uploads[name].clone()
        uploads[name][who] = torch.randn(len(who), *initial.shape, generator=g, dtype=torch.float64)
        models, state = step(aggregator, uploads, server, who, state)
        p = (
            class_distribution_from_counts(counts.tolist())
            if distribution == "true"
            else class_distribution_from_heads(uploads[name].tolist())
        )
        expected = reference.round(as_lists(uploads[name]), counts.sum(1).tolist(), p, who.tolist())
        torch.testing.assert_close(
            models[name].flatten(1),
            torch.tensor(expected, dtype=torch.float64),
            atol=1e-11,
            rtol=0,
        )


def test_estimated_distributions_are_made_in_double_precision():
    uploads, server = setting(dtype=torch.float32)
    p_MK = CwFedAvg().class_distribution(uploads, server)
    expected = class_distribution_from_heads(uploads["out.weight"].double().tolist())
    assert p_MK.dtype == torch.float64
    exact = torch.tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(p_MK, exact, atol=1e-14, rtol=0)


def test_limit_proportional_counts_equal_fedavg():
    uploads, server = setting()
    counts = torch.tensor([[2, 4, 6, 8]]) * torch.tensor([[1], [2], [3], [4], [5]])
    server = ServerContext(counts.sum(1), counts, server.model)
    ours, _ = step(CwFedAvg(scope="all", distribution="true"), uploads, server)
    average, _ = step(FedAvg(), uploads, server)
    for name in uploads:
        torch.testing.assert_close(ours[name], average[name], atol=1e-14, rtol=0)


def test_limit_iid_counts_come_close_to_fedavg():
    uploads, server = setting()
    counts = torch.full((CLIENTS, CLASSES), 1000) + torch.randint(-20, 20, (CLIENTS, CLASSES))
    server = ServerContext(counts.sum(1), counts, server.model)
    ours, _ = step(CwFedAvg(scope="all", distribution="true"), uploads, server)
    average, _ = step(FedAvg(), uploads, server)
    for name in server.model.parameters:
        torch.testing.assert_close(ours[name], average[name], atol=0.02, rtol=0)


def test_limit_one_class_a_client_equals_fedavg_among_its_clients():
    uploads, server = setting()
    classes = [0, 1, 0, 2, 1]
    counts = torch.zeros(CLIENTS, CLASSES, dtype=torch.int64)
    for client, class_ in enumerate(classes):
        counts[client, class_] = 10 * (client + 1)
    server = ServerContext(counts.sum(1), counts, server.model)
    ours, _ = step(CwFedAvg(scope="all", distribution="true"), uploads, server)
    for group in ([0, 2], [1, 4], [3]):
        average, _ = step(FedAvg(), uploads, server, group)
        for name in server.model.parameters:
            for client in group:
                torch.testing.assert_close(
                    ours[name][client], average[name][client], atol=1e-14, rtol=0
                )


@pytest.mark.parametrize("scope", ["outputs", 0, -1, True, 1.5])
def test_bad_scope_is_refused(scope):
    with pytest.raises(ValueError, match="scope: expected"):
        CwFedAvg(scope=scope)


def test_bad_distribution_is_refused():
    with pytest.raises(ValueError, match="distribution: expected 'estimated' or 'true'"):
        CwFedAvg(distribution="labels")


def test_too_many_layers_are_refused():
    _, server = setting()
    with pytest.raises(ValueError, match="scope: expected between 1 and 4"):
        CwFedAvg(scope=5).validate(server)

"""What holds of aggregation for any number of clients, classes and participants.

Legend: M clients, K classes, D and F features.
"""

import inspect
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import cwfed.aggregators
from cwfed.aggregators import Aggregator, CwFedAvg, FedAvg, FedPer, Local, make_server
from cwfed.aggregators.base import ServerContext, ServerRound
from cwfed.functional.aggregation import classwise_weights, mix, mixing_matrix
from cwfed.functional.distribution import label_distribution

METHODS = [
    kind
    for _, kind in inspect.getmembers(cwfed.aggregators, inspect.isclass)
    if issubclass(kind, Aggregator) and not inspect.isabstract(kind)
]
LINEAR = [
    FedAvg(),
    FedPer(),
    Local(),
    CwFedAvg(distribution="true"),
    CwFedAvg(scope="all", distribution="true"),
]
OUTPUT, HIDDEN = "out.weight", "hidden.weight"
several = settings(max_examples=25, deadline=None)


@dataclass(frozen=True)
class Problem:
    """Uploads ``[M, ...]`` and label counts ``[M, K]`` of a round."""

    uploads: dict[str, torch.Tensor]
    counts_MK: torch.Tensor
    participants: torch.Tensor

    @property
    def server(self) -> ServerContext:
        server = make_server(self.uploads, self.counts_MK)
        other = {name: value[0] + 1.0 for name, value in self.uploads.items()}
        return replace(server, new_initialisation=lambda k: other)


@st.composite
def problems(draw):
    clients, classes = draw(st.integers(1, 7)), draw(st.integers(1, 6))
    g = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    counts_MK = torch.randint(0, 9, (clients, classes), generator=g)
    counts_MK[torch.rand(clients, classes, generator=g) < draw(st.sampled_from([0.0, 0.6]))] = 0
    width, features = draw(st.integers(1, 9)), draw(st.integers(1, 4))
    uploads = {
        HIDDEN: torch.randn(clients, width, generator=g, dtype=torch.float64),
        OUTPUT: torch.randn(clients, classes, features, generator=g, dtype=torch.float64),
    }
    # Prototypes have unit length, which the other methods do not mind.
    uploads[OUTPUT] /= uploads[OUTPUT].norm(dim=2, keepdim=True)
    size = draw(st.integers(1, clients))
    participants = torch.randperm(clients, generator=g)[:size].sort().values
    return Problem(uploads, counts_MK, participants)


class NearestModel:
    """Clients whose loss is the distance to one model, and that have no features to tell."""

    def __init__(self, model):
        self.model = model

    def loss(self, clients, models, part):
        return sum(
            (models[name][clients] - value).square().flatten(1).sum(1)
            for name, value in self.model.items()
        )

    def class_means(self, clients, models):
        rows, classes, features = len(clients), *models[OUTPUT].shape[1:]
        return torch.zeros(rows, classes, features), torch.zeros(rows, classes, dtype=torch.int64)


def aggregate(aggregator, problem, clients=None):
    """Return what the clients receive after one round."""
    uploads, who, server = problem.uploads, problem.participants, problem.server
    state = aggregator.init_state(server, uploads)
    _, state = aggregator.select(uploads, uploads, who, state, server, clients)
    round_ = ServerRound(uploads, uploads, who, clients)
    return aggregator.aggregate(round_, state, server)[0]


def close(got, expected):
    torch.testing.assert_close(got, expected, atol=1e-12, rtol=1e-12)


@several
@given(problems())
def test_rows_and_columns_of_weights_sum_to_one(problem):
    counts_MK = problem.counts_MK
    p_MK, clients = label_distribution(counts_MK), len(counts_MK)
    start = torch.full_like(p_MK, 1 / clients)
    q_MK = classwise_weights(p_MK, counts_MK.sum(1), problem.participants, start)
    assert (q_MK >= 0).all()
    close(q_MK.sum(0), torch.ones(q_MK.shape[1], dtype=torch.float64))
    rows = mixing_matrix(p_MK, q_MK).sum(1)
    close(rows, (counts_MK.sum(1) > 0).to(torch.float64))


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=8, deadline=None)
@given(problem=problems())
def test_what_all_agree_on_stays(method, problem):
    one = {name: value[0] for name, value in problem.uploads.items()}
    same = {name: value.expand_as(problem.uploads[name]).clone() for name, value in one.items()}
    problem = replace(problem, uploads=same)
    sent = aggregate(method(), problem, NearestModel(one))
    for models in (sent.models, sent.anchors or {}):
        for name, value in models.items():
            close(value, same[name])


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=8, deadline=None)
@given(problem=problems(), seed=st.integers(0, 2**32))
def test_the_clients_numbers_do_not_matter(method, problem, seed):
    order = torch.randperm(len(problem.counts_MK), generator=torch.Generator().manual_seed(seed))
    permuted = Problem(
        {name: value[order] for name, value in problem.uploads.items()},
        problem.counts_MK[order],
        torch.isin(order, problem.participants).nonzero().flatten(),
    )
    # The round started from different models; prototypes and other centres are the server's.
    zero = {name: torch.zeros_like(value[0]) for name, value in problem.uploads.items()}
    if method.__name__ in ("FedNH", "IFCA"):
        one = problem.uploads[OUTPUT][:1].expand_as(problem.uploads[OUTPUT])
        problem.uploads[OUTPUT], permuted.uploads[OUTPUT] = one, one
    if method.__name__ == "IFCA":
        one = problem.uploads[HIDDEN][:1].expand_as(problem.uploads[HIDDEN])
        problem.uploads[HIDDEN], permuted.uploads[HIDDEN] = one, one
    sent = aggregate(method(), problem, NearestModel(zero))
    other = aggregate(method(), permuted, NearestModel(zero))
    for ours, theirs in ((sent.models, other.models), (sent.anchors or {}, other.anchors or {})):
        for name, value in ours.items():
            close(value[order], theirs[name])


@pytest.mark.parametrize("aggregator", LINEAR, ids=lambda a: f"{type(a).__name__}-{vars(a)}")
@settings(max_examples=8, deadline=None)
@given(problem=problems(), a=st.floats(-3, 3), b=st.floats(-3, 3))
def test_averages_are_linear_in_the_uploads(aggregator, problem, a, b):
    first = problem.uploads
    second = {name: value.flip(-1) for name, value in first.items()}
    both = {name: a * value + b * second[name] for name, value in first.items()}
    of = [
        aggregate(aggregator, replace(problem, uploads=uploads)).models
        for uploads in (first, second, both)
    ]
    for name, value in of[2].items():
        close(value, a * of[0][name] + b * of[1][name])


@several
@given(problems(), st.integers(0, 2**32))
def test_mix_is_linear_in_the_weights_too(problem, seed):
    g = torch.Generator().manual_seed(seed)
    theta_M = problem.uploads[HIDDEN]
    size = len(theta_M)
    a, b = torch.rand(2, size, size, generator=g, dtype=torch.float64)
    close(mix(a + 2 * b, theta_M), mix(a, theta_M) + 2 * mix(b, theta_M))
    close(mix(a @ b, theta_M), mix(a, mix(b, theta_M)))


@several
@given(problems(), st.lists(st.integers(1, 50), min_size=7, max_size=7))
def test_proportional_label_counts_make_cwfedavg_fedavg(problem, factors):
    clients, classes = problem.counts_MK.shape
    share_K = problem.counts_MK[0] + torch.eye(1, classes, dtype=torch.int64)[0]
    counts_MK = share_K * torch.tensor(factors[:clients])[:, None]
    problem = replace(problem, counts_MK=counts_MK)
    expected = aggregate(FedAvg(), problem).models
    for scope in ("output", "all"):
        got = aggregate(CwFedAvg(scope=scope, distribution="true"), problem).models
        for name, value in expected.items():
            close(got[name], value)

"""FedNH's server on drawn uploads."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from helpers import TinyNet, assert_same, run, small_experiment
from torch import nn

from cwfed.aggregators import FedNH, ServerContext
from cwfed.aggregators.base import ServerRound
from cwfed.functional.fednh import moved_prototypes
from cwfed.models import PrototypeHead, describe_model

CLIENTS, CLASSES = 5, 4
W = "out.weight"


def setting(seed=0):
    """Uploads and a server, with clients that answer from given means and counts."""
    g = torch.Generator().manual_seed(seed)
    model = TinyNet(CLASSES, 1, 8).double()
    PrototypeHead().install(model, describe_model(model, CLASSES))
    uploads = {}
    for name, value in (*model.named_parameters(), *model.named_buffers()):
        if value.is_floating_point():
            drawn = torch.randn(CLIENTS, *value.shape, generator=g, dtype=torch.float64)
        else:
            drawn = torch.randint(1, 50, (CLIENTS, *value.shape), generator=g)
        uploads[name] = drawn
    uploads[W] = model.out.weight.detach().expand(CLIENTS, -1, -1)
    counts = torch.randint(1, 30, (CLIENTS, CLASSES), generator=g)
    means = torch.randn(CLIENTS, CLASSES, 8, generator=g, dtype=torch.float64)
    sizes = {name: value[0].numel() * value.element_size() for name, value in uploads.items()}
    server = ServerContext(counts.sum(1), counts, describe_model(model, CLASSES), sizes)
    return uploads, server, means


def step(uploads, server, means, participants, aggregator):
    def class_means(clients, models):
        assert models is uploads
        return means[clients], server.label_counts_MK[clients]

    clients = SimpleNamespace(class_means=class_means)
    sent = ServerRound(uploads, uploads, torch.as_tensor(participants), clients)
    broadcast, state = aggregator.aggregate(sent, {}, server)
    assert state == {}
    return broadcast.models


@pytest.mark.parametrize("weighting", ["uniform", "samples"])
def test_permuting_the_clients_permutes_nothing_but_the_clients(weighting):
    uploads, server, means = setting()
    order = torch.tensor([3, 0, 4, 1, 2])
    permuted = ServerContext(
        server.num_samples_M[order], server.label_counts_MK[order], server.model
    )
    aggregator = FedNH(weighting=weighting)
    models = step(uploads, server, means, [0, 1, 3], aggregator)
    other = step(
        {n: v[order] for n, v in uploads.items()}, permuted, means[order], [0, 1, 3], aggregator
    )  # clients 3, 0, 1 by their old ids
    for name, value in models.items():
        torch.testing.assert_close(value[order], other[name], atol=1e-12, rtol=0)


def test_aggregate_leaves_its_inputs_and_stale_uploads_alone():
    uploads, server, means = setting()
    before = {name: value.clone() for name, value in uploads.items()}
    models = step(uploads, server, means, [1, 3], FedNH())
    assert_same(uploads, before)
    assert models.keys() == uploads.keys()
    noisy = {n: v.clone() for n, v in uploads.items()}
    for value in noisy.values():
        value[[0, 2, 4]] = 99
    assert_same(step(noisy, server, means, [1, 3], FedNH()), models)


def test_rest_is_the_unweighted_mean_and_buffers_can_stay():
    uploads, server, means = setting()
    models = step(uploads, server, means, [1, 3], FedNH())
    for name in ("conv.weight", "out.scale", "norm.running_var"):
        mean = (uploads[name][1] + uploads[name][3]) / 2
        torch.testing.assert_close(models[name], mean.expand_as(models[name]))
    counter = "norm.num_batches_tracked"
    assert (models[counter] == uploads[counter][[1, 3]].max()).all()
    own = step(uploads, server, means, [1, 3], FedNH(aggregate_buffers=False))
    for name in ("norm.running_var", counter):
        assert torch.equal(own[name], uploads[name])


def test_prototypes_by_hand():
    old = torch.eye(3, dtype=torch.float64)
    means = torch.zeros(2, 3, 3, dtype=torch.float64)
    means[0, 0], means[1, 0] = torch.tensor([0.0, 0.5, 0]), torch.tensor([0.0, 0, 0.1])
    means[0, 1], means[1, 1] = torch.tensor([0.0, 0.5, 0]), torch.tensor([0.0, -0.2, 0])
    counts = torch.tensor([[3, 2, 0], [4, 2, 0]])
    new = moved_prototypes(old, means, counts, rho=0.5)
    # Both means count by their samples alone: 3 e_2 + 4 e_3, of length 5.
    expected = torch.tensor([1.0, 0.6, 0.8], dtype=torch.float64) / 2**0.5
    torch.testing.assert_close(new[0], expected)
    assert torch.equal(new[1:], old[1:]), "means that cancel and absent classes move nothing"
    opposite = moved_prototypes(old, -old[None], torch.ones(1, 3), rho=0.5)
    assert torch.equal(opposite, old), "no direction is left to take"


def test_bytes_are_the_model_each_way_and_the_counts_up():
    _, server, _ = setting()
    up, down = FedNH().traffic(torch.tensor([1, 3]), {}, server)
    assert down.tolist() == [sum(server.sizes.values())] * 2
    assert (up - down).tolist() == [8 * CLASSES] * 2


@pytest.mark.parametrize("rho", [-0.1, 1.1, float("nan")])
def test_bad_rho_is_refused(rho):
    with pytest.raises(ValueError, match=r"rho: expected a number in \[0, 1\], got"):
        FedNH(rho)


def test_bad_weighting_is_refused():
    with pytest.raises(ValueError, match="weighting: expected 'uniform' or 'samples', got 'n'"):
        FedNH(weighting="n")


def test_other_output_layers_are_refused():
    with pytest.raises(ValueError, match=r"algorithm.head: expected PrototypeHead .* trainable"):
        run(small_experiment(FedNH(), []))
    model = TinyNet(CLASSES, 1, 8)
    model.out.weight.requires_grad_(False)
    server = ServerContext(torch.ones(2), torch.ones(2, 4), describe_model(model, CLASSES))
    with pytest.raises(ValueError, match=r"algorithm.head: expected PrototypeHead .* bias"):
        FedNH().validate(server)
    model.out = nn.Linear(8, CLASSES, bias=False).requires_grad_(False)
    server = ServerContext(torch.ones(2), torch.ones(2, 4), describe_model(model, CLASSES))
    FedNH().validate(server)
    with pytest.raises(ValueError, match=r"algorithm.head: expected prototypes of unit length"):
        FedNH().init_state(server, {W: model.out.weight.detach().expand(2, -1, -1)})


def test_means_that_are_no_numbers_count_as_classes_without_samples():
    uploads, server, means = setting()
    means[1, 2, 0] = torch.inf
    means[3] = torch.nan
    found = step(uploads, server, means, range(CLIENTS), FedNH())
    counts = server.label_counts_MK.clone()
    counts[1, 2] = 0
    counts[3] = 0
    held = replace(server, label_counts_MK=counts)
    expected = step(uploads, held, means.nan_to_num(0.0, 0.0, 0.0), range(CLIENTS), FedNH())
    assert torch.equal(found[W], expected[W])

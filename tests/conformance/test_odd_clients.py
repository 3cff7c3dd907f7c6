"""Every shipped method with clients that hold next to nothing ends with finite numbers."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import Keep
from methods import NAMES, experiment

from cwfed.records.manifest import ClientSplit

EMPTY, ONE_SAMPLE, ONE_CLASS, FEW, WHOLE, UNTESTED = range(6)
"""Kinds of clients, which are their ids; of the four classes nobody trains on the last."""


def odd_run(name, tmp_path, *arguments):
    """Return a prepared run over the six kinds of clients."""
    prepared = experiment(name, tmp_path, "--partition.num_clients", "6", *arguments).prepare()
    manifest = prepared.data.manifest
    labels = prepared.data.images.labels_N.numpy()
    by_class = [list(np.flatnonzero(labels == k)) for k in range(4)]

    def take(*counts):
        taken = [by_class[k].pop() for k, count in enumerate(counts) for _ in range(count)]
        return np.sort(np.array(taken, dtype=np.int64))

    nothing = take()
    pairs = [
        (nothing, nothing),
        (take(1), take(2, 2)),
        (take(0, 12), take(0, 4)),
        (take(1, 1, 1), take(1, 1)),
        (take(9, 0, 9), nothing),
    ]
    pairs.insert(WHOLE, (take(8, 8, 8), take(*map(len, by_class))))
    splits = tuple(ClientSplit(train, nothing, test) for train, test in pairs)
    prepared.data = replace(prepared.data, manifest=replace(manifest, clients=splits))
    return prepared


@pytest.mark.parametrize("name", NAMES)
def test_every_round_is_finite(name, tmp_path):
    """Also the first, in which only the empty client takes part."""
    prepared, kept = odd_run(name, tmp_path, "--rounds", "3", "--evaluate_every", "3"), Keep()
    loop = prepared.loop([kept])
    loop.sampler.sample = lambda round_: [EMPTY] if round_ == 1 else list(range(6))
    loop.run(loop.initial_state(prepared.initialisation()))
    for state, record in zip(kept.states, kept.records, strict=True):
        banks = (state.uploads, state.received, state.anchors, state.personal, state.server)
        for bank in banks:
            for tensor, value in bank.items():
                assert value.isfinite().all(), (state.round, tensor)
        assert np.isfinite(record.mean_r)
        assert not record.excluded
        assert (record.to_line()["train_loss"] is not None) == (record.round > 1)
    assert kept.records[-1].received["test"].isfinite().all()
    head = kept.states[-1].received["out.weight"]
    assert (head.flatten(1).abs().sum(1) > 0).all(), "every client has an output layer"


def test_an_empty_client_with_true_labels_receives_what_fedavg_makes(tmp_path):
    state = {}
    for name in ("cwfedavg_true", "fedavg"):
        prepared = odd_run(name, tmp_path, "--rounds", "1", "--algorithm.objectives", "[]")
        loop = prepared.loop()
        state[name] = loop.run(loop.initial_state(prepared.initialisation()))
    for tensor, value in state["fedavg"].received.items():
        ours = state["cwfedavg_true"].received[tensor]
        torch.testing.assert_close(ours[EMPTY], value[EMPTY], atol=1e-12, rtol=0)

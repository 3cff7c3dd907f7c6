"""What holds for every shipped method, whatever it does."""

import dataclasses
from itertools import combinations

import pytest
import torch
from helpers import Keep, assert_same, run
from methods import NAMES, NEEDS_EVERYONE, experiment

from cwfed.config.files import UsageError
from cwfed.federated import FederatedState
from cwfed.runs.checkpoint import load_newest, save_checkpoint


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Every method's rounds on the same problem, seed and batches."""
    folder = tmp_path_factory.mktemp("methods")
    kept = {name: Keep() for name in NAMES}
    for name in NAMES:
        run(experiment(name, folder), [kept[name]])
    return kept


def banks(state: FederatedState):
    for field in ("uploads", "received", "anchors", "personal", "server", "post_local"):
        yield field, getattr(state, field)


@pytest.mark.parametrize("name", NAMES)
def test_resumes_to_the_bit_from_every_round(name, runs, tmp_path):
    states = runs[name].states
    for state in states[1:-1]:
        folder = tmp_path / str(state.round)
        save_checkpoint(folder, state, "me", keep=1)
        loaded = load_newest(folder, "me")
        for field, bank in banks(state):
            assert_same(dict(getattr(loaded, field)), dict(bank))
        last = run(experiment(name, tmp_path), state=loaded)
        for field, bank in banks(states[-1]):
            assert_same(dict(getattr(last, field)), dict(bank))


@pytest.mark.parametrize("name", NAMES)
def test_states_are_values(name, runs, tmp_path):
    """A later round must not write into an earlier state."""
    again = Keep()
    run(experiment(name, tmp_path, "--rounds", "2"), [again])
    for before, after in zip(again.states, runs[name].states, strict=False):
        for field, bank in banks(before):
            assert_same(dict(bank), dict(getattr(after, field)))


@pytest.mark.parametrize("name", NAMES)
def test_partial_participation_works_or_is_refused_with_the_reason(name, tmp_path):
    if name in NEEDS_EVERYONE:
        with pytest.raises(UsageError, match=r"participation: expected 1 with \w+, since "):
            experiment(name, tmp_path, "--participation", "0.4")
        return
    partial = experiment(name, tmp_path, "--participation", "0.4")
    kept = Keep()
    run(partial, [kept])
    for before, after, record in zip(kept.states, kept.states[1:], kept.records[1:], strict=False):
        for client in set(range(5)) - set(record.participants):
            for tensor in before.uploads:
                assert torch.equal(before.uploads[tensor][client], after.uploads[tensor][client])
        for bank in (after.received, after.anchors):
            assert all(v.isfinite().all() for v in bank.values() if v.is_floating_point())
        assert len(record.bytes_up) == len(record.bytes_down) == len(record.participants)


@pytest.mark.parametrize("name", NAMES)
def test_bytes_are_those_of_the_tensors_that_travel(name, runs):
    state = runs[name].states[-1]
    model = sum(v[0].numel() * v.element_size() for v in state.uploads.values())
    head = sum(v[0].numel() * 8 for n, v in state.uploads.items() if n.startswith("out."))
    buffers = sum(
        v[0].numel() * v.element_size() for n, v in state.uploads.items() if n.startswith("norm.r")
    ) + 8 * ("norm.num_batches_tracked" in state.uploads)
    count = counts = 8
    counts *= 4  # classes
    expected = {
        "local": (0, 0),
        "fedamp_released": (0, 0),
        "fedper": (model - head + count, model - head),
        "fedrep": (model - head + count, model - head),
        "fedrep_original": (model - head + count, model - head),
        "cwfedavg_true": (model + counts, model),
        # The frozen prototypes stand in the model; class means of the same size go up.
        "fednh": (model + counts, model),
        "ifca": (model + 2 * count, 2 * model),
        "fedamp": (model - buffers, model - buffers),
        # Four others' models down, five raw weights up.
        "fedfomo": (model + 5 * count, 4 * model),
    }.get(name, (model + count, model))
    for record in runs[name].records[2:]:
        assert (set(record.bytes_up), set(record.bytes_down)) == ({expected[0]}, {expected[1]})


def test_cwfedavg_costs_what_fedavg_costs(runs):
    ours, theirs = runs["cwfedavg"].records, runs["fedavg"].records
    assert [r.bytes_up for r in ours] == [r.bytes_up for r in theirs]
    assert [r.bytes_down for r in ours] == [r.bytes_down for r in theirs]


def outcome(kept):
    """What is scored, as one vector: the received models and those after local training."""
    record, state = kept.records[-1], kept.states[-1]
    names = sorted(n for n, v in state.uploads.items() if v.is_floating_point())
    models = [state.received, state.uploads, state.personal, state.anchors or state.received]
    flat = [bank[n].flatten() for bank in models for n in names]
    return torch.cat(
        [*flat, record.received["test"].flatten(), record.post_local["test"].flatten()]
    )


def test_every_method_differs_from_every_other(runs):
    """But for FedAMP as released, which is local training and says so."""
    outcomes = {name: outcome(kept) for name, kept in runs.items()}
    assert torch.equal(outcomes["fedamp_released"], outcomes["local"])
    del outcomes["fedamp_released"]
    for a, b in combinations(outcomes, 2):
        if outcomes[a].shape == outcomes[b].shape:
            assert (outcomes[a] - outcomes[b]).abs().max() > 1e-6, f"{a} equals {b}"


def test_the_methods_share_batches_and_initialisation(runs):
    """So that the identities compare methods and nothing else."""
    for name in ("fedavg", "local", "fedprox", "cwfedavg"):
        assert_same(dict(runs[name].states[0].uploads), dict(runs["fedavg"].states[0].uploads))
    plain = {name: runs[name].states[1].uploads for name in ("fedavg", "local", "fedper")}
    assert_same(dict(plain["fedavg"]), dict(plain["local"]))
    assert_same(dict(plain["fedavg"]), dict(plain["fedper"]))


def test_a_state_is_made_of_tensors_that_a_checkpoint_holds(runs):
    for kept in runs.values():
        for state in kept.states:
            for field in dataclasses.fields(state):
                value = getattr(state, field.name)
                if field.name != "round":
                    assert all(isinstance(v, torch.Tensor) for v in value.values())


@pytest.mark.parametrize("name", NAMES)
def test_the_recorded_mixing_is_what_the_clients_got(name, runs):
    """Row by row, summed one client after the other."""
    kept = runs[name]
    for before, state, record in zip(kept.states, kept.states[1:], kept.records[1:], strict=False):
        for tensor, matrix_MM in record.mixing.items():
            uploads, made = state.uploads[tensor], (state.anchors or state.received)[tensor]
            if name == "fedfomo":
                # Its clients mix before they train, from the uploads of the round before.
                uploads, made = before.uploads[tensor], state.server[f"old/{tensor}"]
            for client, weights in enumerate(matrix_MM.tolist()):
                if sum(weights) == 0:
                    continue  # a centre that nobody trained this round
                mixed = sum(weight * uploads[other] for other, weight in enumerate(weights))
                torch.testing.assert_close(mixed, made[client], rtol=1e-9, atol=1e-12)


def test_every_method_that_shares_a_tensor_by_weights_says_how(runs):
    without = {name for name in NAMES if not runs[name].records[-1].mixing}
    assert without == {"local", "fedamp_released"}
    head_kept = {name for name in NAMES if "out.weight" not in runs[name].records[-1].mixing}
    assert head_kept - without == {"fednh", "fedper", "fedrep", "fedrep_original"}

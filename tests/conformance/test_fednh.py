"""FedNH against plain PyTorch, its identities, and the whole path of its head."""

import copy

import pytest
import torch
from fednh_reference import PrototypeNet, fednh_rounds
from helpers import Keep, assert_same, run, small_experiment
from torch import nn

from cwfed.aggregators import FedAvg, FedNH
from cwfed.cli import main
from cwfed.federated import Algorithm, TrainerOptions
from cwfed.models import PrototypeHead
from cwfed.records.round_lines import read_lines
from cwfed.runs.checkpoint import load_newest, save_checkpoint

ROUNDS, LR, CLIENTS, CLASSES = 4, 0.05, 5, 4
W = "out.weight"


def experiment(aggregator=None, head=None, **changes):
    """With seed 1 a class is absent among the participants of every round."""
    algorithm = Algorithm("fednh", aggregator or FedNH(), [], head=head or PrototypeHead(2.0))
    settings = {"rounds": ROUNDS, "dropout": 0.0, "participation": 0.4, "seed": 1}
    return small_experiment(algorithm=algorithm, **settings | changes)


def reference_rounds(prepared, records, rho, weighting):
    trunk = copy.deepcopy(prepared.model)
    trunk.out = nn.Identity()
    head, data = prepared.model.out, prepared.data

    def training_part(client):
        where = data.indices(client, "train")
        images = (data.images.images_NCHW[where].double() / 255 - 0.5) / 0.5
        return images, data.images.labels_N[where]

    return fednh_rounds(
        PrototypeNet(trunk, head.weight.detach(), head.scale.detach()),
        [record.participants for record in records[1:]],
        data.training_loader,
        training_part,
        LR,
        rho,
        weighting,
    )


def assert_row_equals(bank, client, net):
    names = {"W": W, "s": "out.scale"}
    values = net.state_dict()
    assert len(values) == len(bank)
    for name, value in values.items():
        ours = bank[names.get(name, name.removeprefix("trunk."))][client]
        torch.testing.assert_close(ours, value, atol=1e-9, rtol=0)


@pytest.mark.parametrize(
    ("rho", "weighting", "participation"),
    [(0.9, "uniform", 0.4), (0.5, "samples", 0.4), (0.9, "uniform", 1.0)],
)
def test_equals_plain_pytorch(rho, weighting, participation):
    made = experiment(FedNH(rho, weighting), participation=participation)
    kept, prepared = Keep(), made.prepare()
    run(made, [kept])
    history = reference_rounds(prepared, kept.records, rho, weighting)
    assert len(history) == ROUNDS
    for state, (net, uploads) in zip(kept.states[1:], history, strict=True):
        for client in range(CLIENTS):
            assert_row_equals(state.received, client, net)
        for client, upload in uploads.items():
            assert_row_equals(state.uploads, client, upload)


def test_prototypes_move_where_a_participant_holds_the_class_and_only_there():
    kept, made = Keep(), experiment()
    counts_MK = made.prepare().data.label_counts_MK("train")
    run(made, [kept])
    absent = 0
    for before, after, record in zip(kept.states, kept.states[1:], kept.records[1:], strict=False):
        held = counts_MK[list(record.participants)].sum(0) > 0
        for class_ in range(CLASSES):
            old, new = before.received[W][0, class_], after.received[W][0, class_]
            if held[class_]:
                assert (old - new).norm() > 1e-3
            else:
                assert torch.equal(old, new)
                absent += 1
    assert absent >= ROUNDS, "the setting must have absent classes"


def test_prototypes_start_orthogonal_keep_unit_length_and_are_fixed_in_training():
    kept = Keep()
    run(experiment(dropout=0.3), [kept])
    start = kept.states[0].received[W][0]
    torch.testing.assert_close(start @ start.T, torch.eye(CLASSES).double())
    for before, after, record in zip(kept.states, kept.states[1:], kept.records[1:], strict=False):
        prototypes = after.received[W]
        lengths = prototypes.norm(dim=-1)
        torch.testing.assert_close(lengths, torch.ones_like(lengths), atol=1e-14, rtol=0)
        assert (prototypes == prototypes[0]).all()
        for client in record.participants:
            assert torch.equal(after.uploads[W][client], before.received[W][client])
            trained = after.uploads["out.scale"][client]
            assert (trained - before.received["out.scale"][client]).abs() > 1e-6


def test_every_setting_makes_a_difference():
    settings = [FedNH(), FedNH(0.5), FedNH(weighting="samples"), FedAvg()]
    models = [run(experiment(aggregator)).received for aggregator in settings]
    models.append(run(experiment(head=PrototypeHead(20.0))).received)
    for i, a in enumerate(models):
        for b in models[i + 1 :]:
            assert max((a[n] - b[n]).abs().max() for n in a if a[n].is_floating_point()) > 1e-5


def test_fixed_prototypes_and_sample_weights_are_fedavg_with_the_head():
    ours = run(experiment(FedNH(rho=1.0, weighting="samples"), dropout=0.3))
    theirs = run(experiment(FedAvg(), dropout=0.3))
    for name, value in theirs.received.items():
        torch.testing.assert_close(ours.received[name], value, atol=1e-12, rtol=0)
    assert torch.equal(theirs.received[W][0], experiment().prepare().model.out.weight)


def test_resumes_to_the_bit(tmp_path):
    whole = run(experiment(dropout=0.3))
    save_checkpoint(tmp_path, run(experiment(dropout=0.3, rounds=2)), "me", keep=1)
    rest = run(experiment(dropout=0.3), state=load_newest(tmp_path, "me"))
    assert_same(whole.received, rest.received)
    assert_same(whole.uploads, rest.uploads)


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_other_precisions(precision):
    state = run(experiment(trainer=TrainerOptions(accelerator="cpu", precision=precision)))
    assert all(v.isfinite().all() for v in state.received.values())
    assert state.received[W].dtype == torch.float32
    lengths = state.received[W].norm(dim=-1)
    torch.testing.assert_close(lengths, torch.ones_like(lengths))


def fit(tmp_path, *arguments):
    data = ["SyntheticImages", "--data.num_classes", "4", "--data.image_size", "32"]
    data += ["--data.channels", "3", "--data.samples_per_class", "20"]
    return main(
        [
            *("fit", "--config", "quickstart", "--rounds", "2", "--partition.num_clients", "3"),
            *("--run_dir", str(tmp_path / "run"), "--data", *data, *arguments),
        ]
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["--model", "ResNet18", "--algorithm.head.init_args.scale", "20"],
        ["--algorithm.aggregator", "FedAvg"],
    ],
)
def test_command_line(tmp_path, arguments):
    assert fit(tmp_path, "--algorithm", "fednh", *arguments) == 0
    lines = read_lines(tmp_path / "run" / "rounds.jsonl")
    assert all(line["received"]["loss"] is not None for line in lines)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--algorithm.head.init_args.scale", "0"], "scale: expected a finite number > 0"),
        (["--algorithm.head", "null"], "algorithm.head: expected PrototypeHead"),
        (["--model.hidden_features", "3"], "algorithm.head: expected at most as many classes"),
    ],
)
def test_command_line_explains_what_is_wrong(tmp_path, capsys, arguments, message):
    assert fit(tmp_path, "--algorithm", "fednh", *arguments) != 0
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error

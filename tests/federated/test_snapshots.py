"""Snapshots of a run against its state, and the reader of run folders."""

import shutil

import numpy as np
import pytest
import torch
from helpers import Keep, run, small_experiment

from cwfed.cli import main
from cwfed.federated.snapshots import SnapshotWriter
from cwfed.records.checksums import opened_arrays
from cwfed.records.files import write_arrays
from cwfed.records.reading import read_arrays
from cwfed.records.round_lines import read_lines
from cwfed.records.run import Run

FIT = ["fit", "--config", "quickstart", "--model.hidden_features", "8"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A short run of the quickstart."""
    path = tmp_path_factory.mktemp("run") / "run"
    assert main([*FIT, "--rounds", "3", "--snapshots.every", "2", "--run_dir", str(path)]) == 0
    return path


def test_arrays_are_those_of_the_state(tmp_path):
    kept = Keep()
    run(small_experiment(), [SnapshotWriter(tmp_path, 2), kept])
    files = sorted(path.name for path in (tmp_path / "snapshots").iterdir())
    assert files == ["round_000000.npz", "round_000002.npz", "round_000003.npz"]
    arrays = np.load(tmp_path / "snapshots" / "round_000002.npz", allow_pickle=False)
    state, record = kept.states[2], kept.records[2]
    for name, bank in (("norms_upload", state.uploads), ("norms_received", state.received)):
        rows = [[row.square().sum().sqrt() for row in weight] for weight in bank["out.weight"]]
        torch.testing.assert_close(torch.from_numpy(arrays[name]), torch.tensor(rows).float())
    assert arrays["norms_upload"].dtype == np.float32
    output, base = record.mixing["out.weight"], record.mixing["conv.weight"]
    torch.testing.assert_close(torch.from_numpy(arrays["mixing_output"]), output.float())
    torch.testing.assert_close(torch.from_numpy(arrays["mixing_base"]), base.float())
    assert not torch.equal(output, base)


@pytest.mark.parametrize(
    ("every", "rounds", "expected"),
    [(None, 3, [0, 1, 2, 3]), (None, 101, [*range(0, 101, 3), 101]), (0, 3, []), (50, 3, [0, 3])],
)
def test_how_often(every, rounds, expected, tmp_path):
    writer = SnapshotWriter(tmp_path, every)
    writer.loop = type("Loop", (), {"rounds": rounds})()
    due = [round_ for round_ in range(rounds + 1) if writer.due(round_)]
    assert due == expected


def test_a_run_is_read_as_it_was_written(folder):
    read = Run.load(folder)
    assert (read.algorithm, read.dataset, read.seed) == ("cwfedavg", "Digits", 0)
    lines = read_lines(folder / "rounds.jsonl")
    assert read.rounds.index.tolist() == [0, 1, 2, 3]
    accuracies = [line["received"]["accuracy"] for line in lines]
    assert read.rounds["received/accuracy"].tolist() == accuracies
    assert np.isnan(read.rounds["post_local/accuracy"][0])
    by_client = read.accuracy("received")
    assert by_client.loc[3].tolist() == pytest.approx(read.clients["accuracy_received"].tolist())
    total = read.label_counts("test").to_numpy().sum(1)
    assert (by_client.loc[3] * total).sum() / total.sum() == pytest.approx(accuracies[3])
    assert read.accuracy("post_local").index.tolist() == [1, 2, 3]
    counts = read.label_counts("train").to_numpy()
    np.testing.assert_allclose(read.p_MK, counts / counts.sum(1, keepdims=True))
    assert read.clients["train"].tolist() == counts.sum(1).tolist()


def test_r_can_be_worked_out_from_a_snapshot(folder):
    read = Run.load(folder)
    assert read.snapshot_rounds == [0, 2, 3]
    distance = np.sqrt(((read.p_MK - read.snapshot().p_estimated_MK) ** 2).sum(1))
    np.testing.assert_allclose(distance, read.clients["R"], atol=1e-6)


def test_zero_norms_count_as_uniform(folder):
    snapshot = Run.load(folder).snapshot()
    snapshot.norms_upload_MK[0] = 0
    np.testing.assert_allclose(snapshot.p_estimated_MK[0], 0.1)


def test_an_unfinished_run_can_be_read(folder, tmp_path):
    (tmp_path / "config.yaml").write_bytes((folder / "config.yaml").read_bytes())
    read = Run.load(tmp_path)
    assert read.result is None
    assert read.lines == []
    assert read.clients.empty
    assert read.rounds.empty
    assert read.snapshot_rounds == []


@pytest.mark.parametrize("name", ["round_²", "round_٣", "round_3", "round_-1", "round_00000003"])
def test_a_copy_under_another_name_is_no_snapshot(folder, tmp_path, name):
    shutil.copytree(folder, tmp_path / "run")
    (tmp_path / "run" / "snapshots" / f"{name}.npz").write_bytes(b"")
    assert Run.load(tmp_path / "run").snapshot_rounds == [0, 2, 3]


def test_what_cannot_be_read_is_named(folder, tmp_path):
    with pytest.raises(ValueError, match=r"expected a run folder with a config.yaml"):
        Run.load(tmp_path)
    (tmp_path / "config.yaml").write_text("a: [")
    with pytest.raises(ValueError, match=r"config.yaml: expected a configuration"):
        Run.load(tmp_path)
    (tmp_path / "config.yaml").write_bytes((folder / "config.yaml").read_bytes())
    older = Run.load(tmp_path)
    with pytest.raises(ValueError, match=r"labels.json: not there"):
        older.label_counts()
    with pytest.raises(ValueError, match="no snapshots"):
        older.snapshot()
    (tmp_path / "labels.json").write_text("{}")
    with pytest.raises(ValueError, match=r"labels.json: expected label counts"):
        Run.load(tmp_path).label_counts()
    with pytest.raises(ValueError, match=r"round: expected one of 0, 2, 3, got 1"):
        Run.load(folder).snapshot(1)
    with pytest.raises(ValueError, match="metric: expected"):
        Run.load(folder).accuracy("best")
    (tmp_path / "rounds.jsonl").write_text((folder / "rounds.jsonl").read_text())
    (tmp_path / "snapshots").mkdir()
    (tmp_path / "snapshots" / "round_000000.npz").write_bytes(b"PK nothing")
    with pytest.raises(ValueError, match="expected a snapshot, got a damaged file"):
        Run.load(tmp_path).snapshot()


class LoneHead(torch.nn.Module):
    """Nothing but an output layer, without a bias."""

    head_name = "out"

    def __init__(self, num_classes, in_channels, image_size):
        super().__init__()
        self.out = torch.nn.Linear(in_channels * image_size**2, num_classes, bias=False)

    def forward(self, x):
        return self.out(x.flatten(1))


def test_a_model_without_a_base_has_snapshots_too(tmp_path):
    run(small_experiment(model=LoneHead), [SnapshotWriter(tmp_path, 3)])
    arrays = np.load(tmp_path / "snapshots" / "round_000003.npz", allow_pickle=False)
    assert set(arrays) == {"checksum", "norms_upload", "norms_received", "mixing_output"}


def test_no_flipped_bit_of_a_snapshot_passes(tmp_path):
    path, norms = tmp_path / "a.npz", np.arange(6, dtype=np.float32).reshape(2, 3)
    arrays = {"norms_upload": norms, "norms_received": norms + 1, "mixing_output": np.eye(2)}
    write_arrays(path, arrays)
    whole = path.read_bytes()
    for at in range(len(whole)):
        for bit in range(8):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << bit)]) + whole[at + 1 :])
            try:
                held = opened_arrays(read_arrays(path))
            except ValueError:
                continue
            assert held.keys() == arrays.keys(), (at, bit)
            assert all((held[name] == arrays[name]).all() for name in arrays), (at, bit)

"""Runs that version 0.1 of the package has left are read, resumed and made longer.

The folders hold four finished rounds and the checkpoints of rounds 2 and 4, of a network of a
user's own.
"""

import json
import shutil
from pathlib import Path

import pytest

import cwfed
from cwfed.processes.lock import unlocked_afterwards
from cwfed.records.files import read_yaml
from cwfed.records.identity import config_hash

RUNS = Path(__file__).parent / "runs_0_1"
METHODS = sorted(path.name for path in RUNS.iterdir())


def copy(method, folder, rounds=4):
    """Copy a run; with fewer rounds, as if it had been killed after them."""
    shutil.copytree(RUNS / method, folder)
    if rounds < 4:
        for name in ("result.json", "clients.csv", "checkpoints/round_000004.pt"):
            (folder / name).unlink()
        (folder / "checkpoints" / "round_000004.json").unlink()
        lines = (folder / "rounds.jsonl").read_text().splitlines(keepends=True)
        (folder / "rounds.jsonl").write_text("".join(lines[: rounds + 1]))
    return folder


def numbers(folder):
    lines = [json.loads(text) for text in (folder / "rounds.jsonl").read_text().splitlines()]
    return [{n: v for n, v in line.items() if n not in ("seconds", "checksum")} for line in lines]


def approximately(line):
    """A line to compare with across machines, whose last bits differ."""
    return {
        "round": line["round"],
        "bytes": line["bytes"],
        "mean_R": pytest.approx(line["mean_R"], abs=1e-5),
        "train_loss": line["train_loss"] and pytest.approx(line["train_loss"], abs=1e-4),
    }


@pytest.fixture(params=METHODS)
def method(request, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    return request.param


def test_it_is_resumed_to_the_same_bits(method, tmp_path):
    folder = copy(method, tmp_path / "run", rounds=2)
    with unlocked_afterwards():
        run = cwfed.resume(folder, progress=False)
    assert run.result["rounds"] == 4
    expected = numbers(RUNS / method)
    assert numbers(folder)[:3] == expected[:3]
    got = [{n: line[n] for n in approximately(line)} for line in numbers(folder)]
    assert got == list(map(approximately, expected))
    fresh = cwfed.fit(folder / "config.yaml", run_dir=tmp_path / "fresh", progress=False)
    if numbers(tmp_path / "fresh")[:3] == expected[:3]:  # a machine of the same kind
        assert numbers(folder) == expected
        assert run.result["hashes"] == fresh.result["hashes"]
        before = json.loads((RUNS / method / "result.json").read_text())
        assert run.result["hashes"]["models"] == before["hashes"]["models"]


def test_it_is_made_longer(method, tmp_path):
    folder = copy(method, tmp_path / "run")
    with unlocked_afterwards():
        run = cwfed.resume(folder, rounds=5, progress=False)
    assert run.result["rounds"] == 5
    assert numbers(folder)[:5] == numbers(RUNS / method)
    # Its checkpoint carries the identity of the longer run: it goes on once more.
    assert cwfed.resume(folder, rounds=6, progress=False).result["rounds"] == 6


def test_a_changed_configuration_is_another_run(method, tmp_path):
    folder = copy(method, tmp_path / "run", rounds=2)
    config = folder / "config.yaml"
    config.write_text(config.read_text().replace("lr: 0.05", "lr: 0.06"))
    with pytest.raises(ValueError, match="expected a checkpoint of this run's configuration"):
        cwfed.resume(folder, progress=False)


def test_its_hash_is_that_of_its_configuration(method):
    result = json.loads((RUNS / method / "result.json").read_text())
    config = read_yaml(RUNS / method / "config.yaml")
    assert config_hash(config, 1) == result["hashes"]["config"]
    assert config_hash(config) != result["hashes"]["config"]

"""Faults from the command line to the run folder, and in the hash of a configuration."""

import pytest
import yaml
from helpers import SMALL_FIT

import cwfed
from cwfed.cli import main
from cwfed.federated.faults import RunStopped
from cwfed.records.identity import config_hash
from cwfed.records.round_lines import read_lines
from cwfed.records.run import Run

FIT = ["fit", "--config", "quickstart", "--model.hidden_features", "8"]
LOST = ["--faults.dropout", "0.4", "--faults.deadline", "2"]


def lines(folder):
    read = read_lines(folder / "rounds.jsonl")
    return [{name: value for name, value in line.items() if name != "seconds"} for line in read]


def test_a_run_with_lost_clients_says_so_and_repeats_from_its_configuration(tmp_path, capsys):
    assert (
        main(
            [
                *FIT,
                *LOST,
                "--rounds",
                "2",
                "--evaluate_every",
                "2",
                "--run_dir",
                str(tmp_path / "a"),
            ]
        )
        == 0
    )
    shown = capsys.readouterr()
    assert " of 10 left out" in shown.err
    assert "left out over all rounds: " in shown.out
    config = str(tmp_path / "a" / "config.yaml")
    assert main(["fit", "--config", config, "--run_dir", str(tmp_path / "b")]) == 0
    assert lines(tmp_path / "a") == lines(tmp_path / "b")
    loaded = Run.load(tmp_path / "a")
    excluded = [line.get("excluded", {}) for line in lines(tmp_path / "a")]
    assert sum(map(len, excluded)) > 0
    assert loaded.rounds["excluded"].tolist() == [len(each) for each in excluded]
    counts = loaded.result["excluded"]
    assert sum(counts.values()) == sum(map(len, excluded))
    assert set(counts) <= {"dropout", "straggler"}


def test_stop_ends_with_one_line_and_keeps_the_finished_rounds(tmp_path, caplog, capsys):
    wild = ["--client.optimizer.init_args.lr", "1e30", "--faults.policy", "stop"]
    assert main([*FIT, *wild, "--rounds", "2", "--run_dir", str(tmp_path / "run")]) == 1
    assert [r.message for r in caplog.records if r.levelname == "ERROR"] == [
        "round 1: stopped by clients 0, 1, 2, 3, 4 and 5 more (non-finite model), as faults.policy "
        "asks; a smaller learning rate may help, or resume with --faults.policy exclude"
    ]
    assert "finished rounds are kept" in caplog.text
    assert "Traceback" not in capsys.readouterr().err
    assert [line["round"] for line in lines(tmp_path / "run")] == [0]


def test_a_run_that_stopped_for_a_client_can_go_on_without_it(tmp_path):
    wild = SMALL_FIT | {"client": {"optimizer": {"init_args": {"lr": 1e30}}}, "rounds": 1}
    with pytest.raises(RunStopped):
        cwfed.fit("quickstart", run_dir=tmp_path / "a", faults={"policy": "stop"}, **wild)
    with pytest.raises(RunStopped):
        cwfed.resume(tmp_path / "a", progress=False)
    cwfed.resume(tmp_path / "a", faults={"policy": "exclude"}, progress=False)
    cwfed.fit("quickstart", run_dir=tmp_path / "b", **wild)
    assert lines(tmp_path / "a") == lines(tmp_path / "b")
    configs = [(tmp_path / run / "config.yaml").read_bytes() for run in "ab"]
    assert configs[0] == configs[1]


def test_a_configuration_older_than_faults_has_the_same_identity(tmp_path):
    assert main([*FIT, "--rounds", "0", "--run_dir", str(tmp_path / "run")]) == 0
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert config["faults"]["policy"] == "exclude"
    older = {name: value for name, value in config.items() if name != "faults"}
    assert config_hash(older) == config_hash(config)


@pytest.mark.parametrize(
    "change",
    [{"dropout": 0.1}, {"deadline": 2.0}, {"speed_sigma": 1.0}],
)
def test_faults_that_are_chosen_enter_the_hash(change):
    assert config_hash({"seed": 0, "faults": change}) != config_hash({"seed": 0})
    usual = {"dropout": 0.0, "policy": "stop"}
    assert config_hash({"seed": 0, "faults": usual}) == config_hash({"seed": 0})

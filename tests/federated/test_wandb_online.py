"""Weights & Biases, online: what a server gets, and what a person sees when it does not answer."""

import json
import logging
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from wandb_server import ENTITY, KEY, WandbServer

from cwfed.cli import main
from cwfed.federated import lock, wandb_logger
from cwfed.federated.loggers import flatten
from cwfed.federated.wandb_logger import WandbReporter

wandb = pytest.importorskip("wandb", reason="wandb is not installed")

SMALL = [
    *("--config", "quickstart", "--data", "SyntheticImages", "--data.image_size", "16"),
    *("--data.samples_per_class", "20", "--partition.num_clients", "4"),
    *("--model.hidden_features", "8", "--trainer.engine", "sequential"),
    *("--wandb.heatmaps", "0", "--logger", "wandb", "--wandb.mode"),
]
ONLINE, OFFLINE = [*SMALL, "online"], [*SMALL, "offline"]
LONGEST = 120
"""Seconds after which a test is taken to hang."""


@pytest.fixture(autouse=True)
def _bounded():
    def stop(number, frame):
        raise TimeoutError(f"hangs for {LONGEST} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(LONGEST)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A server that this process, and those that it starts, take for W&B's."""
    home = tmp_path / "home"
    home.mkdir()
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("NETRC", str(home / "netrc"))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(home / "wandb"))
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    wandb.teardown()
    with WandbServer().open() as server:
        monkeypatch.setenv("WANDB_BASE_URL", server.url)
        yield server
        server.status = None
        wandb.teardown()
    assert not (home / "netrc").exists()


def fit(options, folder, *more):
    return main(["fit", *options, "--run_dir", str(folder), *map(str, more)])


def lines_of(folder):
    return [json.loads(text) for text in (folder / "rounds.jsonl").read_text().splitlines()]


def assert_whole(server, folder):
    """Assert that the server has every round of the folder once, and nothing went unanswered."""
    (run,) = server.runs.values()
    lines = lines_of(folder)
    assert [row["_step"] for row in run.history] == [line["round"] for line in lines]
    for row, line in zip(run.history, lines, strict=True):
        expected = flatten(line) | {"round": line["round"]}
        assert {name: row.get(name) for name in expected} == pytest.approx(expected)
    assert server.unknown == []
    return run


class AfterRound:
    """Does something after a round was logged."""

    def __init__(self, monkeypatch, round_, act):
        original = WandbReporter.on_round

        def on_round(reporter, record, state):
            original(reporter, record, state)
            if record.round == round_:
                act()

        monkeypatch.setattr(WandbReporter, "on_round", on_round)


def interrupt():
    raise KeyboardInterrupt


def stopped_after(monkeypatch, round_, *given):
    with monkeypatch.context() as patch:
        AfterRound(patch, round_, interrupt)
        assert fit(*given) == 130
    lock._forget()  # as the end of the process would


def sync(said):
    """Run the command that a run has told; return what it prints."""
    (command,) = re.findall(r"wandb sync .*", said)
    words = [sys.executable, "-m", *shlex.split(command)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    return done.stderr


def test_a_run_arrives_as_the_folder_has_it(server, tmp_path, capsys):
    folder = tmp_path / "run"
    assert fit(ONLINE, folder, "--rounds", 2, "--wandb.models", "true", "--wandb.group", "g") == 0
    run = assert_whole(server, folder)
    identifier = (folder / "wandb_id.txt").read_text().strip()
    url = f"{server.url}/{ENTITY}/cwfed/runs/{identifier}"
    said = capsys.readouterr().err
    assert said.count(url) == 1
    assert "sync" not in said
    assert list(server.runs) == [identifier]
    assert (run.exit_code, run.starts) == (0, 1)
    assert (run.about["groupName"], run.about["jobType"]) == ("g", "cwfedavg")
    result = json.loads((folder / "result.json").read_text())
    assert run.config["cwfed"]["config_hash"] == result["hashes"]["config"]
    assert run.config["algorithm"]["name"] == "cwfedavg"
    assert run.summary["received/best_accuracy"] == result["received"]["best"]["accuracy"]
    assert run.summary["rounds"] == 2
    (table,) = [name for name in server.files if "media/table/clients" in name]
    assert len(json.loads(server.files[table])["data"]) == 4
    kept = {artifact["type"]: artifact for artifact in server.artifacts}
    assert kept["partition"]["files"]["partition.json"] == (folder / "partition.json").read_bytes()
    assert "last" in kept["model"]["aliases"]
    assert kept["model"]["files"]["models.pt"] == (folder / "models" / "last.pt").read_bytes()


def test_an_interrupted_run_goes_on_where_the_server_is(server, tmp_path, monkeypatch):
    """Rounds after the checkpoint are repeated and not sent again."""
    folder = tmp_path / "run"
    stopped_after(monkeypatch, 3, ONLINE, folder, "--rounds", 4, "--checkpoint.every", 2)
    (run,) = server.runs.values()
    assert len(run.history) == 4
    assert run.exit_code == 1
    assert main(["fit", "--resume", str(folder)]) == 0
    assert assert_whole(server, folder).starts == 2
    assert run.exit_code == 0
    assert run.summary["rounds"] == 4

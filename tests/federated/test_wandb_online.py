"""Weights & Biases, online: what a server gets, and what a person sees when it does not answer."""

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from threading import Timer
from types import SimpleNamespace

import pytest
from wandb_server import ENTITY, KEY, WandbServer

from cwfed.cli import main
from cwfed.processes import lock
from cwfed.records.round_lines import read_lines
from cwfed.records.scalars import flatten
from cwfed.tracking import wandb_logger, wandb_service
from cwfed.tracking.wandb_logger import WandbReporter
from cwfed.tracking.wandb_options import WandbOptions

wandb = pytest.importorskip("wandb", reason="wandb is not installed")

SMALL = [
    *("--config", "quickstart", "--data", "SyntheticImages", "--data.image_size", "16"),
    *("--data.samples_per_class", "20", "--partition.num_clients", "4"),
    *("--model.hidden_features", "8", "--trainer.engine", "sequential"),
    *("--wandb.heatmaps", "0", "--logger", "wandb", "--wandb.mode"),
]
ONLINE, OFFLINE = [*SMALL, "online"], [*SMALL, "offline"]
LONGEST = 240
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
    return read_lines(folder / "rounds.jsonl")


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
    # W&B itself drops rows of rounds that it has; artifacts it would take again.
    assert [artifact["type"] for artifact in server.artifacts].count("partition") == 1


def test_a_killed_run_goes_on_where_the_server_is(server, tmp_path):
    """What was not sent yet is sent by the resumed run."""
    folder = tmp_path / "run"
    options = [*ONLINE, "--rounds", "500", "--checkpoint.every", "2", "--run_dir", str(folder)]
    with (tmp_path / "said").open("w") as said:
        command = [sys.executable, "-m", "cwfed", "fit", *options]
        process = subprocess.Popen(command, stderr=said, cwd=tmp_path, env=_here())
    try:
        while not (folder / "rounds.jsonl").is_file() or len(lines_of(folder)) < 5:
            assert process.poll() is None, (tmp_path / "said").read_text()
            time.sleep(0.05)
    finally:
        process.kill()
        process.wait()
    config = (folder / "config.yaml").read_text()
    assert "rounds: 500\n" in config
    before = len(lines_of(folder))
    with pytest.MonkeyPatch.context() as patch:
        AfterRound(patch, before + 1, interrupt)
        assert main(["fit", "--resume", str(folder)]) == 130
    lock._forget()
    assert assert_whole(server, folder).starts == 2
    assert len(lines_of(folder)) > before


def _here():
    """Return the environment for a process that imports what this one does."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}


def refused(capsys, folder):
    """Return how long a run took to be refused, and the one line that says why."""
    begin = time.monotonic()
    assert fit(ONLINE, folder) == 2
    took = time.monotonic() - begin
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert not folder.exists()
    (line,) = [line for line in said.splitlines() if not line.startswith("wandb: [")]
    assert line.startswith("cwfed fit: error: wandb: cannot log in: ")
    assert "--wandb.mode offline" in line
    return took, line


def test_a_wrong_key_is_one_line(server, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("WANDB_API_KEY", KEY[::-1])
    _, line = refused(capsys, tmp_path / "run")
    assert "invalid credentials; run `wandb login`" in line
    assert server.runs == {}


def test_a_server_that_is_not_there_is_one_line_soon(server, tmp_path, monkeypatch, capsys):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    monkeypatch.setenv("WANDB_BASE_URL", url)
    monkeypatch.setenv("WANDB_HTTP_TIMEOUT", "2")
    took, line = refused(capsys, tmp_path / "run")
    assert f"{url} does not answer" in line
    assert "wandb login" not in line
    assert took < 40


@pytest.fixture
def impatient(monkeypatch):
    """Wait for a second at the end, and for another one where W&B asks about artifacts."""
    monkeypatch.setattr(wandb_logger, "_PATIENCE", 1.0)
    monkeypatch.setattr("cwfed.tracking.wandb_upload._SOON", 0.2)
    monkeypatch.setattr("wandb.apis.public.Api._HTTP_TIMEOUT", 1)


@pytest.mark.parametrize("how", ["refused", "broken"])
@pytest.mark.usefixtures("impatient")
def test_a_run_outlives_the_server(server, tmp_path, monkeypatch, capsys, how):
    """What is missing is uploaded by the command that the run ends with."""
    folder = tmp_path / "run"
    stopped_after(monkeypatch, 1, ONLINE, folder, "--rounds", 3, "--wandb.models", "true")
    capsys.readouterr()
    AfterRound(monkeypatch, 2, lambda: server.close() if how == "refused" else server.fail(500))
    begin = time.monotonic()
    assert main(["fit", "--resume", str(folder)]) == 0
    assert time.monotonic() - begin < 60
    assert (folder / "result.json").is_file()
    assert [line["round"] for line in lines_of(folder)] == [0, 1, 2, 3]
    said = capsys.readouterr().err
    assert "Traceback" not in said
    wait = "W&B: waiting for what is not uploaded yet, for at most 1 s; Ctrl-C ends the wait"
    assert said.count(wait) == 1
    assert said.count("W&B: not everything was uploaded") == 1
    assert said.count("the run goes on") == 1
    if how == "broken":
        server.fail(None)
        sync(said)
        assert_whole(server, folder)


@pytest.mark.usefixtures("impatient")
def test_ctrl_c_ends_the_wait_and_nothing_else(server, tmp_path, monkeypatch, capsys):
    finish = wandb.Run.finish

    def interrupted(run, **given):
        Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        finish(run, **given)

    monkeypatch.setattr(wandb_logger, "_PATIENCE", float(LONGEST))
    monkeypatch.setattr(wandb.Run, "finish", interrupted)
    AfterRound(monkeypatch, 1, lambda: server.fail(500))
    assert fit(ONLINE, tmp_path / "run", "--rounds", 1) == 0
    assert (tmp_path / "run" / "result.json").is_file()
    said = capsys.readouterr().err
    server.fail(None)
    assert said.count("wandb sync --include-online") == 1
    assert "--resume" not in said


def test_an_offline_run_is_uploaded_by_the_command_that_it_tells(
    server, tmp_path, monkeypatch, capsys
):
    """Resumed once, so that it has two folders."""
    folder = tmp_path / "run"
    stopped_after(monkeypatch, 1, OFFLINE, folder, "--rounds", 3, "--checkpoint.every", 2)
    capsys.readouterr()
    assert main(["fit", "--resume", str(folder)]) == 0
    assert server.requests == 0
    sync(capsys.readouterr().err)
    run = assert_whole(server, folder)
    assert run.summary["rounds"] == 3
    assert run.config["cwfed"]["partition_hash"]
    assert "partition" in [artifact["type"] for artifact in server.artifacts]


def test_folders_of_one_second_are_all_of_the_run(tmp_path):
    names = [
        f"{how}run-20260101_000000-0123abcd{end}" for how in ("offline-", "") for end in ("", "-1")
    ]
    for name in [*names, "run-20260101_000000-other", "latest-run"]:
        (tmp_path / "wandb" / name).mkdir(parents=True)
    reporter = WandbReporter(tmp_path, WandbOptions(), {}, "offline")
    found = reporter._folders(SimpleNamespace(id="0123abcd"))
    assert {folder.name for folder in found} == set(names)


@pytest.mark.usefixtures("impatient")
def test_what_was_not_uploaded_before_it_went_on_offline_is_uploaded_too(
    server, tmp_path, monkeypatch, capsys
):
    folder = tmp_path / "run"

    def break_and_interrupt():
        server.fail(500)
        interrupt()

    with monkeypatch.context() as patched:
        AfterRound(patched, 1, break_and_interrupt)
        assert fit(ONLINE, folder, "--rounds", 3) == 130
    lock._forget()
    server.fail(None)
    assert not any(run.history for run in server.runs.values())
    capsys.readouterr()
    assert main(["fit", "--resume", str(folder), "--wandb.mode", "offline"]) == 0
    sync(capsys.readouterr().err)
    (run,) = server.runs.values()
    assert {row["_step"] for row in run.history} == {0, 1, 2, 3}


def service():
    """Return the number of W&B's process."""
    command = ["pgrep", "-P", str(os.getpid()), "wandb-core"]
    (number,) = subprocess.run(command, capture_output=True, text=True).stdout.split()
    return int(number)


@pytest.mark.usefixtures("server")
def test_a_service_that_does_not_end_is_not_waited_for(monkeypatch):
    """After a login without an answer it may go on asking for long."""
    monkeypatch.setattr(wandb_service, "_PATIENCE", 0.5)
    wandb.login(verify=True)
    stopped = service()
    os.kill(stopped, signal.SIGSTOP)
    try:
        begin = time.monotonic()
        wandb_service.end_service()
        assert time.monotonic() - begin < 10
        # Another one does the next run's work.
        wandb.login(verify=True)
    finally:
        os.kill(stopped, signal.SIGKILL)


@pytest.mark.usefixtures("server")
def test_a_process_ends_while_its_service_does_not(tmp_path):
    script = """
import os, signal, subprocess, time, wandb
from cwfed.tracking import wandb_service
wandb_service._PATIENCE = 0.5
wandb.login(verify=True)
found = subprocess.run(["pgrep", "-P", str(os.getpid()), "wandb-core"], capture_output=True)
print(int(found.stdout), flush=True)
os.kill(int(found.stdout), signal.SIGSTOP)
wandb_service.end_service()
"""
    command = [sys.executable, "-c", script]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=_here())
    stopped = int(process.stdout.readline())
    try:
        assert process.wait(30) == 0
    finally:
        os.kill(stopped, signal.SIGKILL)


def test_a_dead_service_costs_the_run_nothing(server, tmp_path, monkeypatch, capsys):
    """W&B's own process may be killed, such as for memory."""

    folder = tmp_path / "run"
    AfterRound(monkeypatch, 1, lambda: os.kill(service(), signal.SIGKILL))
    assert fit(ONLINE, folder, "--rounds", 3) == 0
    assert len(lines_of(folder)) == 4
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert said.count("the run goes on") == 1
    assert said.count("wandb sync --include-online") == 1

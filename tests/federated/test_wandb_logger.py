"""Weights & Biases, offline: what a run leaves, as `wandb sync` uploads it."""

import csv
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import weakref
from io import BytesIO
from types import ModuleType

import pytest
import torch
import yaml
from helpers import SMALL_FIT
from PIL import Image
from wandb_files import folders_of, stored, synced

import cwfed
from cwfed.cli import main
from cwfed.processes import lock
from cwfed.records.atomic import append_atomic
from cwfed.records.round_lines import read_lines
from cwfed.records.scalars import flatten
from cwfed.tracking.loggers import make_reporters
from cwfed.tracking.wandb_logger import WandbReporter
from cwfed.tracking.wandb_options import WandbOptions
from cwfed.tracking.wandb_record import LoggedRounds

SMALL = [
    *("--config", "quickstart", "--data", "SyntheticImages", "--data.image_size", "16"),
    *("--data.samples_per_class", "20", "--partition.num_clients", "4"),
    *("--model.hidden_features", "8", "--trainer.engine", "sequential"),
]
OFFLINE = ["--logger", "wandb", "--wandb.mode", "offline"]


@pytest.fixture(autouse=True)
def _home(tmp_path_factory, monkeypatch):
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)


def fit(folder, *options):
    return main(["fit", *SMALL, "--run_dir", str(folder), *map(str, options)])


def lines_of(folder):
    return read_lines(folder / "rounds.jsonl")


@pytest.fixture(scope="module")
def logged(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "logged"
    options = ("--wandb.models", "true", "--wandb.heatmaps", "2", "--wandb.tags", "[cpu]")
    project = ("--wandb.project", "p", "--wandb.entity", "e")
    run = ("--rounds", 3, "--evaluate_every", "2", "--faults.dropout", "0.3")
    assert fit(folder, *run, *OFFLINE, *options, *project) == 0
    return folder


@pytest.fixture(scope="module")
def server(logged, tmp_path_factory):
    """What a server gets of it."""
    return synced(logged, tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def run(server):
    (found,) = server.runs.values()
    return found


def test_history_holds_the_rounds_as_the_run_folder_does(logged, run):
    rows = run.history
    lines = lines_of(logged)
    assert [row["round"] for row in rows] == [row["_step"] for row in rows] == [0, 1, 2, 3]
    for row, line in zip(rows, lines, strict=True):
        expected = flatten(line)
        assert {name: row[name] for name in expected} == pytest.approx(expected)
    assert {"bytes/up", "seconds/fit", "mean_R", "train_loss"} <= rows[3].keys()
    assert "received/fairness_worst10" in rows[3]
    assert "received/accuracy" not in rows[1]
    assert [row["excluded"] for row in rows] == [len(line.get("excluded", ())) for line in lines]
    assert sum(row["excluded"] for row in rows) > 0


def test_clients_are_a_histogram_a_figure_and_one_table(logged, server, run):
    rows = run.history
    correct = lines_of(logged)[3]["received"]["correct"]
    assert sum(rows[3]["clients/received_accuracy"]["values"]) == len(correct) == 4
    assert rows[3]["clients/R"]["bins"][-1] == pytest.approx(2**0.5)
    single = [name for row in rows for name in row if name.startswith("clients/")]
    assert {name.split("/")[1] for name in single} == {
        *("received_accuracy", "post_local_accuracy", "R", "table")
    }
    assert [row["round"] for row in rows if "clients/table" in row] == [3]
    (identifier,) = server.runs
    table = json.loads(server.files[f"{identifier}/{rows[3]['clients/table']['path']}"])
    with (logged / "clients.csv").open() as file:
        kept = list(csv.DictReader(file))
    for name in ("train", "test", "accuracy_received", "accuracy_post_local", "R"):
        column = [row[table["columns"].index(name)] for row in table["data"]]
        assert column == pytest.approx([float(row[name]) for row in kept]), name


def test_heat_maps_are_images_at_the_interval(server, run):
    rows = run.history
    name = "heatmaps/class_distributions"
    assert [row["round"] for row in rows if name in row] == [0, 2, 3]
    assert [row["round"] for row in rows if "heatmaps/mixing" in row] == [2, 3]
    (identifier,) = server.runs
    for logged in (rows[0][name], rows[2]["heatmaps/mixing"]):
        content = BytesIO(server.files[f"{identifier}/{logged['path']}"])
        with Image.open(content) as image:
            colours = image.convert("RGB").getcolors(image.width * image.height)
        assert len(colours) > 20


def test_run_config_summary_and_step(logged, server, run):
    about, config = run.about, run.config
    assert (about["project"], about["jobType"]) == ("p", "cwfedavg")
    assert about["groupName"] == "SyntheticImages/Dirichlet(num_clients=4, alpha=0.1)"
    assert (about["displayName"], sorted(about["tags"])) == ("logged", ["cpu", "seed 0"])
    assert list(server.runs) == [(logged / "wandb_id.txt").read_text().strip()]
    # W&B's own numbering: 1 is the name, 2 a pattern of names, 5 the place of the step metric.
    metrics = config["_wandb"]["m"]
    assert metrics[0]["1"] == "round"
    assert [metric["5"] for metric in metrics if metric.get("2") == "*"] == [1]
    kept = yaml.safe_load((logged / "config.yaml").read_text())
    result = json.loads((logged / "result.json").read_text())
    assert config["algorithm"] == kept["algorithm"]
    assert config["cwfed"]["config_hash"] == result["hashes"]["config"]
    assert config["cwfed"]["partition_hash"] == result["hashes"]["partition"]
    assert config["cwfed"]["wdr_lambda"] == kept["wdr_lambda"] > 0
    assert not {"wandb", "logger", "data_dir"} & config.keys()
    found = run.summary
    for metric in ("received", "post_local"):
        for choice in ("best", "last"):
            quoted = result[metric][choice]
            assert found[f"{metric}/{choice}_accuracy"] == pytest.approx(quoted["accuracy"])
    assert found["bytes/total"] == sum(way["total"] for way in result["bytes"].values())
    assert found["seconds/total"] == pytest.approx(sum(result["seconds"].values()))
    assert found["excluded/total"] == sum(result["excluded"].values()) > 0
    assert (found["rounds"], found["mean_R"]) == (3, pytest.approx(result["mean_R"]))


def test_artifacts_are_the_partition_and_the_models(logged, server):
    (partition,) = [made for made in server.artifacts if made["type"] == "partition"]
    for name in ("partition.json", "labels.json"):
        assert partition["files"][name] == (logged / name).read_bytes()
    result = json.loads((logged / "result.json").read_text())
    models = [made for made in server.artifacts if made["type"] == "model"]
    for choice in ("best", "last"):
        quoted = result["received"][choice]
        (made,) = [made for made in models if choice in made["aliases"]]
        kept = torch.load(BytesIO(made["files"]["models.pt"]), weights_only=True)
        assert f"round-{kept['round']}" in made["aliases"]
        assert kept["round"] == made["metadata"]["round"] == quoted["round"]
        assert kept["accuracy"] == quoted["accuracy"]
    newest = torch.load(max((logged / "checkpoints").glob("*.pt")), weights_only=True)
    for name, values in newest["received"].items():
        assert torch.equal(kept["models"][name], values)


class Stop:
    """Interrupts a run after a round has been logged."""

    def __init__(self, monkeypatch, round_):
        self.original, self.round = WandbReporter.on_round, round_
        monkeypatch.setattr(WandbReporter, "on_round", lambda *given: self.on_round(*given))

    def on_round(self, reporter, record, state):
        self.original(reporter, record, state)
        if record.round == self.round:
            raise KeyboardInterrupt


@pytest.mark.parametrize("lost", [False, True], ids=["interrupted", "deleted"])
def test_a_resumed_run_continues_without_double_or_missing_rounds(tmp_path, monkeypatch, lost):
    """Rounds after the checkpoint are repeated, not logged again, unless somebody deleted them."""
    folder = tmp_path / "run"
    options = ("--rounds", 4, "--checkpoint.every", 2, "--wandb.heatmaps", 0)
    with monkeypatch.context() as patch:
        Stop(patch, 3)
        assert fit(folder, *options, *OFFLINE, "--wandb.models", "true") == 130
    lock._forget()  # as the end of the process would
    (first,) = folders_of(folder)
    assert LoggedRounds(folder).by_folder([first]) == {first: {0, 1, 2, 3}}
    if lost:
        shutil.rmtree(first)
    assert main(["fit", "--resume", str(folder)]) == 0
    run, lines = stored(folder, tmp_path), lines_of(folder)
    assert [row["round"] for row in run.history] == [0, 1, 2, 3, 4]
    accuracy = [row["received/accuracy"] for row in run.history]
    assert accuracy == pytest.approx([line["received"]["accuracy"] for line in lines])
    result = json.loads((folder / "result.json").read_text())
    best = torch.load(folder / "models" / "best.pt", weights_only=True)
    assert best["round"] == result["received"]["best"]["round"]


def test_a_killed_run_has_every_round_and_none_twice(tmp_path, capsys):
    folder = tmp_path / "run"
    options = [*SMALL, *OFFLINE, "--wandb.heatmaps", "0", "--rounds", "500"]
    options += ["--checkpoint.every", "3", "--run_dir", str(folder)]
    command = [sys.executable, "-m", "cwfed", "fit", *options]
    with (tmp_path / "said").open("w") as said:
        process = subprocess.Popen(command, cwd=tmp_path, stderr=said, env=_here())
    try:
        while not (folder / "rounds.jsonl").is_file() or len(lines_of(folder)) < 9:
            assert process.poll() is None, (tmp_path / "said").read_text()
            time.sleep(0.05)
    finally:
        process.kill()
        process.wait()
    with pytest.MonkeyPatch.context() as patch:
        Stop(patch, 12 + len(lines_of(folder)))
        assert main(["fit", "--resume", str(folder)]) == 130
    lock._forget()
    # What was killed is not complete, and the command that the run tells passes it over.
    killed, whole = folders_of(folder)
    (command,) = re.findall(r"wandb sync .*", capsys.readouterr().err)
    assert str(whole) in command
    assert str(killed) not in command
    shutil.rmtree(killed)
    steps = [row["_step"] for row in stored(folder, tmp_path).history]
    assert steps == [line["round"] for line in lines_of(folder)]


def _here():
    """Return the environment for a process that imports what this one does."""
    # Without this process's own W&B service.
    own = {name: value for name, value in os.environ.items() if name != "WANDB_SERVICE"}
    return own | {"PYTHONPATH": os.pathsep.join(sys.path)}


def test_a_note_that_cannot_be_read_says_nothing(tmp_path):
    notes, place = LoggedRounds(tmp_path), tmp_path / "offline-run-1"
    assert notes.by_folder([place]) == {}
    notes.add(place, [1, 0])
    own = '{"folder": "offline-run-1", "rounds": '
    for text in ("[]", "{}", '{"folder": {}, "rounds": [1]}', "\0\n{", own + "7}", own + "[[]]}"):
        append_atomic(notes.path, text + "\n")
    append_atomic(notes.path, own + "[0, 1, 2")
    assert notes.by_folder([place]) == {place: {0, 1}}
    assert notes.by_folder([tmp_path / "another"]) == {}


def test_from_python_a_resumed_run_may_use_another_mode_and_nothing_else(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    options = {"rounds": 3, "checkpoint": {"every": 1}, **SMALL_FIT}
    wandb = {"mode": "offline", "heatmaps": 0}
    with monkeypatch.context() as patch:
        Stop(patch, 1)
        with pytest.raises(KeyboardInterrupt):
            cwfed.fit("quickstart", run_dir=folder, logger="wandb", wandb=wandb, **options)
    with pytest.raises(ValueError, match="a resumed run keeps its configuration"):
        cwfed.resume(folder, wandb={"project": "other"})
    # On a machine without the package.
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ValueError, match="expected wandb to be installed"):
        cwfed.resume(folder, progress=False)
    assert len(lines_of(folder)) == 2
    run = cwfed.resume(folder, wandb={"mode": "disabled"}, progress=False)
    monkeypatch.undo()
    assert len(run.rounds) == 4
    assert [row["round"] for row in stored(folder, tmp_path).history] == [0, 1]


def test_a_folder_that_runs_have_left_is_not_the_package(tmp_path, monkeypatch):
    found = ModuleType("wandb")
    found.__path__ = [str(tmp_path / "wandb")]
    monkeypatch.setitem(sys.modules, "wandb", found)
    with pytest.raises(ValueError, match="found only a folder"):
        make_reporters("wandb", WandbOptions(mode="offline"), tmp_path, {})


def test_an_interrupt_while_figures_are_freed_is_not_lost(tmp_path, monkeypatch):
    """Python drops what is raised where it frees objects, and drawing frees many."""

    def draw(*given):
        freed = WandbOptions()
        kept = weakref.ref(freed, lambda _: signal.raise_signal(signal.SIGINT))
        del freed
        assert kept() is None

    monkeypatch.setattr("cwfed.tracking.wandb_media.distributions_figure", draw)
    assert fit(tmp_path / "run", "--rounds", 1, *OFFLINE) == 130


def test_a_failure_of_wandb_is_said_once_and_costs_nothing_else(tmp_path, monkeypatch, caplog):
    calls = []

    def fail(*given, **named):
        calls.append(named["step"])
        raise OSError("No space left on device")

    monkeypatch.setattr("wandb.Run.log", fail)
    monkeypatch.setattr(logging.getLogger("cwfed"), "propagate", True)
    assert fit(tmp_path / "run", "--rounds", 2, *OFFLINE) == 0
    assert (tmp_path / "run" / "result.json").is_file()
    said = [text for text in caplog.messages if "No space left" in text]
    assert said == ["W&B: No space left on device; the run goes on, perhaps without it"]
    assert sorted(set(calls)) == [0, 1, 2]


def test_files_that_somebody_deletes_are_missed_and_no_more(tmp_path, monkeypatch, caplog):
    folder = tmp_path / "run"
    monkeypatch.setattr(WandbReporter, "on_end", lambda *given: shutil.rmtree(folder / "wandb"))
    monkeypatch.setattr(logging.getLogger("cwfed"), "propagate", True)
    assert fit(folder, "--rounds", 1, *OFFLINE) == 0
    assert (folder / "result.json").is_file()
    assert len([text for text in caplog.messages if "the run goes on" in text]) == 1


def test_online_without_a_key_is_refused_before_anything_is_written(tmp_path, capsys):
    assert fit(tmp_path / "run", "--logger", "wandb", "--wandb.mode", "online") == 2
    (line,) = capsys.readouterr().err.splitlines()[-1:]
    assert line.startswith("cwfed fit: error: wandb: cannot log in: ")
    assert "--wandb.mode offline" in line
    assert "`wandb login`" in line
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"project": "a/b"}, "wandb.project"),
        ({"project": ""}, "wandb.project"),
        ({"group": "x" * 129}, "wandb.group"),
        ({"tags": [""]}, "wandb.tags"),
        ({"heatmaps": -1}, "wandb.heatmaps"),
    ],
)
def test_what_wandb_would_refuse_is_refused_early(options, said):
    with pytest.raises(ValueError, match=said):
        WandbOptions(**options)


def test_options_without_the_logger_are_a_mistake(tmp_path):
    with pytest.raises(ValueError, match="--logger wandb"):
        make_reporters("tensorboard", WandbOptions(project="p"), tmp_path, {})


def test_disabled_logs_nothing(tmp_path):
    options = WandbOptions(mode="disabled")
    (loggers,) = make_reporters("wandb", options, tmp_path, {})
    assert loggers.loggers == []

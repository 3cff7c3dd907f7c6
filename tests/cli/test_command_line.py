"""What a person types, and what comes back."""

import csv
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
import yaml
from helpers import change_json

from cwfed.cli import main
from cwfed.processes.lock import unlocked_afterwards
from cwfed.records.checksums import opened
from cwfed.records.identity import config_hash
from cwfed.records.round_lines import read_lines
from cwfed.records.run_files import load_result
from cwfed.runs.folder import RunFolder

SMALL = [
    *("--config", "quickstart", "--data", "SyntheticImages", "--data.image_size", "16"),
    *("--data.samples_per_class", "20", "--partition.num_clients", "4", "--rounds", "3"),
]


def fit(*arguments):
    return main(["fit", *SMALL, *map(str, arguments)])


def without_seconds(path):
    lines = read_lines(path)
    for line in lines:
        line.pop("seconds")
    return lines


def snapshot(folder):
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def wait_for(condition, process):
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.02)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "finished"
    assert fit("--run_dir", folder, "--val_fraction", "0.2", "--participation", "0.5") == 0
    return folder


def test_the_run_folder_holds_what_is_promised(finished):
    names = {path.name for path in finished.iterdir()}
    assert names == {
        "config.yaml",
        "partition.json",
        "labels.json",
        "snapshots",
        "rounds.jsonl",
        "clients.csv",
        "result.json",
        "checkpoints",
    }
    result = json.loads((finished / "result.json").read_text())
    lines = read_lines(finished / "rounds.jsonl")
    assert [line["round"] for line in lines] == [0, 1, 2, 3]
    assert lines[0]["post_local"] is None
    assert lines[0]["participants"] == []
    for metric in ("received", "post_local"):
        for kind in ("best", "last", "val_selected"):
            quoted = result[metric][kind]
            assert quoted["accuracy"] == lines[quoted["round"]][metric]["accuracy"]
        assert set(result[metric]["fairness"]) == {"mean", "std", "worst10"}
    assert result["mean_R"] == lines[-1]["mean_R"]
    assert result["schema_version"] == 1
    assert set(result["hashes"]) == {"config", "partition", "dataset", "models", "clients"}
    assert set(result["seconds"]) == {
        "select",
        "fit",
        "aggregate",
        "evaluate_post_local",
        "evaluate_received",
    }


def test_the_client_table_agrees_with_the_rounds(finished):
    with (finished / "clients.csv").open() as file:
        rows = list(csv.DictReader(file))
    last = read_lines(finished / "rounds.jsonl")[-1]
    partition = json.loads((finished / "partition.json").read_text())
    assert len(rows) == 4
    for client, row in enumerate(rows):
        sizes = {part: len(partition["clients"][client][part]) for part in ("train", "val", "test")}
        assert {part: int(row[part]) for part in sizes} == sizes
        assert int(row["samples"]) == sum(sizes.values())
        correct = last["received"]["correct"][client]
        assert float(row["accuracy_received"]) == pytest.approx(correct / sizes["test"])
    correct = sum(last["received"]["correct"])
    assert last["received"]["accuracy"] == correct / sum(int(row["test"]) for row in rows)
    mean_r = sum(float(row["R"]) for row in rows) / 4
    assert mean_r == pytest.approx(last["mean_R"])


def test_the_same_command_gives_the_same_bits(finished, tmp_path):
    assert fit("--run_dir", tmp_path / "b", "--val_fraction", "0.2", "--participation", "0.5") == 0
    assert without_seconds(tmp_path / "b" / "rounds.jsonl") == without_seconds(
        finished / "rounds.jsonl"
    )
    ours, theirs = (
        json.loads((folder / "result.json").read_text()) for folder in (finished, tmp_path / "b")
    )
    assert ours["hashes"] == theirs["hashes"]


def test_rounds_depend_on_the_machine_only_under_seconds(finished):
    text = (finished / "rounds.jsonl").read_text()
    assert str(finished) not in text


@pytest.mark.parametrize("keep", [0, 1, 2])
def test_resuming_after_any_round_gives_the_same_bits(finished, tmp_path, keep):
    """As a kill leaves the folder: checkpoints up to a round, lines perhaps beyond it."""
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    for name in ("result.json", "clients.csv"):
        (folder / name).unlink()
    shutil.rmtree(folder / "checkpoints")
    partial = tmp_path / "partial"
    arguments = ["--val_fraction", "0.2", "--participation", "0.5"]
    assert fit("--run_dir", partial, *arguments, "--checkpoint.keep", "9") == 0
    if keep:
        (folder / "checkpoints").mkdir()
        for path in (partial / "checkpoints").iterdir():
            if int(path.stem.removeprefix("round_")) <= keep:
                shutil.copy(path, folder / "checkpoints")
    with (folder / "rounds.jsonl").open("a") as file:
        file.write('{"round": 4, "rece')
    assert main(["fit", "--resume", str(folder)]) == 0
    assert without_seconds(folder / "rounds.jsonl") == without_seconds(finished / "rounds.jsonl")
    ours, theirs = (json.loads((f / "result.json").read_text()) for f in (folder, finished))
    for part in ("received", "post_local", "hashes", "mean_R"):
        assert ours[part] == theirs[part]
    assert (folder / "clients.csv").read_bytes() == (finished / "clients.csv").read_bytes()


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL is POSIX")
def test_killed_and_resumed_equals_uninterrupted(tmp_path):
    arguments = [*SMALL, "--rounds", "6", "--client.local_epochs", "3"]
    command = [sys.executable, "-m", "cwfed", "fit", *arguments, "--run_dir", str(tmp_path / "k")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(lambda: list((tmp_path / "k").glob("checkpoints/*2.json")), process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "k" / "result.json").exists()
    assert main(["fit", "--resume", str(tmp_path / "k")]) == 0
    assert main(["fit", *arguments, "--run_dir", str(tmp_path / "u")]) == 0
    assert without_seconds(tmp_path / "k" / "rounds.jsonl") == without_seconds(
        tmp_path / "u" / "rounds.jsonl"
    )
    hashes = [json.loads((tmp_path / f / "result.json").read_text())["hashes"] for f in ("k", "u")]
    assert hashes[0] == hashes[1]


@pytest.mark.skipif(os.name != "posix", reason="SIGINT is POSIX")
def test_ctrl_c_says_how_to_go_on(tmp_path):
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "cwfed", "fit", *SMALL, "--rounds", "500"]
    process = subprocess.Popen(
        [*command, "--run_dir", str(folder)],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        # A background job of a shell ignores SIGINT, and its children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    wait_for(lambda: list(folder.glob("checkpoints/*1.json")), process)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"cwfed fit --resume {folder}" in error.decode()
    assert "Traceback" not in error.decode()


def test_resuming_a_finished_run_changes_nothing(finished, capsys):
    before = snapshot(finished)
    assert main(["fit", "--resume", str(finished)]) == 0
    assert snapshot(finished) == before
    assert "cwfedavg on synthetic" in capsys.readouterr().out


def resealed(folder):
    """Seal checkpoints as earlier versions did, which counted the rounds in."""
    config = yaml.safe_load((folder / "config.yaml").read_text())
    partition = json.loads((folder / "partition.json").read_text())["hash"]
    identity = hashlib.sha256(f"{config_hash(config)}/{partition}".encode()).hexdigest()
    for path in (folder / "checkpoints").glob("*.json"):
        seal = opened(json.loads(path.read_text()))
        assert seal["identity"] != identity
        path.write_text(json.dumps(seal | {"identity": identity}))


def test_a_longer_run_has_no_score_that_the_whole_one_passes_over(tmp_path):
    passes = ["--evaluate_every", "2", "--val_fraction", "0.2", "--participation", "0.5"]
    assert fit("--run_dir", tmp_path / "whole", *passes, "--rounds", "5") == 0
    with unlocked_afterwards():
        assert fit("--run_dir", tmp_path / "run", *passes, "--rounds", "3") == 0
    assert main(["fit", "--resume", str(tmp_path / "run"), "--rounds", "5"]) == 0
    lines, expected = (without_seconds(tmp_path / f / "rounds.jsonl") for f in ("run", "whole"))
    assert lines == expected
    assert lines[3]["received"] is None
    results = [json.loads((tmp_path / f / "result.json").read_text()) for f in ("run", "whole")]
    for part in ("received", "post_local", "hashes"):
        assert results[0][part] == results[1][part]


def test_a_run_without_rounds_is_made_longer(finished, tmp_path):
    same = ["--val_fraction", "0.2", "--participation", "0.5"]
    with unlocked_afterwards():
        assert fit("--run_dir", tmp_path / "run", *same, "--rounds", "0") == 0
    assert main(["fit", "--resume", str(tmp_path / "run"), "--rounds", "3"]) == 0
    assert without_seconds(tmp_path / "run" / "rounds.jsonl") == without_seconds(
        finished / "rounds.jsonl"
    )


def test_a_run_that_another_process_has_made_longer_is_not_cut(finished, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    (folder / "result.json").unlink()
    original = RunFolder.restore

    def restore(self, run, initial):
        config = self.path / "config.yaml"
        config.write_text(config.read_text().replace("\nrounds: 3\n", "\nrounds: 9\n"))
        return original(self, run, initial)

    with monkeypatch.context() as patched, unlocked_afterwards():
        patched.setattr(RunFolder, "restore", restore)
        assert main(["fit", "--resume", str(folder)]) == 2
    # The same by hand: fewer rounds than there are.
    config = folder / "config.yaml"
    config.write_text(config.read_text().replace("\nrounds: 9\n", "\nrounds: 2\n"))
    before = snapshot(folder)
    assert main(["fit", "--resume", str(folder)]) == 2
    assert snapshot(folder) == before


@pytest.mark.parametrize("earlier", [False, True])
def test_a_longer_run_equals_one_that_was_to_be_so_long(finished, tmp_path, earlier):
    same = ["--val_fraction", "0.2", "--participation", "0.5"]
    whole, folder = tmp_path / "whole", tmp_path / "run"
    assert fit("--run_dir", whole, *same, "--rounds", "5") == 0
    shutil.copytree(finished, folder)
    if earlier:
        resealed(folder)
    assert main(["fit", "--resume", str(folder), "--rounds", "5"]) == 0
    assert without_seconds(folder / "rounds.jsonl") == without_seconds(whole / "rounds.jsonl")
    results = [json.loads((each / "result.json").read_text()) for each in (folder, whole)]
    for part in ("rounds", "received", "post_local", "hashes", "mean_R", "bytes"):
        assert results[0][part] == results[1][part]
    assert (folder / "clients.csv").read_bytes() == (whole / "clients.csv").read_bytes()
    configs = [yaml.safe_load((each / "config.yaml").read_text()) for each in (folder, whole)]
    assert config_hash(configs[0]) == config_hash(configs[1])
    # It is finished now: without more rounds nothing happens.
    before = snapshot(folder)
    assert main(["fit", "--resume", str(folder), "--rounds", "5"]) == 0
    assert snapshot(folder) == before


def test_a_run_is_not_made_shorter(finished, capsys):
    before = snapshot(finished)
    assert main(["fit", "--resume", str(finished), "--rounds", "2"]) == 2
    assert "--rounds: expected at least the 3 of the run, got 2" in capsys.readouterr().err
    assert snapshot(finished) == before


def test_a_finished_run_without_checkpoints_is_not_begun_again(finished, tmp_path, capsys):
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    shutil.rmtree(folder / "checkpoints")
    before = snapshot(folder)
    assert main(["fit", "--resume", str(folder), "--rounds", "5"]) == 2
    assert "expected a checkpoint from which the finished run can go on" in capsys.readouterr().err
    assert snapshot(folder) == before


@pytest.mark.parametrize("killed", ["result gone", "configuration written"])
def test_a_kill_while_a_run_is_made_longer_loses_nothing(finished, tmp_path, killed, monkeypatch):
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    whole = without_seconds(finished / "rounds.jsonl")
    step = {"result gone": "_write_config", "configuration written": "_cut"}[killed]

    def stop(self, *arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, unlocked_afterwards():
        patched.setattr(RunFolder, step, stop)
        assert main(["fit", "--resume", str(folder), "--rounds", "5"]) == 130
    assert not (folder / "result.json").exists()
    assert without_seconds(folder / "rounds.jsonl") == whole
    assert main(["fit", "--resume", str(folder)]) == 0
    rounds = 3 if killed == "result gone" else 5
    assert json.loads((folder / "result.json").read_text())["rounds"] == rounds
    assert without_seconds(folder / "rounds.jsonl")[:4] == whole


def test_the_written_config_repeats_the_run(finished, tmp_path):
    config = finished / "config.yaml"
    assert main(["fit", "--config", str(config), "--run_dir", str(tmp_path / "again")]) == 0
    assert without_seconds(tmp_path / "again" / "rounds.jsonl") == without_seconds(
        finished / "rounds.jsonl"
    )
    assert (tmp_path / "again" / "config.yaml").read_text() == config.read_text()


def test_the_written_partition_can_be_given_back(finished, tmp_path):
    assert (
        fit(
            *("--run_dir", tmp_path / "p", "--val_fraction", "0.2", "--participation", "0.5"),
            *("--partition", "FromManifest", "--partition.path", finished / "partition.json"),
        )
        == 0
    )
    assert without_seconds(tmp_path / "p" / "rounds.jsonl") == without_seconds(
        finished / "rounds.jsonl"
    )


def resolved(capsys, *arguments):
    assert main(["fit", *arguments, "--print_config"]) == 0
    return yaml.safe_load(capsys.readouterr().out)


def test_options_win_over_files_wherever_they_stand(capsys, tmp_path):
    extra = tmp_path / "extra.yaml"
    extra.write_text("rounds: 7\nseed: 5\n")
    arguments = ["--rounds", "9", "--config", "quickstart", "--config", str(extra)]
    config = resolved(capsys, *arguments)
    assert (config["rounds"], config["seed"]) == (9, 5)
    assert config["data"]["class_path"].endswith("Digits")


def test_an_algorithm_replaces_the_method_and_keeps_lambda(capsys, tmp_path):
    extra = tmp_path / "extra.yaml"
    extra.write_text(
        "algorithm:\n  name: mine\n  aggregator:\n    class_path: CwFedAvg\n    init_args:\n"
        "      scope: all\n      aggregate_buffers: false\n  objectives: [{class_path: WDR}]\n"
    )
    base = ["--config", "cifar100_practical", "--config", str(extra)]
    assert resolved(capsys, *base)["algorithm"]["name"] == "mine"
    config = resolved(capsys, *base, "--algorithm", "fedavg")
    assert config["algorithm"] == {
        "name": "fedavg",
        "aggregator": {
            "class_path": "cwfed.aggregators.FedAvg",
            "init_args": {"aggregate_buffers": True},
        },
        "objectives": [],
        "phases": None,
        "head": None,
    }
    assert config["wdr_lambda"] == 1000
    config = resolved(capsys, *base, "--algorithm=cwfedavg_all", "--wdr_lambda", "5")
    assert config["algorithm"]["aggregator"]["init_args"]["aggregate_buffers"] is True
    assert config["wdr_lambda"] == 5


def test_naming_the_default_method_changes_nothing(capsys):
    named = resolved(capsys, "--config", "quickstart", "--algorithm", "cwfedavg")
    assert named == resolved(capsys, "--config", "quickstart")


def test_names_work_from_any_folder(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("quickstart", "quickstart.yaml", "configs/quickstart.yaml"):
        assert resolved(capsys, "--config", name)["rounds"]


MISTAKES = {
    "unknown key": (["--roundz", "3"], ["unknown option --roundz", "--rounds"]),
    "type": (["--rounds", "x"], ["rounds", "int", "x"]),
    "range": (["--rounds", "-1"], ["rounds", ">= 0", "-1"]),
    "fraction": (["--participation", "2"], ["participation", "(0, 1]", "2"]),
    "validation": (["--val_fraction", "1"], ["val_fraction", "[0, 1)", "1"]),
    "lambda": (["--wdr_lambda", "-1"], ["wdr_lambda", ">= 0", "-1"]),
    "nan lambda": (["--wdr_lambda", ".nan"], ["wdr_lambda", ">= 0", "nan"]),
    "no lambda": (["--wdr_lambda", "null"], ["wdr_lambda", "got null"]),
    "batch": (["--client.batch_size", "0"], ["client.batch_size", ">= 1", "0"]),
    "learning rate": (["--client.optimizer.init_args.lr", "-1"], ["client.optimizer", "-1"]),
    "clients": (["--partition.num_clients", "-3"], ["partition", "num_clients", "-3"]),
    "alpha": (["--partition.alpha", "0"], ["partition", "alpha", "0"]),
    "wrong base": (["--algorithm.aggregator", "torch.nn.Linear"],
                   ["algorithm.aggregator", "Aggregator", "torch.nn.Linear"]),
    "wrong data base": (["--data", "Dirichlet"], ["data", "Dirichlet"]),
    "no such class": (["--model", "nothing.Net"], ["model", "nothing.Net"]),
    "wrong model": (["--model", "collections.OrderedDict"], ["model", "Module", "OrderedDict"]),
    "init arg": (["--model.hidden_features", "many"], ["model", "hidden_features", "int", "many"]),
    "unknown init arg": (["--algorithm.aggregator.scopee", "all"], ["scopee"]),
    "scope": (["--algorithm.aggregator.scope", "half"], ["scope", "output", "half"]),
    "layers": (["--algorithm.aggregator.scope", "9"], ["scope", "between 1 and 4", "9"]),
    "head": (["--head", "nowhere"], ["head", "nowhere", "conv1"]),
    "config file": (["--config", "missing.yaml"], ["--config", "missing.yaml", "quickstart"]),
    "algorithm": (["--algorithm", "magic"], ["--algorithm", "fedavg", "magic"]),
    "no value": (["--config"], ["--config", "expected a value"]),
    "accelerator": (["--trainer.accelerator", "abacus"], ["trainer.accelerator", "abacus"]),
    "precision": (["--trainer.precision", "8"], ["trainer.precision", "32-true", "8"]),
    "threads": (["--trainer.threads", "0"], ["trainer.threads", "0"]),
    "combination": (["--partition", "Pathological", "--partition.num_clients", "20",
                     "--data.num_classes", "100", "--partition.classes_per_client", "2"],
                    ["20", "2", "100"]),
    "image size": (["--data.image_size", "8"], ["image_size", "16", "8"]),
    "manifest": (["--partition", "FromManifest", "--partition.path", "nowhere.json"],
                 ["partition", "nowhere.json"]),
    "resume nothing": (["--resume", "nowhere"], ["--resume", "config.yaml", "nowhere"]),
    "logger": (["--logger", "papyrus"], ["logger", "papyrus"]),
    "many threads": (["--trainer.threads", "100000000"], ["trainer.threads", "1024"]),
    "huge": (["--client.batch_size", "9" * 20], ["client.batch_size", "2**63"]),
    "unknown user": (["--data_dir", "~nobody_here/x"], ["--data_dir", "~nobody_here/x"]),
    "half on a CPU": (["--trainer.accelerator", "cpu", "--trainer.precision", "16-mixed"],
                      ["trainer.precision", "bf16-mixed", "16-mixed"]),
    "sparse": (["--client.optimizer", "torch.optim.SparseAdam"], ["client.optimizer", "dense"]),
    "null": (["--seed", "null"], ["seed"]),
    "more clients than samples": (["--partition.num_clients", "500"], ["partition"]),
    "no group": (["--client", "5"], ["client: expected", "--client.batch_size", "got '5'"]),
    "resume a file": (["--resume", __file__], ["--resume", "config.yaml"]),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_ends_with_one_clear_line(name, tmp_path, capsys):
    arguments, expected = MISTAKES[name]
    assert fit("--run_dir", tmp_path / "run", *arguments) == 2
    captured = capsys.readouterr()
    message = captured.err.strip()
    assert "Traceback" not in captured.out + captured.err
    assert message.count("\n") == 0, message
    assert message.startswith("cwfed fit: error: ")
    for part in expected:
        assert part in message, message
    assert not (tmp_path / "run").exists(), "a refused command leaves nothing behind"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("roundz: 3\n", ["roundz", "rounds"]),
        ("rounds: many\n", ["rounds", "int", "many"]),
        ("data: [\n", ["YAML"]),
        ("- 1\n", ["mapping", "list"]),
        ("partition: {class_path: Dirichlet, init_args: {alfa: 1}}\n", ["alfa"]),
        ("algorithm: {aggregator: {class_path: Nothing}}\n", ["algorithm.aggregator", "Nothing"]),
        ("\x00", ["YAML"]),
        ("a: [1\nb: 2\n", ["YAML"]),
        ("trainer: null\n", ["trainer", "mapping", "None"]),
        ("algorithm: fedavg\n", ["algorithm", "mapping", "fedavg"]),
        ("config: {}\n", ["config", "command line"]),
    ],
)
def test_a_mistake_in_a_file_names_the_file(text, expected, tmp_path, capsys):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    assert fit("--config", path, "--run_dir", tmp_path / "run") == 2
    message = capsys.readouterr().err
    for part in [str(path), *expected]:
        assert part in message
    assert "Traceback" not in message


def test_a_finite_learning_rate_is_asked_for(tmp_path, capsys):
    path = tmp_path / "mine.yaml"
    path.write_text("client: {optimizer: {class_path: torch.optim.SGD, init_args: {lr: .inf}}}\n")
    assert fit("--config", path, "--run_dir", tmp_path / "run") == 2
    assert "client.optimizer.lr: expected a finite number, got inf" in capsys.readouterr().err


def test_a_file_may_change_a_part_of_the_default_method(tmp_path, capsys):
    path = tmp_path / "mine.yaml"
    path.write_text("algorithm: {name: mine}\n")
    config = resolved(capsys, "--config", "quickstart", "--config", str(path))
    assert config["algorithm"]["name"] == "mine"
    assert config["algorithm"]["aggregator"]["class_path"].endswith("CwFedAvg")


MODELS = """
import torch
from torch import nn

class Base(nn.Module):
    head_name = "head"
    def __init__(self, num_classes: int):
        super().__init__()
        self.body = nn.Linear(256, 8)
        self.head = nn.Linear(8, num_classes)
    def forward(self, x):
        return self.head(self.body(x.flatten(1)).relu())

class Raises(Base):
    def forward(self, x):
        raise KeyError("boom")

class InitRaises(Base):
    def __init__(self, num_classes: int):
        raise RuntimeError("boom")

class OnlyInTraining(Base):
    def forward(self, x):
        return super().forward(x)[:, :3] if self.training else super().forward(x)

class Detached(Base):
    def forward(self, x):
        return super().forward(x).detach()

class Frozen(Base):
    def __init__(self, num_classes: int):
        super().__init__(num_classes)
        self.requires_grad_(False)

class Normed(Base):
    def __init__(self, num_classes: int):
        super().__init__(num_classes)
        nn.utils.parametrizations.weight_norm(self.head)

class Batch(Base):
    def __init__(self, num_classes: int):
        super().__init__(num_classes)
        self.body = nn.Sequential(nn.Linear(256, 8), nn.BatchNorm1d(8))

class Alias(nn.Module):
    head_name = "head"
    def __init__(self, num_classes: int):
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(256, 8), nn.ReLU(),
                                 nn.Linear(8, num_classes))
        self.head = self.net[3]
    def forward(self, x):
        return self.net(x)

class Lazy(Base):
    def __init__(self, num_classes: int):
        super().__init__(num_classes)
        self.body = nn.LazyLinear(8)

class Noisy(Base):
    def forward(self, x):
        return super().forward(x) + torch.randn(1)
"""


@pytest.fixture
def models(tmp_path, monkeypatch):
    (tmp_path / "odd_models.py").write_text(MODELS)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("Raises", ["model", "KeyError", "boom"]),
        ("InitRaises", ["model", "could not be built", "boom"]),
        ("OnlyInTraining", ["model", "logits of shape"]),
        ("Detached", ["model"]),
        ("Frozen", ["model", "no parameter that can be trained"]),
        ("Normed", ["head", "weight"]),
    ],
)
def test_a_model_that_cannot_work_is_refused_before_anything_is_written(
    models, model, expected, tmp_path, capsys
):
    assert fit("--model", f"odd_models.{model}", "--run_dir", tmp_path / "run") == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    for part in expected:
        assert part in message
    assert not (tmp_path / "run").exists()


def test_batchnorm_on_a_single_sample_is_refused(models, tmp_path, capsys):
    arguments = ["--model", "odd_models.Batch", "--client.batch_size", "1"]
    assert fit(*arguments, "--run_dir", tmp_path / "run") == 2
    assert "more than 1 value per channel" in capsys.readouterr().err


@pytest.mark.parametrize("model", ["Alias", "Lazy", "Noisy"])
def test_unusual_models_run_and_repeat(models, model, tmp_path):
    import torch

    hashes = []
    for name in ("a", "b"):
        torch.manual_seed(len(hashes))
        assert fit("--model", f"odd_models.{model}", "--run_dir", tmp_path / name) == 0
        hashes.append(without_seconds(tmp_path / name / "rounds.jsonl"))
    assert hashes[0] == hashes[1]


def test_divergence_is_said_and_stays_json(tmp_path, capsys, caplog):
    assert fit("--run_dir", tmp_path / "run", "--client.optimizer.init_args.lr", "1e30") == 0
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["mean_R"] > 0
    assert result["excluded"]["non-finite model"] > 0
    assert "smaller learning rate" in caplog.text


def test_two_processes_cannot_write_one_run(tmp_path):
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "cwfed", "fit", *SMALL, "--rounds", "500"]
    process = subprocess.Popen(
        [*command, "--run_dir", str(folder)], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    try:
        wait_for(lambda: list(folder.glob("checkpoints/*1.json")), process)
        assert main(["fit", "--resume", str(folder)]) == 2
        assert process.poll() is None, "the first run must go on"
    finally:
        process.kill()
        process.wait()


@pytest.mark.skipif(os.name != "posix", reason="SIGTERM is POSIX")
def test_sigterm_stops_the_run_and_says_how_to_go_on(tmp_path):
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "cwfed", "fit", *SMALL, "--rounds", "500"]
    for attempt in range(3):
        place = ["--resume", str(folder)] if attempt else [*command[4:], "--run_dir", str(folder)]
        process = subprocess.Popen(
            [*command[:4], *place], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
        )
        done = len((folder / "rounds.jsonl").read_text().splitlines()) if attempt else 0
        wait_for(
            lambda done=done: (
                (folder / "rounds.jsonl").exists()
                and len((folder / "rounds.jsonl").read_text().splitlines()) > done + 1
            ),
            process,
        )
        process.send_signal(signal.SIGTERM)
        _, error = process.communicate(timeout=60)
        assert process.returncode == 143
        assert f"cwfed fit --resume {folder}" in error.decode()


@pytest.mark.parametrize("damage", ["garbage", "", "null", "[]", "{}"])
def test_a_damaged_result_is_written_again(finished, tmp_path, damage):
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    (folder / "result.json").write_text(damage)
    assert main(["fit", "--resume", str(folder)]) == 0
    ours, theirs = (json.loads((f / "result.json").read_text()) for f in (folder, finished))
    assert ours["hashes"] == theirs["hashes"]


@pytest.mark.parametrize("damage", [{"received": 1}, {"received": {"last": []}}, {"rounds": 2}])
def test_a_result_that_makes_no_sense_is_written_again(finished, tmp_path, damage):
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    change_json(folder / "result.json", **damage)
    assert main(["fit", "--resume", str(folder)]) == 0
    ours, theirs = (load_result(f / "result.json") for f in (folder, finished))
    assert ours | {"seconds": None} == theirs | {"seconds": None}


@pytest.mark.parametrize("damage", ["[1]", "null", "", "{", None])
@pytest.mark.parametrize("name", ["partition.json", "labels.json"])
@pytest.mark.parametrize("ended", [True, False])
def test_a_damaged_division_is_made_again(finished, tmp_path, name, damage, ended, capsys):
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    if not ended:
        (folder / "result.json").unlink()
    if damage is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(damage)
    assert main(["fit", "--resume", str(folder)]) == 0
    assert f"{folder / name}" in capsys.readouterr().err
    assert (folder / name).read_bytes() == (finished / name).read_bytes()


@pytest.mark.parametrize("ended", [True, False])
def test_a_damaged_partition_is_not_made_again_from_other_data(finished, tmp_path, ended, capsys):
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    if not ended:
        (folder / "result.json").unlink()
    (folder / "partition.json").write_text("damage")
    text = (folder / "config.yaml").read_text()
    other = text.replace("samples_per_class: 20", "samples_per_class: 21")
    assert other != text
    (folder / "config.yaml").write_text(other)
    before = snapshot(folder)
    assert main(["fit", "--resume", str(folder)]) == (0 if ended else 2)
    assert str(folder / "partition.json") in capsys.readouterr().err
    assert snapshot(folder) == before


def test_a_damaged_copy_of_a_given_partition_is_made_again(finished, tmp_path, capsys):
    saved = tmp_path / "split.json"
    shutil.copy(finished / "partition.json", saved)
    given = ("--partition", "FromManifest", "--partition.path", saved)
    with unlocked_afterwards():
        assert fit("--run_dir", tmp_path / "run", *given) == 0
    written = (tmp_path / "run" / "partition.json").read_bytes()
    (tmp_path / "run" / "partition.json").write_bytes(written[:-30])
    with unlocked_afterwards():
        assert main(["fit", "--resume", str(tmp_path / "run")]) == 0
    assert "made again from the configuration and the data" in capsys.readouterr().err
    assert (tmp_path / "run" / "partition.json").read_bytes() == written
    (tmp_path / "run" / "partition.json").write_bytes(written[:-30])
    saved.write_bytes(written[:-30])
    assert main(["fit", "--resume", str(tmp_path / "run")]) == 0
    said = capsys.readouterr().err
    assert "cannot be made again" in said
    assert str(saved) in said


@pytest.mark.parametrize("name", ["partition.json", "rounds.jsonl", "clients.csv", "result.json"])
def test_a_finished_run_without_checkpoints_is_never_run_anew(finished, tmp_path, name, capsys):
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    shutil.rmtree(folder / "checkpoints")
    text = (folder / name).read_text()
    (folder / name).write_text(text.replace("0.", "1.", 1) if "0." in text else text[:-9])
    before = snapshot(folder)
    code = main(["fit", "--resume", str(folder)])
    if name == "partition.json":
        assert code == 0
        assert (folder / name).read_bytes() == (finished / name).read_bytes()
        return
    assert code == 2
    error = capsys.readouterr().err
    assert "checkpoints: expected a checkpoint from which the finished run can go on" in error
    assert snapshot(folder) == before


def test_a_run_killed_before_its_partition_was_written_starts_over(finished, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    shutil.copy(finished / "config.yaml", folder)
    assert main(["fit", "--resume", str(folder)]) == 0
    assert without_seconds(folder / "rounds.jsonl") == without_seconds(finished / "rounds.jsonl")


def test_lines_after_the_newest_checkpoint_do_not_matter(finished, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    (folder / "result.json").unlink()
    with (folder / "rounds.jsonl").open("a") as file:
        file.write('{"round": 3}\n{"round": 3}\nnoise\n')
    assert main(["fit", "--resume", str(folder)]) == 0
    assert without_seconds(folder / "rounds.jsonl") == without_seconds(finished / "rounds.jsonl")


def test_brackets_in_a_path_are_no_markup(tmp_path, capsys):
    assert fit("--run_dir", tmp_path / "[bold]x") == 0
    assert "[bold]x" in capsys.readouterr().out


def test_a_reader_that_goes_away_does_not_fail_the_run(tmp_path):
    command = [sys.executable, "-m", "cwfed", "fit", *SMALL, "--run_dir", str(tmp_path / "run")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    process.stderr.close()
    assert process.wait(timeout=120) == 0
    assert (tmp_path / "run" / "result.json").exists()


def test_a_folder_that_holds_something_is_refused(finished, capsys):
    before = snapshot(finished)
    assert fit("--run_dir", finished) == 2
    assert f"--resume {finished}" in capsys.readouterr().err
    assert snapshot(finished) == before


def test_a_resumed_run_keeps_its_configuration(finished, capsys):
    assert main(["fit", "--resume", str(finished), "--seed", "9"]) == 2
    assert "--seed: a resumed run keeps its configuration" in capsys.readouterr().err


def test_resuming_with_another_partition_is_refused(finished, tmp_path, capsys):
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    (folder / "result.json").unlink()
    config = folder / "config.yaml"
    config.write_text(config.read_text().replace("seed: 0\nrounds", "seed: 1\nrounds"))
    assert main(["fit", "--resume", str(folder)]) == 2
    assert "partition" in capsys.readouterr().err


def test_a_users_own_model_by_class_path(tmp_path, monkeypatch):
    (tmp_path / "mynet.py").write_text(
        "from torch import nn\n"
        "class Net(nn.Module):\n"
        "    def __init__(self, width: int = 4, num_classes: int = 2):\n"
        "        super().__init__()\n"
        "        self.body = nn.Linear(256, width)\n"
        "        self.classify = nn.Linear(width, num_classes)\n"
        "    def forward(self, x):\n"
        "        return self.classify(self.body(x.flatten(1)).relu())\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    arguments = ["--model", "mynet.Net", "--model.width", "6", "--head", "classify"]
    assert fit("--run_dir", tmp_path / "run", *arguments) == 0
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["parameters"] == 256 * 6 + 6 + 6 * 10 + 10


def test_ctrl_c_while_the_program_is_loaded_is_one_line(monkeypatch, capsys):
    def load(name):
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["cwfed.cli.main"], "import_module", load)
    assert main(["fit"]) == 130
    assert "interrupted before the first round" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["--help"], ["fit", "--help"], ["--version"], ["fly"]])
def test_help_and_usage(arguments, capsys):
    code = main(arguments)
    captured = capsys.readouterr()
    if arguments in ([], ["fly"]):
        assert code == 2
        assert "usage" in captured.err
    else:
        assert code == 0
        assert captured.out


def test_partition_prints_and_draws(tmp_path, capsys):
    picture, split = tmp_path / "split.png", tmp_path / "split.json"
    arguments = [*SMALL, "--plot", str(picture), "--save", str(split)]
    assert main(["partition", *arguments]) == 0
    assert "partition" in capsys.readouterr().out
    assert picture.read_bytes().startswith(b"\x89PNG")
    given = ["--partition", "FromManifest", "--partition.path", str(split)]
    assert fit("--run_dir", tmp_path / "run", "--rounds", "0", *given) == 0
    assert main(["partition", *SMALL, "--plot", str(tmp_path / "split.gif")]) == 2
    assert ".png" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["ReleasedDirichlet", "ReleasedPathological"])
def test_the_published_partition_is_the_same_for_every_seed(kind, tmp_path, capsys):
    hashes = set()
    for seed in ("0", "1"):
        folder = tmp_path / seed
        given = ["--partition", kind, "--partition.num_clients", "5"]
        assert fit("--run_dir", folder, "--rounds", "1", "--seed", seed, *given) == 0
        written = json.loads((folder / "partition.json").read_text())
        assert written["origin"]["partitioner"] == kind
        assert written["origin"]["order"].startswith("content")
        hashes.add(written["hash"])
    assert len(hashes) == 1
    capsys.readouterr()
    assert main(["partition", *SMALL, *given]) == 0
    assert f"partitioner: {kind}, seed: 1, order: content" in capsys.readouterr().out
    assert fit("--rounds", "1", *given, "--partition.order", "source") == 2
    assert "partition: order: expected a source that declares an order" in capsys.readouterr().err


def test_tensorboard_writes_curves(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert fit("--run_dir", tmp_path / "run", "--logger", "tensorboard") == 0
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    accuracy = [event.value for event in events.Scalars("received/accuracy")]
    lines = without_seconds(tmp_path / "run" / "rounds.jsonl")
    assert accuracy == pytest.approx([line["received"]["accuracy"] for line in lines])


def test_wandb_writes_into_the_run_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    assert fit("--run_dir", tmp_path / "run", "--logger", "wandb") == 0
    assert list((tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb"))


def test_wandb_is_imported_only_when_used():
    code = "import sys, cwfed.cli.fit; sys.exit('wandb' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_workers_with_several_threads_finish(tmp_path):
    """Threads of OpenMP do not survive a fork: a forked worker would wait for them for ever."""
    options = ("--trainer.engine", "parallel", "--trainer.workers", "2", "--trainer.threads", "2")
    command = [sys.executable, "-m", "cwfed", "fit", *SMALL, "--rounds", "1", *options]
    done = subprocess.run([*command, "--run_dir", str(tmp_path / "run")], timeout=240)
    assert done.returncode == 0


def test_a_worker_that_dies_leaves_one_line_and_the_way_on(tmp_path, monkeypatch, capfd):
    def killed(self, *_):
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr("cwfed.engines.parallel.engine.WorkerHandler.fit", killed)
    folder = tmp_path / "run"
    options = ("--trainer.engine", "parallel", "--trainer.workers", "2")
    assert main(["fit", *SMALL, *options, "--run_dir", str(folder)]) == 1
    error = capfd.readouterr().err
    assert "its worker process ended: killed by SIGKILL: out of memory?" in error
    assert f"cwfed fit --resume {folder}" in error
    assert "Traceback" not in error

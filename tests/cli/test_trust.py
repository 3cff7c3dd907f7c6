"""What a configuration from elsewhere may name, and that nothing else is ever imported."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonargparse import _common
from lightning.pytorch.loggers import CSVLogger

from benchmarks.__main__ import main as benchmarks
from cwfed.cli import main
from cwfed.config.files import UsageError, order_arguments
from cwfed.config.parser import add_fit_options, build, make_parser, parse
from cwfed.config.trust import searching, take_trusted
from cwfed.objectives import WDR
from cwfed.processes.own_modules import finder_at_work

ROOT = Path(__file__).parents[2]
SHORT = ["--model.hidden_features", "8", "--rounds", "0", "--trainer.engine", "sequential"]


@pytest.fixture(autouse=True)
def _policy_of_one_test(monkeypatch):
    """The parser's policy lasts as long as a process; a command is one, a test is not."""
    monkeypatch.setattr(_common, "parsing_settings", dict(_common.parsing_settings))
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.fixture
def trap(tmp_path, monkeypatch):
    """A folder with a module that leaves a file behind when it is imported."""
    monkeypatch.chdir(tmp_path)
    Path("trap.py").write_text(
        "from pathlib import Path\nPath('sprung').touch()\n"
        "from cwfed.models import CNN4\nfrom cwfed.aggregators import FedAvg\nfrom os import system"
    )
    monkeypatch.delitem(sys.modules, "trap", raising=False)
    yield Path("sprung")
    sys.modules.pop("trap", None)


def fit(*arguments):
    return main(["fit", "--config", "quickstart", *SHORT, *arguments])


def named(option, path):
    """The spellings of one choice: a word, a class_path, JSON, an element, help."""
    spec = f'{{"class_path": "{path}"}}'
    return [
        [option, path],
        [f"{option}.class_path={path}"],
        [option, spec],
        [f"{option}.help", path],
    ]


WAYS = [
    *named("--model", "trap.CNN4"),
    *named("--client.optimizer", "trap.CNN4"),
    *named("--data", "trap.CNN4"),
    *named("--partition", "trap.CNN4"),
    *named("--algorithm.aggregator", "trap.FedAvg"),
    *named("--logger", "trap.CNN4")[:3],
    ["--algorithm.head", "trap.CNN4"],
    ["--algorithm.objectives", '[{"class_path": "trap.FedAvg"}]'],
    ["--algorithm.objectives+=trap.FedAvg"],
    ["--logger", '[{"class_path": "trap.CNN4"}]'],
    [
        *("--trusted_modules", "torchvision"),
        *("--model", '{"class_path": "torchvision.ops.MLP", "init_args": {"in_channels": 1, '),
    ],
]
WAYS[-1][-1] += '"hidden_channels": [2], "norm_layer": "trap.CNN4"}}'


@pytest.mark.parametrize("way", WAYS, ids=lambda way: " ".join(way)[:60])
def test_nothing_untrusted_is_imported(trap, capsys, way):
    assert fit("--trusted_modules", *way) == 2
    error = capsys.readouterr().err.strip()
    assert "expected a class of a trusted module (--trusted_modules), got trap." in error
    assert len(error.splitlines()) == 1
    assert not trap.exists()


@pytest.mark.parametrize("how", ["config", "algorithm", "nested", "resume"])
def test_files_are_held_to_it_too(trap, capsys, how):
    text = yaml.safe_dump({"model": {"class_path": "trap.CNN4"}})
    if how == "algorithm":
        text = yaml.safe_dump({"algorithm": {"name": "x", "aggregator": "trap.FedAvg"}})
    Path("a.yaml").write_text(text)
    arguments = {"nested": ["--model", "b.yaml"], "resume": ["--resume", "run"]}
    if how == "nested":
        Path("b.yaml").write_text("class_path: trap.CNN4")
    if how == "resume":
        assert fit("--run_dir", "run") == 0
        saved = yaml.safe_load(Path("run/config.yaml").read_text())
        assert "trusted_modules" not in saved
        saved["algorithm"]["aggregator"]["class_path"] = "trap.FedAvg"
        Path("run/config.yaml").write_text(yaml.safe_dump(saved))
        assert main(["fit", "--trusted_modules", "torch", "--resume", "run"]) == 2
    else:
        assert fit("--trusted_modules=torch", *arguments.get(how, [f"--{how}", "a.yaml"])) == 2
    assert "trusted module (--trusted_modules), got trap." in capsys.readouterr().err
    assert not trap.exists()


def test_what_is_trusted_is_found_in_the_current_folder(trap, capsys):
    assert fit("--model", "trap.CNN4", "--trusted_modules", ".", "trap", "--print_config") == 0
    assert trap.exists()


def test_another_name_does_not_hide_where_a_thing_comes_from(trap, capsys):
    spec = '{"class_path": "trap.system", "init_args": {"command": "touch run"}}'
    assert fit("--client.optimizer", spec, "--trusted_modules", ".", "trap") == 2
    assert "client.optimizer: expected a class, got posix.system" in capsys.readouterr().err
    assert not Path("run").exists()


@pytest.mark.parametrize(
    ("path", "arguments"),
    [
        ("os.system", {"command": "touch run"}),
        ("subprocess.getoutput", {"cmd": "touch run"}),
        ("cwfed.config.trust.os.system", {"command": "touch run"}),
        ("torch.load", {"f": "run", "weights_only": False}),
        ("cwfed.records.atomic.write_atomic", {"path": "run", "content": "x"}),
    ],
)
@pytest.mark.parametrize("option", ["client.optimizer", "model", "logger", "data"])
def test_a_function_is_never_called_whoever_is_trusted(
    tmp_path, monkeypatch, capsys, option, path, arguments
):
    monkeypatch.chdir(tmp_path)
    value, current = {"class_path": path, "init_args": arguments}, {}
    for part in reversed(option.split(".")):
        current, value = {part: value}, {part: value}
    Path("a.yaml").write_text(yaml.safe_dump(current))
    assert fit("--config", "a.yaml") == 2
    assert f"{option}: expected" in capsys.readouterr().err
    assert os.listdir() == ["a.yaml"]


class FreeLogger(CSVLogger):
    """A logger with an argument that may be anything."""

    def __init__(self, save_dir: str, anything: Any = None):
        super().__init__(save_dir)
        self.anything = anything


def test_what_looks_like_a_class_in_an_argument_of_any_type_stays_a_mapping(tmp_path):
    parser = make_parser("fit", "")
    add_fit_options(parser)
    made = {"class_path": "cwfed.objectives.WDR", "init_args": {"weight": 2.0}}
    logger = {
        "class_path": f"{__name__}.FreeLogger",
        "init_args": {"save_dir": str(tmp_path), "anything": made},
    }
    (tmp_path / "a.yaml").write_text(yaml.safe_dump({"logger": logger}))
    command = order_arguments(["--config", "quickstart", "--config", str(tmp_path / "a.yaml")])
    logger = build(parser, parse(parser, command))[1].logger
    assert not isinstance(logger.anything, WDR)
    assert logger.anything["init_args"]["weight"] == 2.0


def test_names_are_taken_from_the_arguments_or_the_environment(monkeypatch):
    monkeypatch.delenv("CWFED_TRUSTED_MODULES", raising=False)
    assert take_trusted(["--rounds", "1"]) == (None, ["--rounds", "1"])
    assert take_trusted(["--trusted_modules", "a", "b.c", "--rounds", "1"]) == (
        ["a", "b.c"],
        ["--rounds", "1"],
    )
    assert take_trusted(["--trusted_modules=a,b", "c"]) == (["a", "b"], ["c"])
    monkeypatch.setenv("CWFED_TRUSTED_MODULES", "d, e")
    assert take_trusted([]) == (["d", "e"], [])
    assert take_trusted(["--trusted_modules"]) == ([], [])


@pytest.mark.parametrize("name", ["a/b", "mine.py", "a..b", "*", "jsonargparse.typing", "a-b"])
def test_names_that_are_no_modules(name):
    with pytest.raises(UsageError, match="--trusted_modules: expected names of modules"):
        take_trusted(["--trusted_modules", name])


def test_a_file_cannot_trust_itself(tmp_path, capsys):
    path = tmp_path / "a.yaml"
    path.write_text("trusted_modules: [os]")
    assert fit("--config", str(path)) == 2
    assert "trusted_modules: expected on the command line, not in a file" in capsys.readouterr().err


def test_a_printed_configuration_can_be_given_back(tmp_path, capsys):
    assert fit("--print_config") == 0
    printed = capsys.readouterr().out
    path = tmp_path / "a.yaml"
    path.write_text(printed)
    assert main(["fit", "--config", str(path), "--print_config"]) == 0
    assert capsys.readouterr().out == printed


def test_the_current_folder_is_searched_only_if_trusted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    for first in ("", str(tmp_path)):
        sys.path[:] = [first, "elsewhere"]
        with searching(["torch"]):
            assert sys.path == ["elsewhere"]
            assert finder_at_work() is None
        assert sys.path == ["elsewhere"]
    for trusted in (None, ["."]):
        with searching(trusted):
            assert finder_at_work().folder == str(tmp_path)
        assert finder_at_work() is None


def test_tables_are_held_to_it_and_so_are_the_runs_they_start(trap, capsys, monkeypatch):
    monkeypatch.setenv("CWFED_TRUSTED_MODULES", "")  # and restored when the test ends
    columns = {"tiny": {"config": "quickstart", "options": {"model": "trap.CNN4"}}}
    rows = {"fedavg": {"metric": "received"}}
    table = {"title": "T", "source": "nowhere", "columns": columns, "rows": rows}
    Path("t.yaml").write_text(yaml.safe_dump({**table, "paper": {"fedavg": [None]}}))
    assert benchmarks(["run", "t.yaml", "--runs", "r", "--trusted_modules", "torchvision"]) == 2
    assert "trusted module (--trusted_modules), got trap." in capsys.readouterr().err
    assert not trap.exists()
    assert os.environ["CWFED_TRUSTED_MODULES"] == "torchvision"


def test_a_module_in_the_current_folder_is_not_found_by_the_real_command(trap):
    command = [sys.executable, "-m", "cwfed", "fit", "--config", "quickstart", "--print_config"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    trusted = ["--model", "trap.CNN4", "--trusted_modules", "trap"]
    process = subprocess.run([*command, *trusted], env=environment, capture_output=True, text=True)
    assert (process.returncode, trap.exists()) == (2, False)
    assert "No module named 'trap'" in process.stderr

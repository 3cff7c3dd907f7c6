"""An engine of another module: one file and one option, as docs/engines.md says."""

import json
import re
import sys
from functools import partial
from pathlib import Path

import pytest
import yaml
from engine_contract import EngineContract
from helpers import small_experiment

import cwfed
from cwfed.cli import main
from cwfed.engines import SequentialEngine
from cwfed.engines.own import arguments_of, engine_name
from cwfed.engines.selection import describe_engine, make_engine
from cwfed.federated import TrainerOptions
from cwfed.processes.lock import unlocked_afterwards
from cwfed.records.identity import config_hash

PAGE = Path(__file__).parents[2] / "docs" / "engines.md"
SMALL = [
    *("fit", "--config", "quickstart", "--data", "SyntheticImages", "--data.image_size", "16"),
    *("--data.samples_per_class", "10", "--partition.num_clients", "3", "--rounds", "1"),
    *("--model.hidden_features", "8"),
]
ODD = """
from cwfed.engines import Engine, SequentialEngine

class Unfinished(Engine):
    def fit(self, round_, clients, start, anchors, phase, objective): ...

class Refusing(SequentialEngine):
    def __init__(self, workload, share: float = 0.5):
        if share > 1:
            raise ValueError(f"share: expected at most 1, got {share}")
        super().__init__(workload, "cpu")

class Stranger:
    def __init__(self, workload): ...

def make(workload) -> Engine:
    return Refusing(workload)
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """The current folder with the page's file, and another with engines that are not in order."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.S | re.M)
    (page,) = [block for block in blocks if block.startswith("# mine.py")]
    (tmp_path / "mine.py").write_text(page)
    (tmp_path / "odd_engines.py").write_text(ODD)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in ("mine", "odd_engines"):
        sys.modules.pop(name, None)


def fit(folder, *options):
    with unlocked_afterwards():
        assert main([*SMALL, *options, "--run_dir", str(folder)]) == 0
    return json.loads((folder / "result.json").read_text())


def test_a_file_and_an_option_are_enough(mine, caplog):
    reference = fit(mine / "reference", "--trainer.engine", "sequential")
    caplog.clear()
    own = fit(mine / "own", "--trainer.engine", "mine.Telling", "--trainer.engine.unit", "sites")
    said = [record.getMessage() for record in caplog.records]
    assert "round 1 trains 3 sites" in said
    assert any(line.startswith("engine mine.Telling on ") for line in said)
    assert own["hashes"]["models"] == reference["hashes"]["models"]
    assert own["hardware"]["engine"] == "mine.Telling"
    trainer = yaml.safe_load((mine / "own" / "config.yaml").read_text())["trainer"]
    assert trainer["engine"] == {"class_path": "mine.Telling", "init_args": {"unit": "sites"}}
    assert trainer["memory_format"] == "channels_last", "settled as for the sequential engine"
    assert main(["fit", "--resume", str(mine / "own"), "--rounds", "2"]) == 0
    assert "round 2 trains 3 sites" in [record.getMessage() for record in caplog.records]


def test_a_file_of_options_and_python_take_it_too(mine):
    content = {"trainer": {"engine": {"class_path": "mine.Telling", "init_args": {"unit": "x"}}}}
    (mine / "own.yaml").write_text(yaml.safe_dump(content))
    from_file = fit(mine / "file", "--config", "own.yaml")
    run = cwfed.fit(
        "quickstart",
        data={
            "class_path": "SyntheticImages",
            "init_args": {"image_size": 16, "samples_per_class": 10},
        },
        partition={"num_clients": 3},
        model={"hidden_features": 8},
        rounds=1,
        run_dir=mine / "python",
        progress=False,
        **content,
    )
    assert run.result["hashes"] == from_file["hashes"]


def test_another_engine_is_another_run_and_a_built_in_one_is_not(mine, capsys):
    fit(mine / "own", "--trainer.engine", "mine.Telling")
    engines = {
        "short": "sequential",
        "path": "cwfed.engines.SequentialEngine",
        "class": "ParallelEngine",
        "unit": "{class_path: mine.Telling, init_args: {unit: sites}}",
        "same": "mine.Telling",
    }
    hashes = {
        name: fit(mine / name, "--trainer.engine", engine)["hashes"]["config"]
        for name, engine in engines.items()
    }
    own = json.loads((mine / "own" / "result.json").read_text())["hashes"]["config"]
    assert hashes["short"] == hashes["path"] == hashes["class"]
    assert hashes["same"] == own
    assert len({own, hashes["unit"], hashes["short"]}) == 3
    trainer = yaml.safe_load((mine / "path" / "config.yaml").read_text())["trainer"]
    assert trainer["engine"] == "sequential"
    resumed = ["fit", "--resume", str(mine / "own"), "--rounds", "2"]
    assert main([*resumed, "--trainer.engine", "sequential"]) == 2
    assert "trainer.engine" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        ("odd_engines.Stranger", "expected a subclass of Engine, got odd_engines.Stranger"),
        ("odd_engines.make", "expected a subclass of Engine, got odd_engines.make"),
        (
            "odd_engines.Unfinished",
            "expected a subclass of Engine, got odd_engines.Unfinished without class_means, "
            "evaluate",
        ),
        (
            "{class_path: odd_engines.Refusing, init_args: {share: 2}}",
            "odd_engines.Refusing: share: expected at most 1, got 2.0",
        ),
        ("{class_path: odd_engines.Refusing, init_args: {shares: 2}}", "shares"),
        ("{class_path: mine.Telling, init_args: {precision: 64-true}}", "precision"),
        ("odd_engines.Missing", "odd_engines"),
        ("os.getcwd", "expected a class, got os.getcwd, which runs code"),
        ("fastest", "fastest"),
    ],
)
def test_what_is_no_engine_is_refused_in_one_line(mine, capsys, engine, said):
    assert main([*SMALL, "--trainer.engine", engine, "--run_dir", "run"]) == 2
    error = capsys.readouterr().err.strip()
    assert "Traceback" not in error
    assert error.count("\n") == 0, error
    assert "trainer.engine" in error
    assert said in error
    assert not (mine / "run").exists()


class Own(SequentialEngine):
    """Asks for some of what is settled, the rest of its arguments being its own."""

    def __init__(self, workload, precision, workers=None, *, note="", **others):
        super().__init__(workload, precision=precision, **others)
        self.workers, self.note = workers, note


class TestOwn(EngineContract):
    engine = Own


def test_an_engine_gets_what_is_settled_by_the_names_that_it_has():
    assert arguments_of(Own) >= {
        "workload",
        "precision",
        "workers",
        "note",
        "accelerator",
        "client",
    }
    assert arguments_of(Own).isdisjoint({"threads", "chunk"})
    options = TrainerOptions("cpu", "64-true", "medium", partial(Own, note="here"), workers=2)
    run = small_experiment(trainer=options).prepare()
    engine = make_engine(run.trainer, run.workload())
    assert engine.note == "here"
    assert (engine.workers, engine.matmul_precision) == (2, "medium")
    assert engine.trainer.precision == "64-true"
    assert engine.workload.memory_format == run.trainer.memory_format
    assert engine_name(options.engine) == f"{__name__}.Own"
    assert describe_engine(run.trainer).startswith(f"engine {__name__}.Own on cpu")
    with pytest.raises(ValueError, match=r"trainer.engine: expected a subclass of Engine, got bui"):
        small_experiment(trainer=TrainerOptions("cpu", engine=dict)).prepare().loop()


def test_what_an_engine_does_not_read_is_said(caplog):
    small_experiment(trainer=TrainerOptions("cpu", "64-true", engine=Own, chunk=3)).prepare()
    assert f"trainer.chunk: not used by the {__name__}.Own engine" in caplog.text


def test_an_engine_of_another_module_is_known_by_every_version_of_an_identity():
    def hashes(engine, version):
        return config_hash({"seed": 0, "trainer": {"engine": engine, "threads": 1}}, version)

    own = {"class_path": "mine.Telling", "init_args": {}}
    for version in (1, 2):
        assert hashes(own, version) != hashes("sequential", version)
        assert hashes("auto", version) == hashes("sequential", version)
        ours = {"class_path": "cwfed.engines.SequentialEngine"}
        assert hashes(ours, version) == hashes("sequential", version)

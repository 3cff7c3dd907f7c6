"""Local training is tried before a run, in the layout and with the optimiser that it will have."""

import json
from dataclasses import replace
from functools import partial

import pytest
import torch
import yaml
from helpers import small_experiment
from torch.optim import LBFGS, SGD

from cwfed.cli import main
from cwfed.engines import selection as engines
from cwfed.federated import LocalTraining, TrainerOptions
from cwfed.models import CNN4

AUTO = TrainerOptions(accelerator="cpu")
SMALL = (
    *("--config", "quickstart", "--data", "SyntheticImages", "--data.image_size", "16"),
    *("--data.samples_per_class", "20", "--partition.num_clients", "4", "--rounds", "2"),
)
FLAT = (
    *("--client.optimizer", "LBFGS", "--client.optimizer.max_iter", "2"),
    *("--model.hidden_features", "8"),
)


class ViewingSGD(SGD):
    """Takes the layout of gradients for granted, from its second step on."""

    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p in self.state:
                    p.grad.view(-1)
        return super().step(closure)


class Tired(SGD):
    """Fails in any layout, once it has a model to train."""

    def step(self, closure=None):
        if sum(p.numel() for g in self.param_groups for p in g["params"]) > 100:
            raise RuntimeError("too many\nparameters")
        return super().step(closure)


class NoMemory(SGD):
    def step(self, closure=None):
        if sum(p.numel() for g in self.param_groups for p in g["params"]) > 100:
            raise MemoryError
        return super().step(closure)


def settled(optimizer, options=AUTO, **changes):
    data = small_experiment().data
    data.image_size = 16
    client = LocalTraining(8, optimizer=optimizer)
    run = small_experiment(
        trainer=options, client=client, data=data, model=partial(CNN4, hidden_features=8), **changes
    )
    return run.prepare().trainer


@pytest.fixture(params=[1, 2], ids=["sequential", "parallel"])
def some_cores(request, monkeypatch):
    monkeypatch.setattr(engines, "cores", lambda: request.param)


@pytest.mark.parametrize(
    "optimizer", [partial(LBFGS, lr=0.1), partial(ViewingSGD, lr=0.1, momentum=0.9)]
)
def test_a_layout_that_the_optimiser_cannot_step_in_is_not_taken(optimizer, some_cores, caplog):
    assert settled(optimizer).memory_format == "contiguous"
    said = [r.getMessage() for r in caplog.records if "memory_format" in r.getMessage()]
    assert len(said) == 1
    assert said[0].startswith("trainer.memory_format: contiguous, since local training fails in")
    assert "channels_last: RuntimeError: view size is not compatible" in said[0]


def test_what_steps_in_channels_last_keeps_it(some_cores, caplog):
    for optimizer in (partial(SGD, lr=0.1, momentum=0.9), partial(torch.optim.Adam, lr=0.001)):
        assert settled(optimizer).memory_format == "channels_last"
    assert "memory_format" not in caplog.text


@pytest.mark.parametrize("engine", ["sequential", "parallel"])
def test_a_layout_that_was_asked_for_is_refused(engine):
    asked = replace(AUTO, engine=engine, memory_format="channels_last")
    with pytest.raises(ValueError, match=r"^trainer.memory_format: expected contiguous, since .*"):
        settled(partial(LBFGS, lr=0.1), asked)
    assert settled(partial(SGD, lr=0.1), asked).memory_format == "channels_last"


def test_what_fails_in_any_layout_is_no_matter_of_the_layout(some_cores):
    for memory_format in ("auto", "contiguous", "channels_last"):
        with pytest.raises(
            ValueError, match=r"^client: local training fails in its first steps: RuntimeError: too"
        ):
            settled(partial(Tired, lr=0.1), replace(AUTO, memory_format=memory_format))


def test_lost_memory_is_not_taken_for_a_layout():
    with pytest.raises(MemoryError):
        settled(partial(NoMemory, lr=0.1))


@pytest.mark.parametrize("engine", ["auto", "sequential"])
def test_lbfgs_trains_from_the_command_line(engine, tmp_path, capsys):
    run = ["fit", *SMALL, *FLAT, "--trainer.engine", engine, "--run_dir", str(tmp_path / "run")]
    assert main(run) == 0
    assert "memory_format: contiguous" in capsys.readouterr().err
    trainer = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["trainer"]
    assert trainer["memory_format"] == "contiguous"
    lines = (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()
    assert [json.loads(line)["round"] for line in lines] == [0, 1, 2]
    assert "Traceback" not in capsys.readouterr().err


def test_a_layout_is_refused_in_one_line_and_nothing_is_written(tmp_path, capsys):
    asked = ["--trainer.memory_format", "channels_last", "--run_dir", str(tmp_path / "run")]
    assert main(["fit", *SMALL, *FLAT, *asked]) == 2
    error = capsys.readouterr().err
    assert "trainer.memory_format: expected contiguous" in error
    assert error.strip().endswith("got channels_last")
    assert "Traceback" not in error
    assert not (tmp_path / "run").exists()

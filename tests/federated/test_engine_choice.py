"""What `engine: auto` picks, and that a run folder keeps the choice."""

import json
import random
import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
import yaml
from helpers import TinyNet, assert_same, small_experiment
from helpers import run as train
from torch import nn

from cwfed.cli import main
from cwfed.engines import layout
from cwfed.engines import selection as engines
from cwfed.engines.parallel import workers
from cwfed.engines.parallel.engine import ParallelEngine
from cwfed.engines.parallel.workers import WorkerPool
from cwfed.engines.selection import describe_engine, make_engine, settle
from cwfed.engines.sequential import SequentialEngine
from cwfed.engines.vectorized.engine import VectorizedEngine
from cwfed.engines.vectorized.timing import VARIANTS
from cwfed.federated import LocalTraining, TrainerOptions
from cwfed.models import CNN4
from cwfed.objectives import WDR
from cwfed.processes.lock import unlocked_afterwards
from cwfed.records.identity import config_hash

AUTO = TrainerOptions(accelerator="cpu")
SMALL = (
    *("--config", "quickstart", "--data", "SyntheticImages", "--data.image_size", "16"),
    *("--data.samples_per_class", "20", "--partition.num_clients", "4", "--rounds", "2"),
)


class Viewing(TinyNet):
    """A model that takes the layout of its features for granted."""

    def forward(self, x):
        x = torch.relu(self.norm(self.conv(x)))
        return self.out(torch.relu(self.hidden(x.view(len(x), -1))))


class ViewingWhenScored(Viewing):
    def forward(self, x):
        return super().forward(x) if not self.training else TinyNet.forward(self, x)


class Flat(nn.Module):
    """A model without convolutions."""

    head_name = "out"

    def __init__(self, num_classes, input_shape):
        super().__init__()
        self.out = nn.Linear(input_shape[1] * input_shape[2], num_classes)

    def forward(self, x):
        return self.out(x.flatten(1))


@pytest.fixture
def four_cores(monkeypatch):
    monkeypatch.setattr(engines, "cores", lambda: 4)


def settled(options=AUTO, **changes):
    return small_experiment(trainer=options, **changes).prepare().trainer


def test_cores_are_used(four_cores):
    run = small_experiment(trainer=AUTO).prepare()
    assert (run.trainer.engine, run.trainer.workers) == ("parallel", 4)
    assert "4 cores" in run.reason
    assert describe_engine(run.trainer) == "engine parallel on cpu, 4 workers, 1 thread"
    sgd = LocalTraining(8, optimizer=partial(torch.optim.SGD, lr=0.05))
    assert settled(replace(AUTO, threads=2), client=sgd).workers == 2
    assert settled(participation=0.6).workers == 3, "no more workers than clients of a round"
    assert settled(replace(AUTO, workers=3)).workers == 3


def test_nothing_to_share_is_sequential(four_cores):
    assert settled(participation=0.2).engine == "sequential"
    assert settled(replace(AUTO, threads=4)).engine == "sequential"


def test_what_cannot_be_sent_is_sequential(four_cores, monkeypatch):
    monkeypatch.setattr(engines, "start_method", lambda threads: "spawn")
    run = small_experiment(trainer=AUTO).prepare()  # its optimiser is a lambda
    assert run.trainer.engine == "sequential"
    assert "cannot be sent to another process" in run.reason
    with pytest.raises(ValueError, match=r"trainer.engine: parallel cannot be used: the optimiser"):
        settled(replace(AUTO, engine="parallel"))


def test_parallel_is_for_the_cpu():
    run = small_experiment(trainer=AUTO).prepare()
    options = replace(run.trainer, accelerator="cuda", engine="parallel")
    with pytest.raises(ValueError, match="expected auto, sequential or vectorized on cuda"):
        settle(options, run.workload(), run.experiment.phases, 5)


@pytest.mark.parametrize(
    ("model", "precision", "expected"),
    [
        (CNN4, "32-true", "channels_last"),
        (CNN4, "64-true", "contiguous"),
        (TinyNet, "bf16-mixed", "channels_last"),
        (Viewing, "32-true", "contiguous"),
        (ViewingWhenScored, "32-true", "contiguous"),
        (Flat, "32-true", "contiguous"),
    ],
)
def test_memory_format_goes_by_rule(model, precision, expected):
    data = small_experiment().data
    data.image_size = 16
    options = replace(AUTO, precision=precision)
    assert settled(options, model=partial(model), data=data).memory_format == expected


def test_vectorized_settles_kernel_and_chunk():
    run = small_experiment(trainer=replace(AUTO, engine="vectorized"), dropout=0.0).prepare()
    assert isinstance(make_engine(run.trainer, run.workload()), VectorizedEngine)
    chosen = run.trainer
    assert (chosen.kernel, chosen.memory_format, chosen.chunk) == ("grouped", "contiguous", 5)
    assert "5 clients at once, convolutions grouped" in describe_engine(chosen)
    given = {"kernel": "streams", "memory_format": "channels_last", "chunk": 2}
    asked = replace(AUTO, engine="vectorized", **given)
    chosen = settled(asked, dropout=0.0, participation=0.6)
    assert {name: getattr(chosen, name) for name in given} == given


def test_vectorized_is_refused_where_it_is_not_exact():
    with pytest.raises(ValueError, match=r"vectorized cannot be used: .*random numbers"):
        settled(replace(AUTO, engine="vectorized"), dropout=0.5)


class FakeGpu:
    """Stands in for what a run asks a GPU."""

    def __init__(self, monkeypatch, obstacle=None):
        self.timed = []
        monkeypatch.setattr(engines, "_cannot_stack", lambda *_: obstacle)
        monkeypatch.setattr(engines, "choose_kernel", self.choose)
        monkeypatch.setattr(engines, "_vectorized", lambda *_: self)

    def choose(self, workload, phases, *options):
        self.timed.append(options[-1])
        return options[-1][-1], {}

    def find_chunk(self, phase, objective):
        return 100

    def close(self):
        pass


def settle_on_gpu(**options):
    run = small_experiment(trainer=AUTO, dropout=0.0).prepare()
    gpu = replace(AUTO, accelerator="cuda", eval_batch_size=1000, **options)
    return settle(gpu, run.workload(), run.experiment.phases, 4)


def test_a_gpu_takes_all_clients_at_once_and_is_timed_once(monkeypatch):
    gpu = FakeGpu(monkeypatch)
    chosen, reason = settle_on_gpu()
    assert (chosen.engine, reason) == ("vectorized", "all clients on one GPU")
    assert (chosen.kernel, chosen.memory_format) == VARIANTS[-1] == gpu.timed[0][-1]
    assert chosen.chunk == 4
    again, _ = settle(chosen, *run_parts(), 4)
    assert again == chosen
    assert len(gpu.timed) == 1, "nothing is timed where a choice is recorded"
    settle_on_gpu(kernel="unfold")
    assert len(gpu.timed) == 1, "there is nothing to choose from"


def run_parts():
    run = small_experiment(trainer=AUTO, dropout=0.0).prepare()
    return run.workload(), run.experiment.phases


def test_a_gpu_trains_one_by_one_what_cannot_be_stacked(monkeypatch):
    FakeGpu(monkeypatch, "the model draws random numbers in training")
    monkeypatch.setattr(layout, "failure_in_first_steps", lambda *_: None)
    chosen, reason = settle_on_gpu()
    assert chosen.engine == "sequential"
    assert "random numbers" in reason
    assert chosen.memory_format == "contiguous"


def test_what_is_settled_stays(four_cores, monkeypatch):
    chosen = settled()
    monkeypatch.setattr(engines, "cores", lambda: 1)
    assert settled(chosen) == chosen


def test_engines_are_what_the_options_say():
    run = small_experiment(trainer=AUTO).prepare()
    one = make_engine(replace(run.trainer, engine="sequential"), run.workload())
    many = make_engine(replace(run.trainer, engine="parallel", workers=3), run.workload())
    assert isinstance(one, SequentialEngine)
    assert isinstance(many, ParallelEngine)
    assert many.workers == 3


def read(folder):
    return yaml.safe_load((folder / "config.yaml").read_text())


def test_a_run_folder_keeps_the_choice_and_the_numbers_do_not_depend_on_it(tmp_path, monkeypatch):
    monkeypatch.setattr(engines, "cores", lambda: 3)
    assert main(["fit", *SMALL, "--run_dir", str(tmp_path / "many")]) == 0
    trainer = read(tmp_path / "many")["trainer"]
    assert (trainer["engine"], trainer["workers"]) == ("parallel", 3)
    assert trainer["memory_format"] == "channels_last"
    assert trainer["eval_batch_size"] == 100
    assert trainer["accelerator"] != "auto"

    monkeypatch.setattr(engines, "cores", lambda: 1)
    again = ["fit", "--config", str(tmp_path / "many" / "config.yaml")]
    assert main([*again, "--run_dir", str(tmp_path / "again")]) == 0
    assert read(tmp_path / "again")["trainer"] == trainer, "a repeated run takes what was settled"

    one = ["fit", *SMALL, "--run_dir", str(tmp_path / "one")]
    assert main(one) == 0
    assert read(tmp_path / "one")["trainer"]["engine"] == "sequential"
    results = [json.loads((tmp_path / f / "result.json").read_text()) for f in ("many", "one")]
    assert results[0]["hashes"] == results[1]["hashes"]
    assert results[0]["hardware"]["engine"] == "parallel"


def test_the_configuration_hash_is_of_the_experiment(tmp_path):
    config = {
        "seed": 0,
        "model": {"init_args": {"kernel": 3, "path": 1, "workers": 2}},
        "data": {"class_path": "MNIST", "init_args": {"path": "a"}},
        "trainer": {"engine": "parallel", "precision": "32-true", "workers": 2},
    }

    def changed(*keys_and_value):
        *keys, last, value = keys_and_value
        other = yaml.safe_load(yaml.safe_dump(config))
        inner = other
        for key in keys:
            inner = inner[key]
        inner[last] = value
        return config_hash(other)

    assert changed("trainer", "engine", "vectorized") == config_hash(config)
    assert changed("trainer", "workers", 7) == config_hash(config)
    assert changed("data", "init_args", "path", "b") == config_hash(config)
    assert changed("trainer", "precision", "64-true") != config_hash(config)
    assert changed("model", "init_args", "kernel", 5) != config_hash(config)
    assert changed("model", "init_args", "path", 2) != config_hash(config)
    assert changed("data", "class_path", "CIFAR10") != config_hash(config)


@pytest.mark.parametrize("option", ["workers", "chunk", "eval_batch_size", "threads"])
@pytest.mark.parametrize("value", [0, -1, True])
def test_bad_numbers_are_refused(option, value):
    with pytest.raises(ValueError, match=rf"trainer.{option}: expected"):
        TrainerOptions(**{option: value})


def test_start_method_is_safe_beside_a_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert workers.start_method(1) == "spawn"


def test_start_method_is_safe_with_threads():
    assert workers.start_method(2) == "spawn"


class Unsendable(WDR):
    def __init__(self):
        super().__init__()
        self.hidden = lambda: None


class Counting(WDR):
    """Draws from a generator that PyTorch does not know."""

    def value(self, step, client):
        return super().value(step, client) * (1 + np.random.rand() + random.random())


class Vector(WDR):
    def value(self, step, client):
        return step.logits_BK[0]


class Failing(WDR):
    def value(self, step, client):
        raise KeyError("nothing")


def test_a_term_that_cannot_be_sent_is_trained_in_this_process(four_cores):
    run = small_experiment(trainer=AUTO, objectives=[Unsendable()]).prepare()
    assert run.trainer.engine == "sequential"
    assert "a term of the objective cannot be sent" in run.reason
    with pytest.raises(ValueError, match="parallel cannot be used: a term of the objective"):
        settled(replace(AUTO, engine="parallel"), objectives=[Unsendable()])


def test_numbers_from_numpy_and_python_are_a_function_of_the_seed():
    def trained(engine):
        options = replace(AUTO, engine=engine)
        return train(small_experiment(objectives=[Counting()], trainer=options))

    before = np.random.get_state()[1].tolist(), random.getstate()
    assert_same(dict(trained("parallel").uploads), dict(trained("sequential").uploads))
    assert (np.random.get_state()[1].tolist(), random.getstate()) == before
    with pytest.raises(ValueError, match="random numbers"):
        settled(replace(AUTO, engine="vectorized"), dropout=0.0, objectives=[Counting()])


@pytest.mark.parametrize("term", [Vector, Failing])
@pytest.mark.parametrize("engine", ["sequential", "parallel", "vectorized"])
def test_a_term_that_fails_is_refused_by_every_engine(term, engine):
    with pytest.raises(ValueError, match=r"objectives: a term fails in training: \w+Error"):
        settled(replace(AUTO, engine=engine), dropout=0.0, objectives=[term()])


def test_what_an_engine_does_not_read_is_said_and_opened(caplog):
    chosen = settled(replace(AUTO, engine="sequential", workers=3, kernel="unfold"))
    assert (chosen.workers, chosen.kernel) == (None, "auto")
    assert "trainer.workers: not used by the sequential engine" in caplog.text
    assert "trainer.kernel: not used" in caplog.text
    asked = {"engine": "vectorized", "kernel": "unfold", "memory_format": "channels_last"}
    with pytest.raises(ValueError, match="memory_format: expected contiguous with kernel unfold"):
        settled(replace(AUTO, **asked), dropout=0.0)


def test_half_precision_is_refused_on_a_cpu_found_automatically(monkeypatch):
    monkeypatch.setattr(engines, "resolve_accelerator", lambda _: "cpu")
    with pytest.raises(ValueError, match=r"trainer.precision: expected .* got 16-mixed"):
        settled(TrainerOptions(precision="16-mixed"))


@pytest.mark.parametrize("engine", ["auto", "parallel"])
def test_there_are_never_more_workers_than_clients(engine, four_cores, caplog):
    chosen = settled(replace(AUTO, engine=engine, workers=1024))
    assert (chosen.engine, chosen.workers) == ("parallel", 5)
    assert "trainer.workers: 5, one for each client, instead of 1024" in caplog.text
    assert settled(chosen) == chosen
    assert settled(replace(AUTO, engine=engine, workers=1024), participation=0.2).workers == 5


def test_a_run_with_more_workers_than_clients_goes_on(tmp_path, monkeypatch):
    """Its configuration, which an earlier version has written, stays as it is."""
    with unlocked_afterwards():
        assert main(["fit", *SMALL, "--run_dir", str(tmp_path / "run")]) == 0
    path = tmp_path / "run" / "config.yaml"
    many = path.read_text().replace("engine: sequential", "engine: parallel")
    many = re.sub(r"workers: \w+", "workers: 64", many)
    path.write_text(many)
    started = []
    make = WorkerPool.__init__

    def counting(self, make_servant, count, *args, **kwargs):
        started.append(count)
        make(self, make_servant, count, *args, **kwargs)

    monkeypatch.setattr(WorkerPool, "__init__", counting)
    with unlocked_afterwards():
        assert main(["fit", "--resume", str(tmp_path / "run"), "--rounds", "3"]) == 0
    assert started == [4]
    assert yaml.safe_load(path.read_text())["trainer"]["workers"] == 64

"""Runs from Python against runs from the command line, and aggregators on a few tensors."""

import signal
import subprocess
import sys

import pytest
import torch
from helpers import SMALL_FIT

import cwfed
from cwfed.aggregators import IFCA, CwFedAvg, FedAvg
from cwfed.cli import main
from cwfed.data.partitioners import IID
from cwfed.data.sources import SyntheticImages
from cwfed.models import CNN4
from cwfed.objectives import WDR
from cwfed.records.round_lines import read_lines
from cwfed.tracking.progress import ProgressPrinter

SMALL = {**SMALL_FIT, "rounds": 2}


def lines(folder):
    found = read_lines(folder / "rounds.jsonl")
    return [{name: value for name, value in line.items() if name != "seconds"} for line in found]


def test_a_run_from_python_is_the_run_of_the_command_line(tmp_path, capsys):
    options = {"wdr_lambda": 3, "client": {"batch_size": 20}, "algorithm": "cwfedavg_all"}
    run = cwfed.fit("quickstart", run_dir=tmp_path / "a", **options, **SMALL)
    assert capsys.readouterr() == ("", "")
    arguments = ["fit", "--config", "quickstart", "--run_dir", str(tmp_path / "b"), "--rounds", "2"]
    arguments += ["--data", "SyntheticImages", "--data.image_size", "16"]
    arguments += ["--data.samples_per_class", "20", "--partition.num_clients", "4"]
    arguments += ["--model.hidden_features", "8", "--wdr_lambda", "3", "--client.batch_size", "20"]
    assert main([*arguments, "--algorithm", "cwfedavg_all"]) == 0
    assert lines(tmp_path / "a") == lines(tmp_path / "b")
    assert (tmp_path / "a" / "config.yaml").read_text() == (
        tmp_path / "b" / "config.yaml"
    ).read_text()
    assert run.summary.loc["received", "last"] == run.rounds["received/accuracy"][2]
    assert repr(run) == "Run('a': cwfedavg_all on SyntheticImages, seed 0, 2 of 2 rounds)"


def test_a_signal_and_resume_in_the_same_process(tmp_path, monkeypatch):
    whole = cwfed.fit("quickstart", run_dir=tmp_path / "whole", **SMALL)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)

    def interrupt(self, record, state):
        if record.round == 1:
            signal.raise_signal(signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(ProgressPrinter, "on_round", interrupt)
        shown = {"progress": True, "checkpoint": {"every": 5}}
        with pytest.raises(KeyboardInterrupt):
            cwfed.fit("quickstart", run_dir=tmp_path / "cut", **SMALL | shown)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert (tmp_path / "cut" / "checkpoints" / "round_000001.json").is_file()
    assert torch.get_num_threads() == 2
    torch.set_num_threads(threads)
    assert cwfed.Run.load(tmp_path / "cut").result is None
    resumed = cwfed.resume(tmp_path / "cut", progress=False)
    assert lines(tmp_path / "cut") == lines(tmp_path / "whole")
    assert resumed.result["hashes"] == whole.result["hashes"]
    assert cwfed.resume(tmp_path / "cut").result == resumed.result
    longer = cwfed.resume(tmp_path / "cut", rounds=whole.result["rounds"] + 1, progress=False)
    assert longer.result["rounds"] == whole.result["rounds"] + 1
    assert lines(tmp_path / "cut")[:-1] == lines(tmp_path / "whole")
    with pytest.raises(ValueError, match="run_dir: expected an empty or new folder"):
        cwfed.fit("quickstart", run_dir=tmp_path / "cut", **SMALL)


METHODS = {
    "names": {"name": "x", "aggregator": "CwFedAvg", "objectives": ["WDR"]},
    "classes": {"name": "x", "aggregator": CwFedAvg, "objectives": [WDR]},
    "arguments": {
        "name": "x",
        "aggregator": {"class_path": CwFedAvg, "init_args": {"scope": "all"}},
        "objectives": [{"class_path": WDR, "init_args": {"weight": 1e-5}}],
    },
    "replaced": {"name": "x", "aggregator": FedAvg},
}


@pytest.mark.parametrize("name", METHODS)
def test_a_method_given_as_a_mapping(name, tmp_path):
    run = cwfed.fit("quickstart", run_dir=tmp_path / "r", algorithm=METHODS[name],
                    **SMALL | {"rounds": 0})  # fmt: skip
    method = run.config["algorithm"]
    aggregator = {"replaced": "FedAvg"}.get(name, "CwFedAvg")
    # The short path, as the command line writes it: otherwise the run's hash would be another.
    assert method["aggregator"]["class_path"] == f"cwfed.aggregators.{aggregator}"
    if name == "replaced":
        assert method["objectives"] == []
        return
    arguments = (method["aggregator"]["init_args"]["scope"], method["objectives"][0]["init_args"])
    assert arguments == (("all", {"weight": 1e-5}) if name == "arguments"
                         else ("output", {"weight": None}))  # fmt: skip
    assert method["objectives"][0]["class_path"] == "cwfed.objectives.WDR"


def chosen(tmp_path, *configs, **options):
    tmp_path.mkdir(exist_ok=True)
    options = {"progress": False, **options, "rounds": 0}
    return cwfed.fit(*configs, run_dir=tmp_path / "r", **options).config


def test_arguments_of_a_class_are_given_in_any_way(tmp_path):
    small = {"class_path": "SyntheticImages", "image_size": 16, "samples_per_class": 20}
    ways = [
        {"data": small},
        {"data": {"class_path": "SyntheticImages", "init_args": {**small} | {"image_size": 16}}},
        {"data": "SyntheticImages", "data.image_size": 16, "data.samples_per_class": 20},
        {"data.samples_per_class": 20, "data.image_size": 16, "data": SyntheticImages},
    ]
    del ways[1]["data"]["init_args"]["class_path"]
    found = [
        chosen(tmp_path / str(number), "quickstart", **way)["data"]
        for number, way in enumerate(ways)
    ]
    assert found == [found[0]] * 4
    assert found[0]["init_args"]["samples_per_class"] == 20


def test_parts_of_a_group_and_of_a_class_leave_the_rest(tmp_path):
    options = {"client": {"optimizer": {"lr": 0.25}}, "client.batch_size": 7, **SMALL}
    config = chosen(tmp_path, "quickstart", **options)
    assert config["client"]["batch_size"] == 7
    assert config["client"]["optimizer"]["init_args"]["lr"] == 0.25
    assert config["client"]["optimizer"]["class_path"] == "torch.optim.SGD"
    scopes = {"algorithm": {"aggregator": {"scope": "all"}}}, {"algorithm.aggregator.scope": "all"}
    for number, scope in enumerate(scopes):
        method = chosen(tmp_path / str(number), "quickstart", **SMALL | scope)["algorithm"]
        assert method["name"] == "cwfedavg"
        assert method["aggregator"]["init_args"]["scope"] == "all"


def test_a_run_needs_no_file(tmp_path):
    options = {
        "data": {"class_path": SyntheticImages, "image_size": 16, "samples_per_class": 20},
        "partition": {"class_path": IID, "num_clients": 3},
        "model": CNN4,
        "wdr_lambda": 1,
    }
    config = chosen(tmp_path, **options)
    assert config["algorithm"]["name"] == "cwfedavg"
    assert config["model"]["class_path"] == "cwfed.models.CNN4"


class OfThisFile:
    pass


MISTAKES = {
    "unknown": ({"roundz": 3}, "unknown key roundz; did you mean rounds"),
    "unknown in a group": (
        {"client": {"batch_sizes": 3}},
        "unknown key client.batch_sizes; did you mean client.batch_size",
    ),
    "unknown of a class": ({"data": {"class_path": "Digits", "size": 8}}, "unknown key size"),
    "arguments": (
        {"data": {"class_path": "Digits", "init_args": 3}},
        "init_args: expected a mapping of arguments, got '3'",
    ),
    "odd aggregator": ({"algorithm": {"name": "x", "aggregator": 5}}, "algorithm.aggregator: "),
    "odd number": ({"rounds": "010"}, "rounds: expected a decimal number, got 010"),
    "large number": ({"rounds": 10**30}, r"rounds: expected a number below 2\*\*63"),
    "many classes": (
        {"algorithm": {"name": "x", "aggregator": FedAvg, "objectives": [WDR] * 101}},
        "algorithm.objectives: expected at most 100 classes",
    ),
    "type": ({"rounds": "x"}, "rounds: expected int, got x"),
    "range": ({"client.batch_size": 0}, "client.batch_size: expected a number >= 1, got 0"),
    "nested": ({"client": {"batch_size": 0}}, "client.batch_size: expected a number >= 1, got 0"),
    "group": ({"client": 5}, "client: expected a mapping of options, got '5'"),
    "nan": ({"wdr_lambda": float("nan")}, "wdr_lambda: expected a number >= 0, got nan"),
    "help": ({"help": True}, "help: expected the name of an option"),
    "class help": ({"data.help": "Digits"}, r"data.help: expected the name of an option"),
    "print": ({"print_config": True}, "print_config: expected the name of an option"),
    "no name": ({"a b": 1}, "a b: expected the name of an option"),
    "nameless method": ({"algorithm": {"aggregator": FedAvg}}, "algorithm.name: expected"),
    "object": ({"algorithm": {"name": "x", "aggregator": FedAvg()}},
               "algorithm.aggregator: expected a number.*got FedAvg"),
    "local class": ({"model": type("Here", (), {"__qualname__": "f.<locals>.Here"})},
                    "model: expected a class that can be imported"),
    "wrong class": ({"model": OfThisFile}, "model"),
    "later": ({"head": "nowhere"}, "head: expected|head: .*nowhere"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_a_value_error_with_the_message_of_the_command_line(name, tmp_path):
    options, message = MISTAKES[name]
    before = list(sys.path)
    with pytest.raises(ValueError, match=message) as caught:
        cwfed.fit("quickstart", run_dir=tmp_path / "r", **SMALL | options)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "r").exists()
    assert sys.path == before
    with pytest.raises(ValueError, match="--resume: expected a run folder"):
        cwfed.resume(tmp_path)


def test_importing_the_package_loads_nothing_heavy():
    program = (
        "import sys, cwfed; heavy = {'torch', 'numpy', 'jsonargparse', 'matplotlib'}\n"
        "assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()\n"
        "assert {'fit', 'resume', 'Run', 'aggregate'} <= set(dir(cwfed))\n"
        "assert not hasattr(cwfed, 'nothing') and not hasattr(cwfed, 'CwFedAvg')\n"
        "assert cwfed.aggregators.CwFedAvg and cwfed.objectives.WDR\n"
        "assert not {'wandb', 'pandas', 'matplotlib'} & sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def uploads(seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = {"body.weight": (4, 3), "head.weight": (5, 4), "head.bias": (5,)}
    return {
        name: torch.randn(3, *shape, generator=generator, dtype=torch.float64)
        for name, shape in shapes.items()
    }


COUNTS = [[5, 0, 3, 0, 1], [0, 4, 4, 0, 0], [1, 1, 0, 9, 0]]


def test_aggregation_by_hand_equals_the_two_steps_of_the_paper():
    bank, counts = uploads(), torch.tensor(COUNTS)
    sent = cwfed.aggregate(CwFedAvg(distribution="true"), bank, COUNTS)
    p_MK = counts / counts.sum(1, keepdim=True)
    q_MK = counts / counts.sum(0)
    for name in ("head.weight", "head.bias"):
        classes = torch.einsum("ij,i...->j...", q_MK.double(), bank[name])
        expected = torch.einsum("ij,j...->i...", p_MK.double(), classes)
        torch.testing.assert_close(sent.models[name], expected, rtol=1e-6, atol=1e-7)
    average = torch.einsum("i,i...->...", counts.sum(1) / counts.sum(), bank["body.weight"].float())
    for row in sent.models["body.weight"].float():
        torch.testing.assert_close(row, average)


def test_aggregation_by_hand_with_a_part_of_the_clients():
    bank = uploads()
    sent = cwfed.aggregate(FedAvg(), bank, COUNTS, participants=[2, 0])
    assert sent.mixing["head.bias"][1].tolist() == [9 / 20, 0, 11 / 20]


def test_mistakes_by_hand_are_named():
    with pytest.raises(ValueError, match="uploads: expected floating-point tensors"):
        cwfed.aggregate(FedAvg(), uploads(), COUNTS[:2])
    with pytest.raises(ValueError, match="head: expected the name of an upload"):
        cwfed.aggregate(FedAvg(), uploads(), COUNTS, head="body.weight")
    with pytest.raises(ValueError, match="label_counts: expected numbers >= 0"):
        cwfed.aggregate(FedAvg(), uploads(), [[-1]])
    with pytest.raises(ValueError, match="participants: expected at least one id from 0 to 2"):
        cwfed.aggregate(FedAvg(), uploads(), COUNTS, participants=[3])
    with pytest.raises(ValueError, match=r"initialisation: expected 'head.weight'"):
        cwfed.aggregate(
            FedAvg(), uploads(), COUNTS, initialisation={"body.weight": torch.ones(4, 3)}
        )
    with pytest.raises(ValueError, match="aggregator: expected a method that starts from one"):
        cwfed.aggregate(IFCA(), uploads(), COUNTS)

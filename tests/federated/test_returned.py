"""What an aggregator returns is checked in the round in which it does: it has to be resumable."""

import pytest
import torch
from helpers import run, small_experiment

from cwfed.aggregators import FedAvg
from cwfed.aggregators.base import Broadcast
from cwfed.cli import main
from cwfed.federated.faults import RunStopped

SMALL = (
    *("--config", "quickstart", "--data", "SyntheticImages", "--data.image_size", "16"),
    *("--data.samples_per_class", "20", "--partition.num_clients", "4", "--rounds", "2"),
    *("--model.hidden_features", "8", "--wdr_lambda", "null"),
)


class Returning(FedAvg):
    """FedAvg whose state and broadcast are changed by a function, from some round on."""

    def __init__(self, change, start=None, rounds=1):
        super().__init__()
        self.change, self.start, self.rounds = change, start, rounds

    def init_state(self, server, initialisation):
        return {"a": torch.zeros(2), "b": torch.zeros(3)} if self.start is None else self.start

    def aggregate(self, round_, state, server):
        broadcast, state = super().aggregate(round_, state, server)
        self.rounds -= 1
        return self.change(broadcast, dict(state)) if self.rounds < 1 else (broadcast, state)


class Selecting(FedAvg):
    def select(self, received, uploads, participants, state, server, clients):
        return received, {"noted": torch.zeros(1)}


def models(change):
    return lambda b, s: (Broadcast(change(dict(b.models)), b.anchors, b.mixing), s)


def anchors(change):
    return lambda b, s: (Broadcast(b.models, change(dict(b.models)), b.mixing), s)


WRONG = {
    "a key more": (lambda b, s: (b, s | {"c": torch.zeros(1)}), r"the unknown c"),
    "a key less": (lambda b, s: (b, {"a": s["a"]}), r"without b"),
    "a shape": (lambda b, s: (b, s | {"a": torch.zeros(4)}), r"a \[4\] torch.float32 .* \[2\]"),
    "a dtype": (lambda b, s: (b, s | {"b": s["b"].double()}), r"b \[3\] torch.float64 .*32"),
    "a number": (lambda b, s: (b, s | {"b": 3.0}), r"b of type float"),
    "sparse": (lambda b, s: (b, s | {"a": s["a"].to_sparse()}), r"a in the layout torch.sparse"),
    "nothing": (lambda b, s: (b, None), r"NoneType"),
    "a model's tensor more": (models(lambda m: m | {"c": torch.zeros(5)}), r"the unknown c"),
    "a model's tensor less": (models(lambda m: {"out.weight": m["out.weight"]}), r"without conv"),
    "a model's shape": (
        models(lambda m: m | {"out.bias": m["out.bias"][0]}),
        r"out.bias \[4\] torch.float64 instead of \[5, 4\]",
    ),
    "a model's dtype": (models(lambda m: m | {"out.bias": m["out.bias"].float()}), r"out.bias"),
    "an anchor's name": (anchors(lambda m: m | {"c": torch.zeros(5)}), r"the unknown c"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_no_run_could_be_resumed_from_is_refused_at_once(case):
    change, said = WRONG[case]
    with pytest.raises(
        RunStopped, match=rf"^round 1: Returning\.aggregate: expected .*{said}"
    ) as e:
        run(small_experiment(Returning(change), []))
    assert "\n" not in str(e.value)
    if "state" in str(e.value):
        assert "init_state (a, b)" in str(e.value)


def test_later_rounds_are_checked_too():
    change, _ = WRONG["a key more"]
    with pytest.raises(RunStopped, match=r"^round 2: Returning\.aggregate: .*the unknown c"):
        run(small_experiment(Returning(change, rounds=2), []))


def test_what_select_returns_is_checked():
    with pytest.raises(RunStopped, match=r"^round 1: Selecting\.select: .*the unknown noted"):
        run(small_experiment(Selecting(), []))


@pytest.mark.parametrize(
    ("start", "said"), [({"a": 1}, "a of type int"), ([torch.zeros(1)], "list"), (7, "int")]
)
def test_a_first_state_that_no_checkpoint_holds_is_refused_before_the_run(start, said):
    prepared = small_experiment(Returning(lambda b, s: (b, s), start), []).prepare()
    with pytest.raises(ValueError, match=rf"aggregator: Returning\.init_state: expected .*{said}"):
        prepared.loop().initial_state(prepared.initialisation())


def test_a_state_that_keeps_its_kind_runs():
    change = lambda b, s: (b, {name: value + 1 for name, value in s.items()})  # noqa: E731
    state = run(small_experiment(Returning(change), []))
    assert state.server["a"].tolist() == [3, 3]


def test_the_command_says_it_in_one_line(tmp_path, monkeypatch, capsys):
    (tmp_path / "growing.py").write_text(
        "import torch\n"
        "from cwfed.aggregators import FedAvg\n"
        "class Growing(FedAvg):\n"
        "    def aggregate(self, round_, state, server):\n"
        "        broadcast, _ = super().aggregate(round_, state, server)\n"
        "        return broadcast, {**state, 'momentum': torch.ones(3)}\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    chosen = ["--algorithm", "fedavg", "--algorithm.aggregator", "growing.Growing"]
    assert main(["fit", *SMALL, *chosen, "--run_dir", "run"]) == 1
    error = capsys.readouterr().err
    assert "Traceback" not in error
    (line,) = (line for line in error.splitlines() if "Growing" in line)
    assert "momentum" in line
    assert len((tmp_path / "run" / "rounds.jsonl").read_text().splitlines()) == 1

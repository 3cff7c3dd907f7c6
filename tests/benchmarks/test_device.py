"""The command for a device that is lent, at toy size on whatever is there."""

import json
import math
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn

from benchmarks.device import command as device
from benchmarks.device import equality as device_equality
from benchmarks.device.equality import METHODS, Line, final_state, largest_difference, prepare
from benchmarks.device.limits import Cost, Peak, step_cost
from benchmarks.device.speed import Row, describe, markdown
from cwfed.engines import SequentialEngine
from cwfed.engines.vectorized.kernels import Stacked
from cwfed.models import CNN4
from cwfed.sweeps.deadline import Deadline, process_age

ROOT = Path(__file__).resolve().parents[2]


def python(*arguments, **options):
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "PATH": "", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        **options,
    )


def test_everything_at_toy_size(tmp_path):
    """A tolerance that nothing meets: what fails first keeps nothing that follows from running."""
    out, work = tmp_path / "out", tmp_path / "work"
    command = ["-m", "benchmarks.device", "--toy", "--budget", "4m", "-o", str(out)]
    command += ["--tolerance", "0", "--cells", "quickstart/cwfedavg", "--work", str(work)]
    done = python(*command, "--seed", "5")
    assert done.returncode == 1, done.stdout + done.stderr
    assert {path.name for path in out.iterdir()} == {
        *("equality.md", "speed.md", "speed.jsonl", "cells.md", "cells.tar.gz", "log.txt")
    }
    table = (out / "equality.md").read_text()
    assert table.count("| FAIL |") > 5
    for name in METHODS:
        assert table.count(f"| {name} |") == 2
    rows = [json.loads(line) for line in (out / "speed.jsonl").read_text().splitlines()]
    assert [row.get("how") for row in rows] == [
        *(None, "plain PyTorch loop", "unfold, contiguous", "streams, contiguous"),
        "sequential engine",
    ]
    assert len((out / "speed.md").read_text().splitlines()) == 4 + len(rows) - 1
    assert "| quickstart/cwfedavg | finished | 3 of 3 |" in (out / "cells.md").read_text()
    log = (out / "log.txt").read_text()
    for text in (table, (out / "speed.md").read_text(), "equality: exit code 1"):
        assert text in log
    assert log in done.stdout
    result = json.loads((work / "quickstart" / "cwfedavg" / "result.json").read_text())
    assert (result["seed"], result["num_clients"]) == (5, 4)


def test_equal_engines_pass_and_others_fail(tmp_path, monkeypatch):
    assert device_equality.main(["--toy", "-o", str(tmp_path)]) == 0
    assert "| FAIL |" not in (tmp_path / "equality.md").read_text()
    right = Stacked.__call__

    def wrong(self, *arguments):
        losses, gradients = right(self, *arguments)
        return losses, {name: 1.000001 * g for name, g in gradients.items()}

    monkeypatch.setattr(Stacked, "__call__", wrong)
    assert device_equality.main(["--toy", "-o", str(tmp_path)]) == 1
    table = (tmp_path / "equality.md").read_text()
    assert (table.count("| FAIL |"), table.count("| PASS |")) == (10, 0)

    def broken(self, *arguments):
        raise RuntimeError("no kernel\nimage is available")

    monkeypatch.setattr(Stacked, "__call__", broken)
    assert device_equality.main(["--toy", "-o", str(tmp_path)]) == 1
    text = "| RuntimeError: no kernel image is available | | | FAIL |"
    assert (tmp_path / "equality.md").read_text().count(text) == 10


def test_equality_without_time_says_what_is_left_out(tmp_path):
    assert device_equality.main(["--toy", "-o", str(tmp_path), "--seconds", "0.01"]) == 0
    assert (tmp_path / "equality.md").read_text().count("no time is left") == 10


def test_what_equality_compares_has_moved_and_is_finite():
    for name in METHODS:
        run = prepare(name, "64-true", "cpu", 2)
        sizes = {len(run.data.indices(i, "train")) for i in range(run.data.num_clients)}
        assert min(sizes) < run.data.batch_size < max(sizes)
        state, captured = final_state(run, SequentialEngine(run.workload(), "cpu", "64-true"))
        assert captured == 0
        for parameter in run.contract.parameters:
            assert state.uploads[parameter].isfinite().all()
        assert not torch.equal(state.uploads["conv.weight"], run.initialisation()["conv.weight"])
        assert largest_difference(state, state) == 0
        state.post_local["test"][0, 2] += 1e-3
        other, _ = final_state(run, SequentialEngine(run.workload(), "cpu", "64-true"))
        assert largest_difference(state, other) == pytest.approx(1e-3)
        state.uploads["conv.weight"][0] = math.nan
        assert largest_difference(state, other) == math.inf


def test_float32_is_shown_and_not_judged():
    line = Line("m", ("grouped", "contiguous"), True, "32-true", 3, 1.0)
    assert line.markdown(0.1).endswith("| captured | 3 graphs | 1.0e+00 | - |\n")


def test_the_cost_of_a_step_by_hand():
    """Two linear layers on a batch of 5; and the four-layer CNN's products."""
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2, bias=False))
    cost = step_cost(model, torch.randn(5, 4), torch.zeros(5, dtype=torch.int64))
    forward, inputs = 2 * 5 * (4 * 3 + 3 * 2), 2 * 5 * 3 * 2
    assert cost.flops == 2 * forward + inputs, "the first layer needs no gradient of its input"
    weights = 4 * (12 + 3 + 6)
    # Images, ReLU's output (the next layer's input), log-probabilities, targets, total weight.
    saved = 4 * 20 + 4 * 15 + 4 * 10 + 8 * 5 + 4
    assert cost.bytes == 6 * weights + 2 * saved
    cnn = step_cost(CNN4(4, 3, 16), torch.randn(10, 3, 16, 16), torch.zeros(10, dtype=torch.int64))
    first, second = 12 * 12 * 32 * 75, 2 * 2 * 64 * 800
    linear = 64 * 512 + 512 * 4
    assert cnn.flops == 2 * 10 * (2 * first + 3 * second + 3 * linear)


def test_rates_and_shares():
    plain = Row("plain PyTorch loop", 1, 0, 0.01)
    figures = describe(Row("x", 20, 3, 0.05), plain, Cost(1000, 50), Peak(4e6, 1e5))
    assert figures["client_steps_per_second"] == pytest.approx(400)
    assert figures["over_plain_loop"] == pytest.approx(4)
    assert figures["share_of_peak_flops"] == pytest.approx(0.1)
    assert figures["share_of_peak_bandwidth"] == pytest.approx(0.2)
    assert (
        markdown("s", "high", figures)
        == "| s | high | x | 20 | 3 | 50.000 | 400 | 4.00 x | 10.0% | 20.0% |\n"
    )
    assert "| n/a |" in markdown("s", "high", describe(plain, None, Cost(1, 1), Peak(1, 1)))


@pytest.fixture
def parts(tmp_path, monkeypatch):
    """Parts that end well, fail, or hang with a process of their own; and where they log."""
    modules = {
        "fine": "print('fine')",
        "fails": "raise SystemExit(3)",
        "hangs": (
            "import signal, subprocess, sys, time\n"
            "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
            "print('child', child.pid)\n"
            "time.sleep(60)"
        ),
    }
    for name, text in modules.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return lambda *names: [device.Part(name, 1, (name,)) for name in names]


def run_parts(parts, seconds, tmp_path):
    with (tmp_path / "log.txt").open("w") as file:
        code = device.run_parts(parts, Deadline(seconds), tmp_path, device.Log(file))
    return code, (tmp_path / "log.txt").read_text()


def test_a_part_that_fails_takes_no_other_down(parts, tmp_path):
    code, log = run_parts(parts("fails", "fine"), 60, tmp_path)
    assert code == 1
    assert "fails: exit code 3" in log
    assert "\nfine\n" in log
    assert run_parts(parts("fine"), 60, tmp_path)[0] == 0


def test_a_part_that_hangs_is_ended_with_its_processes(parts, tmp_path):
    start = time.monotonic()
    code, log = run_parts(parts("hangs", "fine"), 8, tmp_path)
    assert time.monotonic() - start < 8
    assert code == 1
    assert "hangs: stopped, its time is over" in log
    assert "\nfine\n" in log
    child = int(log.partition("child ")[2].split()[0])
    stat = Path(f"/proc/{child}/stat")
    assert not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


def test_no_part_is_begun_after_the_deadline(parts, tmp_path):
    code, log = run_parts(parts("fine"), 0.5, tmp_path)
    assert (code, log) == (0, "fine: no time is left\n")


@pytest.mark.parametrize(
    ("missing", "left"), [("jsonargparse", ["equality"]), ("torch", []), ("wandb", None)]
)
def test_what_is_missing_is_said(missing, left, tmp_path, monkeypatch):
    find = device.find_spec
    monkeypatch.setattr(device, "find_spec", lambda name: None if name == missing else find(name))
    with (tmp_path / "log.txt").open("w") as file:
        possible = device.check_packages(["equality", "cells"], device.Log(file))
    assert possible == (["equality", "cells"] if left is None else left)
    assert f"missing: {missing} (" in (tmp_path / "log.txt").read_text()
    assert (
        f"torch {torch.__version__.partition('+')[0]}" in (tmp_path / "log.txt").read_text()
        or missing == "torch"
    )


def test_a_part_left_out_is_no_success(tmp_path, monkeypatch):
    monkeypatch.setattr(device, "find_spec", lambda name: None)
    assert device.main(["-o", str(tmp_path / "out")]) == 1
    assert (
        "left out for what is missing: equality, speed, cells"
        in (tmp_path / "out" / "log.txt").read_text()
    )


def test_results_are_not_written_over(tmp_path, capsys):
    (tmp_path / "speed.md").touch()
    with pytest.raises(SystemExit):
        device.main(["-o", str(tmp_path)])
    assert "expected a new or empty folder" in capsys.readouterr().err


def test_times():
    assert Deadline(10, age=4).left() == pytest.approx(6, abs=0.5)
    program = "import time; time.sleep(1); from cwfed.sweeps.deadline import process_age as age"
    age = float(python("-c", f"{program}; print(age())").stdout)
    assert 1 <= age < 30
    assert process_age() >= 0


BLOCKED = """
import sys
from importlib.metadata import Distribution, PackageNotFoundError

BLOCKED = {"wandb", "matplotlib", "tensorboard", "jsonargparse"}

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(name)

def from_name(name, known=Distribution.from_name):
    if name in BLOCKED:
        raise PackageNotFoundError(name)
    return known(name)

sys.meta_path.insert(0, Finder())
Distribution.from_name = from_name

import benchmarks.device.command, benchmarks.device.cells, benchmarks.device.equality
import benchmarks.device.speed, cwfed.cli, cwfed.report.partition, cwfed.report.summary
from cwfed.aggregators import CwFedAvg
from cwfed.data.partitioners import IID
from cwfed.data.sources import SyntheticImages
from cwfed.federated import Algorithm, Experiment, TrainerOptions
from cwfed.models import CNN4
from cwfed.objectives import WDR

method = Algorithm("cwfedavg", CwFedAvg(), [WDR(1.0)])
options = TrainerOptions("cpu", engine="vectorized")
data = SyntheticImages(3, 12, 16)
run = Experiment(data, IID(2), CNN4, method, rounds=1, trainer=options).prepare()
loop = run.loop()
print(loop.run(loop.initial_state(run.initialisation())).round)
for name in BLOCKED:
    assert name not in sys.modules
"""


def test_runs_where_only_the_numbers_matter():
    done = python("-c", BLOCKED)
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr

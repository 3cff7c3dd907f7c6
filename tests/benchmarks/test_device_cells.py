"""Cells on a device against a deadline, with stand-ins for the runs."""

import sys
import tarfile
import time
from pathlib import Path

import pytest

from benchmarks.device import results as device_results
from benchmarks.device.cells import default_cells, run_cells
from benchmarks.device.fits import _ENDLESS, CannotMeasure, Fitting, calibrate
from benchmarks.device.results import Cell, publish
from benchmarks.device.schedule import Paces, Schedule
from cwfed.config.files import find_algorithm, find_config
from cwfed.processes.own_modules import SAFE_FLAGS
from cwfed.sweeps.deadline import Deadline

FAKE = str(Path(__file__).with_name("fake_fit.py"))


def fake(short=0.02, real=0.02, *habits):
    """Return what makes commands: short runs at one pace, real ones at another."""

    def command(name, folder, rounds, settled):
        pace = short if rounds == _ENDLESS else real
        return [sys.executable, FAKE, str(folder), str(rounds), str(pace), *habits]

    return command


def dies(words="no such data"):
    return [sys.executable, "-c", f"print({words!r}); raise SystemExit(3)"]


def schedule(tmp_path, command, seconds, names=("a/x", "a/y"), rounds=5):
    cells = [Cell(name, tmp_path / "work" / name) for name in names]
    out = tmp_path / "out"
    out.mkdir()
    return Schedule(cells, command, rounds, Deadline(seconds), out, grace=0.5, reserve=0.5)


def run(made, tmp_path, levels=(1,)):
    return run_cells(made, levels, tmp_path / "work")


def row(tmp_path, name):
    lines = (tmp_path / "out" / "cells.md").read_text().splitlines()
    (found,) = [line for line in lines if line.startswith(f"| {name} |")]
    return found


def archived(tmp_path):
    with tarfile.open(tmp_path / "out" / "cells.tar.gz") as archive:
        return {member.name: archive.extractfile(member).read() for member in archive}


def test_cells_run_to_their_end_and_leave_what_matters(tmp_path):
    made = schedule(tmp_path, fake(), 30)
    assert run(made, tmp_path) == 0
    for name in ("a/x", "a/y"):
        assert "| finished | 5 of 5 | 5.00 (5) | 5.00 | 5.00 (5) | 5.00 | 0.020 |" in row(
            tmp_path, name
        )
        assert archived(tmp_path)[f"{name}/rounds.jsonl"].count(b"\n") == 6
    assert {name.rpartition("/")[2] for name in archived(tmp_path)} == {
        *("config.yaml", "rounds.jsonl", "result.json")
    }
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["cells.md", "cells.tar.gz"]


def test_a_budget_too_small_for_a_cell_starts_none_and_says_so(tmp_path, capsys):
    made = schedule(tmp_path, fake(0.05), 8, rounds=1000)
    assert run(made, tmp_path) == 0
    assert "no cell is started: a/x: would take about 5" in capsys.readouterr().out
    for name in ("a/x", "a/y"):
        assert "not started: would take about 5" in row(tmp_path, name)
        assert "| 0 of 1000 | n/a |" in row(tmp_path, name)
    assert not (tmp_path / "work" / "a").exists()


def test_a_budget_too_small_for_a_measurement_starts_none_and_says_so(tmp_path, capsys):
    made = schedule(tmp_path, fake(60), 2)
    assert run(made, tmp_path) == 0
    assert "no cell is started: a/x: no round could be measured" in capsys.readouterr().out
    assert "no round was measured in the time" in (tmp_path / "out" / "cells.md").read_text()


@pytest.mark.parametrize("habits", [(), ("deaf",)])
def test_a_cell_cut_short_is_reported_and_the_deadline_is_kept(tmp_path, habits):
    start = time.monotonic()
    made = schedule(tmp_path, fake(0.02, 0.25, *habits), 4, rounds=20)
    assert run(made, tmp_path) == 0
    assert time.monotonic() - start < 4
    cell = made.cells[0]
    assert cell.fit.process.poll() == (-9 if habits else -15)
    reached = len(cell.lines()) - 1
    assert 2 <= reached < 16
    text = row(tmp_path, "a/x")
    assert f"unfinished: stopped for lack of time, figures so far | {reached} of 20" in text
    assert f"| {reached}.00 ({reached}) |" in text
    assert archived(tmp_path)["a/x/rounds.jsonl"].count(b"\n") == reached + 1
    assert "not started" in row(tmp_path, "a/y")


def test_the_next_cell_that_fits_is_taken(tmp_path):
    made = schedule(tmp_path, fake(), 20, ["a/x", "a/slow", "b/y"])
    made.paces.known["a", "slow"] = 1000.0
    assert run(made, tmp_path) == 0
    assert "| not started: would take about 52" in row(tmp_path, "a/slow")
    assert "| finished |" in row(tmp_path, "a/x")
    assert "| finished |" in row(tmp_path, "b/y")


def test_a_cell_that_fails_is_reported_and_the_others_go_on(tmp_path):
    def command(name, folder, rounds, settled):
        made = fake()(name, folder, rounds, settled)
        return dies() if name == "a/x" and rounds != _ENDLESS else made

    assert run(schedule(tmp_path, command, 30), tmp_path) == 1
    assert "| failed: exit code 3: no such data | 0 of 5 |" in row(tmp_path, "a/x")
    assert "| finished |" in row(tmp_path, "a/y")


def test_a_configuration_that_cannot_start_does_not_stop_the_next(tmp_path):
    def command(name, folder, rounds, settled):
        return dies() if name[0] == "a" else fake()(name, folder, rounds, settled)

    assert run(schedule(tmp_path, command, 30, ["a/x", "b/x", "a/y"]), tmp_path) == 1
    for name in ("a/x", "a/y"):
        assert "| failed: a short run failed: no such data |" in row(tmp_path, name)
    assert "| finished |" in row(tmp_path, "b/x")


def test_as_many_cells_at_once_as_finish_the_most_rounds(tmp_path):
    alone = calibrate(fake(0.05), "a/x", (1, 2, 4), tmp_path / "free", 30)
    assert alone.jobs == 4
    assert alone.rates == pytest.approx({1: 20, 2: 40, 4: 80})
    # Each of n takes n² as long, so that one alone is fastest; those paused do not count.
    crowded = calibrate(fake(0.03, 0, "crowded"), "a/x", (1, 2, 4), tmp_path / "crowded", 60)
    assert crowded.jobs == 1
    assert crowded.rates == pytest.approx({1: 1 / 0.03, 2: 1 / 0.06, 4: 1 / 0.12})
    assert crowded.seconds == pytest.approx(0.03)
    assert crowded.settled == {
        "--trainer.kernel": "unfold",
        "--trainer.memory_format": "contiguous",
    }


def test_one_at_once_where_no_more_can_start(tmp_path):
    def command(name, folder, rounds, settled):
        made = fake()(name, folder, rounds, settled)
        return made if folder.name == "0" else dies("out of memory")

    assert calibrate(command, "a/x", (1, 2, 4), tmp_path, 30).rates.keys() == {1}


def test_short_runs_are_gone_after_a_failure(tmp_path):
    started = []

    def command(name, folder, rounds, settled):
        started.append(folder)
        return fake(0.2)(name, folder, rounds, settled)

    with pytest.raises(CannotMeasure):
        calibrate(command, "a/x", (1,), tmp_path, 0.8)
    written = (tmp_path / "0" / "rounds.jsonl").read_text()
    time.sleep(0.6)
    assert (tmp_path / "0" / "rounds.jsonl").read_text() == written
    assert started == [tmp_path / "0"]


def test_two_at_once_take_less_time(tmp_path):
    made = schedule(tmp_path, fake(0.02, 0.4), 30)
    made.paces.known["a", "x"] = 0.02
    start = time.monotonic()
    made.run(2)
    assert time.monotonic() - start < 2 * 5 * 0.4 - 0.2
    assert [cell.state for cell in made.cells] == ["finished"] * 2


def test_settled_options_reach_later_cells_of_the_configuration(tmp_path):
    seen = {}

    def command(name, folder, rounds, settled):
        seen[name, rounds] = dict(settled)
        return fake()(name, folder, rounds, settled)

    run(schedule(tmp_path, command, 30, ["a/x", "b/x"]), tmp_path)
    assert seen["a/x", _ENDLESS] == {}
    assert seen["a/x", 5]["--trainer.kernel"] == "unfold"
    assert seen["b/x", 5] == {}


def test_paces_are_guessed_from_what_has_run():
    paces = Paces()
    assert paces.guess("a", "x") is None
    paces.known["a", "x"] = 2.0
    assert (paces.guess("a", "x"), paces.guess("a", "y"), paces.guess("b", "x")) == (2, 2, 2)
    paces.known |= {("a", "y"): 6.0, ("a", "z"): 2.0, ("b", "x"): 10.0}
    # On a, y takes three times what is usual there, and so it would on b.
    assert paces.guess("b", "y") == 30
    assert paces.guess("b", "w") == 10


def test_the_archive_stays_small_enough_to_be_carried(tmp_path, monkeypatch):
    cell = Cell("a/x", tmp_path / "a" / "x", "failed")
    cell.folder.mkdir(parents=True)
    (cell.folder / "partition.json").write_text(str(list(range(10000))))
    (cell.folder / "config.yaml").write_text("seed: 0")
    (tmp_path / "out").mkdir()
    publish([cell], 5, "", tmp_path / "out")
    assert set(archived(tmp_path)) == {"a/x/partition.json", "a/x/config.yaml"}
    monkeypatch.setattr(device_results, "MOST_BYTES", 2000)
    publish([cell], 5, "", tmp_path / "out")
    assert archived(tmp_path) == {"a/x/config.yaml": b"seed: 0"}


def test_the_default_cells_are_shipped_and_in_the_order_of_their_worth():
    cells = default_cells()
    assert len(set(cells)) == len(cells)
    assert cells[:4] == [f"cifar100_practical/{m}" for m in ("cwfedavg", "fedavg", "fedamp", "cfl")]
    assert cells[8] == "cifar100_practical/cwfedavg_all"
    for name in cells:
        config, _, method = name.rpartition("/")
        assert find_config(config).is_file()
        assert find_algorithm(method).is_file()


def test_the_command_of_a_cell(tmp_path):
    command = Fitting(tmp_path, ["--seed", "3"])(
        "c/m", tmp_path / "r", 7, {"--trainer.kernel": "k"}
    )
    begin = [*SAFE_FLAGS, "-m", "cwfed", "fit"]
    options = command[1 + len(begin) :]
    assert command[1:][: len(begin)] == begin
    given = dict(zip(options[::2], options[1::2], strict=True))
    assert given == {
        "--config": "c",
        "--algorithm": "m",
        "--rounds": "7",
        "--run_dir": str(tmp_path / "r"),
        "--checkpoint.every": str(_ENDLESS),
        "--checkpoint.keep": "1",
        "--data_dir": str(tmp_path),
        "--trainer.kernel": "k",
        "--seed": "3",
    }

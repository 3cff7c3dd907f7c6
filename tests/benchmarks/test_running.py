"""Running a table: done once, resumed, adopted, kept when failed, shared among runners."""

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from helpers import change_json

from benchmarks.__main__ import main
from cwfed.cli import main as cwfed
from cwfed.processes.children import explain
from cwfed.processes.lock import is_locked, try_lock, unlocked_afterwards
from cwfed.records.identity import config_hash
from cwfed.records.manifest import Manifest
from cwfed.records.round_lines import read_lines
from cwfed.records.run_files import load_result
from cwfed.sweeps.launch import devices
from cwfed.sweeps.ledger import read_ledger
from cwfed.sweeps.profiles import PROFILES

ROOT = Path(__file__).resolve().parents[2]
TABLE = {
    "title": "Small",
    "source": "nowhere",
    "columns": {"tiny": {"config": "quickstart", "options": {"partition.num_clients": 4}}},
    "rows": {"local": {"metric": "post_local"}, "fedavg": {"metric": "received"}},
    "paper": {"local": [50.0], "fedavg": [None]},
}
CRASHING = """
import os, signal
from cwfed.aggregators import FedAvg

class Crashing(FedAvg):
    def mixing(self, uploads, participants, state, server):
        os.kill(os.getpid(), signal.SIGKILL)
"""


def write_table(folder, **changes):
    path = folder / "small.yaml"
    path.write_text(yaml.safe_dump({**TABLE, **changes}, sort_keys=False))
    return path


def run(table, runs, *options):
    return main(["run", str(table), "--profile", "smoke", "--runs", str(runs), *options])


def cells(runs):
    return sorted(path.parent for path in (runs / "cells").glob("*/config.yaml"))


def starts(runs):
    """Return how often each job was started: a resumed run has no round 0."""
    logs = (runs / "cells").glob("*.log")
    return {path.stem: path.read_text().count("round 0/") for path in logs}


def snapshot(runs):
    return {path: path.stat().st_mtime_ns for path in runs.rglob("*.jsonl")}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    table = write_table(folder)
    assert run(table, folder / "runs") == 0
    return table, folder / "runs"


def test_each_cell_leaves_a_run_and_a_line(finished):
    _, runs = finished
    lines = read_ledger(runs / "ledger.jsonl")
    assert [(x["row"], x["column"], x["profile"], x["seed"], x["rounds"]) for x in lines] == [
        ("local", "tiny", "smoke", 0, 2),
        ("fedavg", "tiny", "smoke", 0, 2),
    ]
    for line, folder in zip(sorted(lines, key=lambda x: x["row"]), cells(runs), strict=True):
        result = json.loads((folder / "result.json").read_text())
        # The job's key, made before the run, is what the run calls its configuration.
        assert line["key"] == result["hashes"]["config"]
        assert line["key"][:12] in folder.name
        assert line["partition_hash"] == result["hashes"]["partition"]
        assert line["metrics"]["received"]["last"] == result["received"]["last"]
        rounds = read_lines(folder / "rounds.jsonl")
        curve = [round(r["received"]["accuracy"], 6) for r in rounds]
        assert line["curves"]["received"] == curve


@pytest.mark.parametrize("name", ["paper", "released"])
def test_both_readings_of_the_paper_run_on_tiny_data(name, tmp_path, monkeypatch):
    tiny = replace(PROFILES[name], generated=True, warm=True)
    monkeypatch.setitem(PROFILES, name, tiny)
    small = {"partition.num_clients": 5}
    columns = {
        "practical": {"config": "cifar10_practical", "generated": small},
        "pathological": {"config": "mnist_pathological", "generated": small},
    }
    rows = {"cwfedavg": {"metric": "received"}}
    table = write_table(tmp_path, columns=columns, rows=rows, paper={})
    runs = tmp_path / "runs"
    given = ["--profile", name, "--runs", str(runs)]
    assert main(["run", str(table), *given, "--rounds", "2", "--seeds", "0"]) == 0
    lines = {line["column"]: line for line in read_ledger(runs / "ledger.jsonl")}
    assert lines["practical"]["partition"]["partitioner"] == "ReleasedDirichlet"
    assert lines["pathological"]["partition"]["partitioner"] == "ReleasedPathological"
    for line in lines.values():
        assert set(line["config"]["released_code"].values()) == {name == "released"}
        aggregator = line["config"]["algorithm"]["aggregator"]["init_args"]
        assert aggregator["aggregate_buffers"] == (name == "paper")
    assert main(["report", str(table), *given, "-o", str(tmp_path)]) == 0
    assert (
        "Partition: ReleasedDirichlet, seed 1, order content" in (tmp_path / "small.md").read_text()
    )


def test_what_is_done_is_not_done_again(finished, capsys):
    table, runs = finished
    before = snapshot(runs)
    assert run(table, runs) == 0
    assert snapshot(runs) == before
    assert "2 done" in capsys.readouterr().err
    assert main(["status", str(table), "--profile", "smoke", "--runs", str(runs)]) == 0
    assert "2 done" in capsys.readouterr().out


def test_the_report_needs_no_run_folders(finished, tmp_path):
    table, runs = finished
    options = ["report", str(table), "--profile", "smoke", "--runs", str(tmp_path / "none")]
    ledger = runs / "ledger.jsonl"
    assert main([*options, "--ledger", str(ledger), "-o", str(tmp_path / "a")]) == 0
    options[-1] = str(runs)
    empty = tmp_path / "empty.jsonl"
    assert main([*options, "--ledger", str(empty), "-o", str(tmp_path / "b")]) == 0
    names = {path.name for path in (tmp_path / "a").iterdir()}
    assert names == {"small.md", "small.tex", "small.csv", "small-tiny-2r-generated.png"}
    for name in ("small.md", "small.csv"):
        text = (tmp_path / "a" / name).read_text()
        assert text == (tmp_path / "b" / name).read_text()
        assert "reproduced" not in text
    assert "2 of 1,000 rounds, generated data" in (tmp_path / "a" / "small.md").read_text()


def test_the_report_passes_over_damaged_runs_and_names_them(finished, tmp_path, capsys):
    table, done = finished
    runs = tmp_path / "runs"
    shutil.copytree(done / "cells", runs / "cells")
    first, second = cells(runs)
    for folder, name, old in ((first, "rounds.jsonl", "0."), (second, "result.json", "0.")):
        text = (folder / name).read_text()
        (folder / name).write_text(text.replace(old, "1.", 1))
    again = runs / "again"
    shutil.copytree(next(p for p in cells(done) if p.name == first.name), again)
    options = ["report", str(table), "--profile", "smoke", "--runs", str(runs)]
    capsys.readouterr()
    ledger = ["--ledger", str(tmp_path / "none.jsonl")]
    assert main([*options, *ledger, "-o", str(tmp_path / "a")]) == 0
    said = capsys.readouterr().err
    assert f"left out, since it is damaged: {second / 'result.json'}: expected the result" in said
    shutil.rmtree(again)
    assert main([*options, *ledger, "-o", str(tmp_path / "b")]) == 0
    said = capsys.readouterr().err
    assert f"left out, since it is damaged: {first / 'rounds.jsonl'}: line 1, round 0:" in said


def test_norms_are_drawn_from_run_folders_and_missed_where_there_are_none(finished, tmp_path):
    _, runs = finished
    table = write_table(tmp_path, heatmaps=["local", "fedavg"])
    norms = "small-tiny-2r-generated-norms.png"
    options = ["report", str(table), "--profile", "smoke", "--ledger", str(runs / "ledger.jsonl")]
    copies = tmp_path / "copies"
    shutil.copytree(runs, copies / "1", ignore=shutil.ignore_patterns("snapshots"))
    shutil.copytree(runs, copies / "2")
    assert main([*options, "--runs", str(copies), "-o", str(tmp_path / "a")]) == 0
    assert (tmp_path / "a" / norms).read_bytes().startswith(b"\x89PNG")
    assert f"({norms})" in (tmp_path / "a" / "small.md").read_text()
    # The ledger alone has no norms: said, not passed over.
    assert main([*options, "--runs", str(tmp_path / "none"), "-o", str(tmp_path / "b")]) == 0
    text = (tmp_path / "b" / "small.md").read_text()
    assert norms not in text
    assert "are not drawn; local, fedavg: no run folder with snapshots" in text


def test_verification_reruns_and_catches_a_changed_number(finished, tmp_path, capsys):
    table, runs = finished
    ledger = tmp_path / "ledger.jsonl"
    lines = read_ledger(runs / "ledger.jsonl")
    ledger.write_text("".join(json.dumps(line) + "\n" for line in lines))
    target = next(line for line in lines if line["row"] == "fedavg")
    options = ["verify", f"{table}/fedavg/tiny", "--ledger", str(ledger), "--rounds", "1"]
    assert main(options) == 0
    assert "1 of 2 rounds match" in capsys.readouterr().out
    target["curves"]["received"][1] += 0.004
    target["metrics"]["received"]["best"]["accuracy"] = max(target["curves"]["received"][1:])
    ledger.write_text("".join(json.dumps(line) + "\n" for line in lines))
    options[1] = target["key"]
    assert main(options) == 1
    assert "received, round 1: expected" in capsys.readouterr().out


def test_an_interrupted_run_goes_on_where_it_was(finished, tmp_path, capsys):
    table, done = finished
    runs = tmp_path / "runs"
    config = next((done / "cells").glob("*fedavg*.yaml"))
    folder = runs / "cells" / config.stem
    # A copy, since this process holds the lock of what it has written.
    assert cwfed(["fit", "--config", str(config), "--run_dir", str(tmp_path / "fit")]) == 0
    shutil.copytree(tmp_path / "fit", folder)
    # What a kill after the last round leaves: a checkpoint and no result.
    (folder / "result.json").unlink()
    before = (folder / "rounds.jsonl").read_text()
    options = [str(table), "--profile", "smoke", "--runs", str(runs), "--only", "fedavg"]
    capsys.readouterr()
    assert main(["status", *options]) == 0
    assert "after round 2 of 2" in capsys.readouterr().out
    assert main(["run", *options]) == 0
    assert (folder / "rounds.jsonl").read_text() == before
    (line,) = read_ledger(runs / "ledger.jsonl")
    assert line["curves"] == read_ledger(done / "ledger.jsonl")[1]["curves"]
    # Nobody continues a finished run on generated data.
    assert not (folder / "checkpoints").exists()


def rename_as_version_0_1(runs):
    """Give jobs the names and results the hashes that version 0.1 gave them."""
    for folder in cells(runs):
        config = yaml.safe_load((folder / "config.yaml").read_text())
        old, new = config_hash(config, 1), config_hash(config)
        result = folder / "result.json"
        if result.exists():
            hashes = json.loads(result.read_text())["hashes"] | {"config": old}
            change_json(result, hashes=hashes)
        for path in [*folder.parent.glob(f"*{new[:12]}*")]:
            path.rename(path.with_name(path.name.replace(new[:12], old[:12])))


def test_runs_of_an_earlier_version_are_found_under_their_names(finished, tmp_path, capsys):
    table, before = finished
    runs = tmp_path / "runs"
    shutil.copytree(before, runs)
    (runs / "ledger.jsonl").unlink()
    rename_as_version_0_1(runs)
    names = [folder.name for folder in cells(runs)]
    assert not {folder.name for folder in cells(before)} & set(names)
    assert run(table, runs) == 0
    assert "2 done" in capsys.readouterr().err
    assert [folder.name for folder in cells(runs)] == names
    keys = {line["key"] for line in read_ledger(runs / "ledger.jsonl")}
    assert keys == {line["key"] for line in read_ledger(before / "ledger.jsonl")}


def test_an_interrupted_run_of_an_earlier_version_goes_on(finished, tmp_path, capsys):
    table, done = finished
    runs = tmp_path / "runs"
    config = next((done / "cells").glob("*fedavg*.yaml"))
    folder = runs / "cells" / config.stem
    assert cwfed(["fit", "--config", str(config), "--run_dir", str(tmp_path / "fit")]) == 0
    shutil.copytree(tmp_path / "fit", folder)
    (folder / "result.json").unlink()
    rename_as_version_0_1(runs)
    (folder,) = cells(runs)
    assert folder.name != config.stem
    before = (folder / "rounds.jsonl").read_text()
    options = [str(table), "--profile", "smoke", "--runs", str(runs), "--only", "fedavg"]
    assert main(["status", *options]) == 0
    assert "after round 2 of 2" in capsys.readouterr().out
    assert main(["run", *options]) == 0
    assert cells(runs) == [folder]
    assert (folder / "rounds.jsonl").read_text() == before
    (line,) = read_ledger(runs / "ledger.jsonl")
    assert line["key"] == read_ledger(done / "ledger.jsonl")[1]["key"]


def test_runs_made_by_hand_are_adopted_if_they_are_the_same(finished, tmp_path):
    table, done = finished
    runs = tmp_path / "runs"
    config = next((done / "cells").glob("*fedavg*.yaml"))
    hand = runs / "by" / "hand"
    assert cwfed(["fit", "--config", str(config), "--run_dir", str(hand)]) == 0
    assert run(table, runs, "--only", "fedavg") == 0
    assert not cells(runs)
    (line,) = read_ledger(runs / "ledger.jsonl")
    assert line["hardware"]["cpu"] is None
    # The same configuration on another partition is another run.
    hashes = load_result(hand / "result.json")["hashes"]
    change_json(hand / "result.json", hashes=hashes | {"partition": "0" * 64})
    assert run(table, runs, "--only", "fedavg") == 0
    assert len(cells(runs)) == 1


def test_a_crash_costs_one_job_and_is_kept(tmp_path, monkeypatch, capsys):
    (tmp_path / "crashing_method.py").write_text(CRASHING)
    aggregator = {"class_path": "crashing_method.Crashing"}
    algorithm = {"name": "crash", "aggregator": aggregator, "objectives": []}
    (tmp_path / "crash.yaml").write_text(yaml.safe_dump({"algorithm": algorithm}))
    monkeypatch.syspath_prepend(str(tmp_path))
    rows = {
        "crash": {"metric": "received", "algorithm": str(tmp_path / "crash.yaml")},
        "fedavg": {"metric": "received"},
    }
    table, runs = write_table(tmp_path, rows=rows, paper={}), tmp_path / "runs"
    assert run(table, runs) == 1
    assert "1 failed, 1 done" in capsys.readouterr().err
    (path,) = (runs / "cells").glob("*.failed.json")
    failure = json.loads(path.read_text())
    assert failure["reason"] == "killed by SIGKILL: out of memory?"
    assert failure["job"] == "small/crash/tiny seed 0"
    assert [line["row"] for line in read_ledger(runs / "ledger.jsonl")] == ["fedavg"]
    (log,) = (runs / "cells").glob("*-crash-*.log")
    size = log.stat().st_size
    assert run(table, runs) == 1
    assert log.stat().st_size == size
    assert run(table, runs, "--retry") == 1
    assert log.stat().st_size > size


def test_runners_share_a_folder(tmp_path, capsys):
    rows = {name: {"metric": "both"} for name in ("local", "fedavg", "fedprox", "cwfedavg")}
    table, runs = write_table(tmp_path, rows=rows, paper={}), tmp_path / "runs"
    command = [sys.executable, "-m", "benchmarks", "run", str(table), "--profile", "smoke"]
    command += ["--runs", str(runs)]
    # One has the first shard, the other everything: they race for the first shard's jobs.
    processes = [
        subprocess.Popen([*command, *more], cwd=ROOT, stderr=subprocess.PIPE, text=True)
        for more in (["--shard", "1/2"], [])
    ]
    said = [process.communicate(timeout=240)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    assert list(starts(runs).values()) == [1] * 4
    lines = read_ledger(runs / "ledger.jsonl")
    assert sorted(line["row"] for line in lines) == sorted(rows)
    assert run(table, runs, "--shard", "2/2") == 0
    said.append(capsys.readouterr().err)
    shards = [{row for row in rows if f"/{row}/" in said[number]} for number in (0, 2)]
    assert shards[0] | shards[1] == set(rows)
    assert not shards[0] & shards[1]


def test_a_job_that_another_process_is_on_is_passed_over(finished, tmp_path, capsys):
    table, done = finished
    runs = tmp_path / "runs"
    shutil.copytree(done, runs)
    for result in runs.rglob("result.json"):
        result.unlink()
    first, second = cells(runs)
    held = try_lock(first.with_name(f"{first.name}.lock"))
    assert held is not None
    # The lock that ``cwfed fit``, started by hand, holds on the folder itself.
    descriptor = os.open(second, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    assert run(table, runs) == 0
    assert "2 running" in capsys.readouterr().err
    os.close(descriptor)
    held.release()
    assert run(table, runs) == 0
    assert "2 done" in capsys.readouterr().err


def test_ctrl_c_stops_the_runner_and_its_job(finished, tmp_path):
    table, _ = finished
    runs = tmp_path / "runs"
    command = [sys.executable, "-m", "benchmarks", "run", str(table), "--profile", "smoke"]
    command += ["--runs", str(runs), "--rounds", "5000", "--only", "fedavg"]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not any(len(p.read_text().splitlines()) > 1 for p in runs.rglob("rounds.jsonl")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    (folder,) = cells(runs)
    assert is_locked(folder)
    process.send_signal(signal.SIGINT)
    assert "the same command continues" in process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert not is_locked(folder)
    assert not list((runs / "cells").glob("*.failed.json"))


def test_a_budget_stops_and_a_skipped_cell_says_why(finished, tmp_path, capsys):
    table, _ = finished
    assert run(table, tmp_path / "runs", "--budget", "0s") == 0
    assert "2 stopped" in capsys.readouterr().err
    rows = {"cfl": {"metric": "received"}}
    other = write_table(tmp_path, rows=rows, paper={})
    assert run(other, tmp_path / "runs") == 0
    assert "CFL splits no cluster in its first 20 rounds" in capsys.readouterr().err


def test_a_claim_is_held_once(tmp_path):
    held = try_lock(tmp_path / "lock")
    assert held is not None
    assert try_lock(tmp_path / "lock") is None
    held.release()
    again = try_lock(tmp_path / "lock")
    assert again is not None
    again.release()


def test_each_process_gets_a_gpu():
    assert devices({}, 3) == ["0", "1", "2"]
    assert devices({"CUDA_VISIBLE_DEVICES": "2, GPU-7"}, 2) == ["2", "GPU-7"]
    assert devices({"CUDA_VISIBLE_DEVICES": ""}, 0) == []
    assert explain(3) == "exit code 3"
    assert explain(-signal.SIGSEGV) == "killed by SIGSEGV"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "table9"], "table: expected one of .*; got 'table9'"),
        (
            ["run", "--profile", "gpu"],
            "--profile: expected one of paper, released, cpu, smoke; got 'gpu'",
        ),
        (["run", "table3_ablation", "--only", "fedagv"], "--only: method: .*did you mean fedavg"),
        (["run", "table3_ablation", "--only", "/mnist"], "--only: column: expected one of cifar"),
        (["run", "--shard", "3/2"], "--shard: expected i/n .* got '3/2'"),
        (["run", "--budget", "soon"], "--budget: expected a duration .* got 'soon'"),
        (["run", "--jobs", "0"], "--jobs: expected an integer >= 1, got '0'"),
        (["list", "no.yaml"], "table: expected the path of an existing YAML file, got 'no.yaml'"),
        (["run", "table3_ablation", "--only", ""], "--only: expected METHOD/COLUMN.* got ''"),
        (["run", "table3_ablation", "--only", "cifar100"], "the column 'cifar100'; write /cifar"),
        (["run", "table3_ablation", "--runs", os.devnull], "--runs: expected a folder, got /dev/"),
        (
            ["run", "table3_ablation", "--runs", "/proc/none"],
            "--runs: expected a folder that can be written, got /proc/none: ",
        ),
        (["verify", "a", "--ledger", "no.jsonl"], "--ledger: expected an existing file, got no"),
        (["verify", "a", "--tolerance", "nan"], "--tolerance: expected a finite number >= 0"),
        (
            ["report", "table3_ablation", "--runs", "no", "--ledger", "no.jsonl", "-o", "x"],
            "--runs, --ledger: expected at least one that exists, got .*no and no.jsonl",
        ),
        (["dance"], "invalid choice: 'dance'"),
    ],
)
def test_a_mistake_is_one_line_and_code_2(arguments, said, capsys):
    assert main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(said, line)


def test_a_damaged_ledger_is_named(tmp_path, capsys):
    (tmp_path / "ledger.jsonl").write_text("{}\n")
    arguments = ["report", "table3_ablation", "--ledger", str(tmp_path / "ledger.jsonl")]
    assert main([*arguments, "--runs", str(tmp_path), "-o", str(tmp_path / "out")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "ledger.jsonl: line 1: key: expected a text, got None" in line


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("-o", "--output: expected a folder, got {0}, where {0} is a file"),
        ("--ledger", "--ledger: expected a file, got the folder {0}"),
    ],
)
def test_what_cannot_be_written_is_said_before_anything_runs(option, said, tmp_path, capsys):
    place = tmp_path / "place"
    command = ["run", "table3_ablation", "--runs", str(tmp_path / "runs")]
    if option == "-o":
        place.write_text("")
        command[0] = "report"
        command += ["--ledger", str(place)]
    else:
        place.mkdir()
    assert main([*command, option, str(place)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said.format(place) in line
    assert not (tmp_path / "runs" / "cells").exists()


def test_a_ledger_that_fails_costs_no_job(finished, tmp_path, monkeypatch, capsys):
    table, runs = finished
    ledger = tmp_path / "ledger.jsonl"

    def refuse(path, line):
        raise OSError(28, "No space left on device", str(path))

    with monkeypatch.context() as patched:
        patched.setattr("cwfed.sweeps.runner.append", refuse)
        assert run(table, runs, "--ledger", str(ledger)) == 1
    assert "failed: finished, but not in the ledger: [Errno 28]" in capsys.readouterr().err
    before = starts(runs)
    assert run(table, runs, "--ledger", str(ledger)) == 0
    assert len(read_ledger(ledger)) == 2
    assert starts(runs) == before


def test_a_line_of_a_saved_partition_is_verified_with_its_file(finished, tmp_path, capsys):
    _, runs = finished
    saved = cells(runs)[0] / "partition.json"
    options = {"partition": "FromManifest", "partition.path": str(saved)}
    columns = {"given": {"config": "quickstart", "generated": options}}
    rows = {"fedavg": {"metric": "received"}}
    table = write_table(tmp_path, columns=columns, rows=rows, paper={})
    assert run(table, tmp_path / "runs") == 0
    ledger = tmp_path / "runs" / "ledger.jsonl"
    (line,) = read_ledger(ledger)
    assert line["partition_hash"] == json.loads(saved.read_text())["hash"]
    command = ["verify", line["key"], "--ledger", str(ledger), "--rounds", "1"]
    capsys.readouterr()
    assert main(command) == 2
    assert "--partition.path: expected the path that " in capsys.readouterr().err
    assert main([*command, "--partition.path", str(saved)]) == 0
    assert "1 of 2 rounds match" in capsys.readouterr().out
    swapped = tmp_path / "swapped.json"
    manifest = Manifest.load(saved)
    replace(manifest, clients=manifest.clients[::-1]).save(swapped)
    assert main([*command, "--partition.path", str(swapped)]) == 1
    assert f"partition: expected {line['partition_hash'][:12]}, got" in capsys.readouterr().out


def test_a_run_made_longer_by_hand_is_not_taken_for_the_shorter_one(finished, tmp_path, capsys):
    table, given = finished
    runs = tmp_path / "runs"
    shutil.copytree(given, runs)
    longer = cells(runs)[0]
    shutil.rmtree(longer)
    config = longer.with_name(f"{longer.name}.yaml")
    for arguments in (
        ["--config", config, "--run_dir", longer],
        ["--resume", longer, "--rounds", 3],
    ):
        with unlocked_afterwards():
            assert cwfed(["fit", *map(str, arguments)]) == 0
    capsys.readouterr()
    assert run(table, runs) == 1
    said = capsys.readouterr().err
    assert f"{longer}: expected the run {longer.name[-12:]}, got " in said
    assert said.count("failed:") == 1
    # Elsewhere, it is the run of the job that wants so many rounds.
    longer.rename(runs / "by_hand")
    assert run(table, runs, "--rounds", "3", "--only", read_row(runs / "by_hand")) == 0
    assert [x["rounds"] for x in read_ledger(runs / "ledger.jsonl")] == [2, 2, 3]


def read_row(folder):
    return yaml.safe_load((folder / "config.yaml").read_text())["algorithm"]["name"]


def test_a_run_of_another_manifest_is_not_taken_for_the_tables_own(finished, tmp_path, capsys):
    _, runs = finished
    saved = tmp_path / "given.json"
    shutil.copy(cells(runs)[0] / "partition.json", saved)
    columns = {
        "given": {
            "config": "quickstart",
            "generated": {"partition": "FromManifest", "partition.path": str(saved)},
        }
    }
    rows = {"fedavg": {"metric": "received"}}
    table = write_table(tmp_path, columns=columns, rows=rows, paper={})
    assert run(table, tmp_path / "runs") == 0
    manifest = Manifest.load(saved)
    replace(manifest, clients=manifest.clients[::-1]).save(saved)
    capsys.readouterr()
    assert run(table, tmp_path / "runs") == 1
    said = capsys.readouterr().err
    assert f"expected a run of the partition {Manifest.load(saved).hash[:12]}" in said
    assert f"got one of {manifest.hash[:12]}; give this table --runs" in said
    assert main(["status", str(table), "--profile", "smoke", "--runs", str(tmp_path / "runs")]) == 0
    assert "failed       small/fedavg/given seed 0: " in (said := capsys.readouterr().out)
    assert "expected a run of the partition" in said
    # Its own folder, yet the ledger of the other.
    options = ["--ledger", str(tmp_path / "runs" / "ledger.jsonl")]
    assert run(table, tmp_path / "more", *options) == 1
    assert "on the partition" in capsys.readouterr().err
    assert run(table, tmp_path / "more") == 0


def test_the_list_names_every_table_and_profile(capsys):
    assert main(["list"]) == 0
    shown = capsys.readouterr().out
    for name in ("table1_pathological", "study_digits", "paper", "cpu", "smoke", "cifar100"):
        assert name in shown


def test_a_table_of_ones_own_is_listed(tmp_path, capsys):
    assert main(["list", str(write_table(tmp_path))]) == 0
    shown = capsys.readouterr().out
    assert "Small (2 methods x 1 columns)" in shown
    assert "table1_pathological" not in shown

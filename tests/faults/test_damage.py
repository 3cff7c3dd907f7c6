"""Run folders that a disk or a person has damaged, resumed."""

import json
import shutil
import sys

import pytest
from fuzz.recipes import apply

from benchmarks.faults.check import differences
from benchmarks.faults.trial import Trial, forked
from cwfed.aggregators import CwFedAvg
from cwfed.federated.loop import FederatedLoop
from cwfed.records.checksums import opened
from cwfed.records.run import Run
from cwfed.runs.folder_writer import FolderWriter

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks itself")


@pytest.fixture(scope="module")
def trial(tmp_path_factory):
    options = ["--trainer.engine", "sequential", "--rounds", "3"]
    return Trial(tmp_path_factory.mktemp("damage"), options)


def resume(trial, code=0):
    outcome = forked(["fit", "--resume", str(trial.folder)], trial.log)
    assert outcome.code == code, outcome.text
    assert "Traceback" not in outcome.text
    if code == 0:
        assert not differences(trial.reference, trial.folder)
    return outcome.text


@pytest.fixture
def lines(trial):
    """The lines of a run that has lost its result, in a folder of its own."""
    shutil.copytree(trial.reference, trial.folder)
    (trial.folder / "result.json").unlink()
    return (trial.folder / "rounds.jsonl").read_text().splitlines(keepends=True)


def write(trial, lines):
    (trial.folder / "rounds.jsonl").write_bytes("".join(lines).encode())


@pytest.mark.parametrize(
    ("damage", "after"),
    [
        (lambda lines: [*lines[:3], lines[3][:40]], 2),
        (lambda lines: lines[:3], 2),
        (lambda lines: [*lines[:3], '{"round": 3}\n'], 2),
        (lambda lines: [*lines[:3], "\0" * 40 + "\n"], 2),
        (lambda lines: [line.replace("\n", "\r\n") for line in lines], 3),
        (lambda lines: [*lines, lines[3]], 3),
        (lambda lines: [*lines[:-1], lines[-1].rstrip("\n")], 3),
        (lambda lines: [*lines[:3], lines[3].replace('"accuracy": 0', '"accuracy": 4')], 2),
        (lambda lines: [*lines[:3], lines[3].replace('"up": [', '"up": [1')], 2),
    ],
    ids=["half", "missing", "fields", "zeros", "crlf", "twice", "no end", "accuracy", "bytes"],
)
def test_the_last_lines_may_be_damaged(trial, lines, damage, after):
    write(trial, damage(lines))
    assert f"continuing after round {after}" in resume(trial)


def test_a_damaged_line_before_all_checkpoints_is_named_and_nothing_is_lost(trial, lines):
    write(trial, [lines[0], "noise\n", *lines[2:]])
    before = (trial.folder / "rounds.jsonl").read_bytes()
    said = resume(trial, code=2)
    assert "rounds.jsonl: expected round 1 in line 2, got 'noise'" in said
    assert "round_000003.pt is of a round that is not recorded" in said
    assert (trial.folder / "rounds.jsonl").read_bytes() == before
    assert len(list((trial.folder / "checkpoints").iterdir())) == 4


def test_a_result_without_all_rounds_does_not_count(trial, lines):
    shutil.copy(trial.reference / "result.json", trial.folder)
    write(trial, lines[:3])
    assert "finished already" not in resume(trial)


def test_a_damaged_checkpoint_gives_way_to_the_one_before(trial, lines):
    path = trial.folder / "checkpoints" / "round_000003.pt"
    path.write_bytes(path.read_bytes()[:-1])
    said = resume(trial)
    assert "round_000003.pt is damaged (its checksum does not fit)" in said
    assert "continuing after round 2" in said


def test_what_a_kill_left_unfinished_is_removed(trial, lines):
    for name in (".config.yaml.12.tmp", "checkpoints/.round_000001.pt.34.tmp"):
        (trial.folder / name).write_bytes(b"half")
    (trial.folder / "labels.json").unlink()
    resume(trial)
    assert not list(trial.folder.rglob(".*"))
    assert json.loads((trial.folder / "labels.json").read_text())["classes"]


@pytest.mark.parametrize("ended", [True, False])
def test_lines_of_earlier_versions_are_gone_on_from(trial, lines, ended):
    if ended:
        shutil.copy(trial.reference / "result.json", trial.folder)
    older = [opened(json.loads(line)) for line in lines]
    write(trial, [json.dumps(line) + "\n" for line in older])
    assert ("finished already" in resume(trial)) is ended
    kept = json.loads((trial.folder / "rounds.jsonl").read_text().splitlines()[0])
    assert ("checksum" in kept) is not ended


def test_an_older_line_that_makes_no_sense_sends_the_run_back(trial, lines):
    older = [opened(json.loads(line)) for line in lines]
    older[3]["received"]["accuracy"] = 4.71
    write(trial, [json.dumps(line) + "\n" for line in older])
    said = resume(trial)
    assert "rounds.jsonl: line 4, round 3: received.accuracy: expected a number from 0 to 1" in said
    assert "continuing after round 2" in said


@pytest.mark.parametrize("name", ["clients.csv", "result.json"])
def test_what_follows_from_the_rounds_is_made_again(trial, lines, name):
    shutil.copy(trial.reference / "result.json", trial.folder)
    text = (trial.folder / name).read_text()
    (trial.folder / name).write_text(text.replace("0.", "0.1", 1))
    with pytest.raises(ValueError, match=f"{trial.folder / name}: expected"):
        Run.load(trial.folder).clients.to_dict()
    assert "finished already" not in resume(trial)


@pytest.mark.parametrize("damage", ["emptied", "cut", "longer", "another of that size"])
def test_rounds_that_change_under_a_run_end_it_at_once(trial, damage, monkeypatch):
    path, finish = trial.folder / "rounds.jsonl", FederatedLoop.report

    def report(loop, state, *others):
        if state.round == 2:
            text = path.read_text()
            changed = {
                "emptied": "",
                "cut": text[:-5],
                "longer": text + "x",
                "another of that size": text.replace('"mean_R": 0', '"mean_R": 1', 1),
            }
            path.write_text(changed[damage])
        finish(loop, state, *others)

    monkeypatch.setattr(FederatedLoop, "report", report)
    outcome = forked(trial.fit, trial.log)
    assert outcome.code == 1
    assert "Traceback" not in outcome.text
    (said,) = [line for line in outcome.text.splitlines() if "something else has written" in line]
    assert said.startswith(f"{path}: ")
    # What is only seen by reading all lines is seen at the end.
    assert ("round 3/3" in outcome.text) is (damage == "another of that size")


@pytest.mark.parametrize("damage", ["gone", "emptied", "shorter", "folder gone"])
def test_rounds_that_change_before_the_result_end_the_run(trial, damage, monkeypatch):
    path, finish = trial.folder / "rounds.jsonl", FolderWriter.on_end

    def on_end(writer, state):
        whole = path.read_text().splitlines(keepends=True)
        path.write_text({"shorter": "".join(whole[:-1])}.get(damage, ""))
        if damage == "gone":
            path.unlink()
        if damage == "folder gone":
            shutil.rmtree(trial.folder)
        finish(writer, state)

    monkeypatch.setattr(FolderWriter, "on_end", on_end)
    outcome = forked(trial.fit, trial.log)
    assert outcome.code == 1
    assert "Traceback" not in outcome.text
    assert f"{path}: expected 3 rounds and the start, got" in outcome.text
    if damage == "shorter":
        monkeypatch.undo()
        resume(trial)


def test_a_checkpoint_of_tensors_that_no_run_writes_is_refused_at_once(trial, lines):
    write(trial, lines[:3])
    for path in (trial.folder / "checkpoints").glob("*3.*"):
        path.unlink()
    apply(
        {"changes": [{"file": "checkpoint", "tensor": ["received", 0], "as": "sparse"}]},
        trial.folder,
    )
    (said,) = resume(trial, code=2).strip().splitlines()
    assert "round_000002.pt: expected a state of this version and run, got received with" in said
    assert said.endswith("as a tensor of layout torch.sparse_coo")


def test_older_label_counts_are_compared_with_the_data(trial, lines):
    path = trial.folder / "labels.json"
    content = opened(json.loads(path.read_text()))
    content["counts"]["train"][0][0] += 1
    path.write_text(json.dumps(content))
    assert f"{path}: expected the label counts of the data" in resume(trial)


def test_figures_that_no_line_can_hold_end_the_run_in_their_round(trial, monkeypatch):
    monkeypatch.setattr(CwFedAvg, "figures", lambda self, state: {"spread": [1.0]}, raising=False)
    monkeypatch.setattr("cwfed.federated.record.finite", lambda value: value)
    outcome = forked(trial.fit, trial.log)
    assert outcome.code == 1
    assert "round 0: method.spread: expected a number, got [1.0]" in outcome.text
    assert "Traceback" not in outcome.text

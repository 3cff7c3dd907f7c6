"""Run folders that a disk or a person has damaged, resumed."""

import json
import shutil
import sys

import pytest

from benchmarks.faults_check import differences
from benchmarks.faults_trial import Trial, forked

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
    ],
    ids=["half", "missing", "fields", "zeros", "crlf", "twice", "no end"],
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

"""A small run killed, failed and stopped at chosen steps; `benchmarks.faults` goes through all."""

import os
import re
import signal
import sys

import pytest

from benchmarks.faults.check import broken_files
from benchmarks.faults.inject import DENIED, FULL, GONE, KILL, MEMORY, Fault, Injector
from benchmarks.faults.trial import Tally, Trial, forked

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks itself")


@pytest.fixture(autouse=True)
def _no_cluster(monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)


@pytest.fixture(scope="module")
def trial(tmp_path_factory):
    return Trial(tmp_path_factory.mktemp("faults"))


def step(trial, pattern, which=-1):
    """Return the number of a step: the last one whose name fits, or another of them."""
    found = [n for n, name in enumerate(trial.steps) if re.fullmatch(pattern, name)]
    return found[which]


def check(trial, fault):
    tally = Tally()
    outcome = trial.inject(fault, tally)
    assert not tally.problems
    assert tally.repeated <= 1
    return outcome


@pytest.mark.parametrize(
    "pattern",
    [
        r"replace config\.yaml~",
        r"replace partition\.json~",
        r"replace labels\.json~",
        r"open snapshots/round_000001\.npz~",
        r"replace snapshots/round_000002\.npz~",
        r"open rounds\.jsonl",
        r"fsync rounds\.jsonl",
        r"phase SequentialEngine\._train",
        r"phase SequentialEngine\.evaluate",
        r"phase FederatedLoop\.aggregate",
        r"replace checkpoints/round_000001\.pt~",
        r"replace checkpoints/round_000002\.pt~",
        r"open checkpoints/round_000002\.json~",
        r"phase FolderWriter\.on_end",
        r"replace clients\.csv~",
        r"replace result\.json~",
    ],
)
def test_killed_before_a_step(trial, pattern):
    # The line of round 1: there is no checkpoint to fall back on.
    check(trial, Fault(KILL, step(trial, pattern, which=1 if "rounds" in pattern else -1)))


@pytest.mark.parametrize(
    "name", ["config.yaml", "rounds.jsonl", "checkpoints/round_000002.pt", "result.json"]
)
def test_killed_half_way_through_the_bytes(trial, name):
    check(trial, Fault(KILL, step(trial, f"write {re.escape(name)}~?"), half=True))


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("partition.json", 2),
        ("rounds.jsonl", 1),
        ("checkpoints/round_000002.pt", 1),
        ("result.json", 1),
    ],
)
def test_a_full_disk_is_one_line_with_the_file_and_the_way_on(trial, name, code):
    outcome = check(
        trial, Fault(FULL, step(trial, f"write {re.escape(name)}~?", which=-1), half=True)
    )
    assert outcome.code == code
    said = [line for line in outcome.text.splitlines() if "No space left on device" in line]
    assert len(said) == 1
    assert str(trial.folder / name) in said[0]
    assert "make room on that disk" in said[0]


def test_a_write_that_is_refused_in_mid_run_names_the_file(trial):
    outcome = check(trial, Fault(DENIED, step(trial, r"open snapshots/round_000002\.npz~")))
    assert f"{trial.folder}/snapshots/round_000002.npz: Permission denied" in outcome.text


def test_a_run_folder_that_vanishes_ends_the_run_and_is_not_made_again(trial):
    for pattern in (r"phase FederatedLoop\.fit", r"write checkpoints/round_000002\.pt~"):
        check_gone(trial, step(trial, pattern))


def check_gone(trial, number):
    outcome = forked(trial.fit, trial.log, Injector(trial.folder, Fault(GONE, number)))
    assert outcome.code == 1
    assert "was the folder removed or renamed?" in outcome.text
    assert "Traceback" not in outcome.text
    assert not trial.folder.exists()


def test_memory_that_runs_out_is_one_line(trial):
    outcome = check(trial, Fault(MEMORY, step(trial, r"phase SequentialEngine\._train")))
    assert outcome.text.splitlines()[-2].startswith("no memory is left (")


@pytest.mark.parametrize(
    ("kind", "pattern"),
    [
        ("SIGINT", r"write checkpoints/round_000001\.pt~"),
        ("SIGTERM", r"phase SequentialEngine\._train"),
        ("SIGHUP", r"phase FederatedLoop\.aggregate"),
        ("SIGUSR1", r"fsync rounds\.jsonl"),
    ],
)
def test_a_signal_ends_after_what_is_being_written(trial, kind, pattern):
    outcome = check(trial, Fault(kind, step(trial, pattern)))
    assert f"stopped by {kind}" in outcome.text
    assert not [path.name for path in trial.folder.rglob(".*")]


def test_a_stopped_run_saves_the_round_that_no_checkpoint_was_due_for(tmp_path):
    options = ["--trainer.engine", "sequential", "--checkpoint.every", "5", "--rounds", "4"]
    trial = Trial(tmp_path, options)
    number = step(trial, r"phase SequentialEngine\._train")
    for kind in ("SIGTERM", MEMORY):
        tally = Tally()
        trial.inject(Fault(kind, number), tally)
        assert (tally.problems, tally.repeated) == ([], 0)
    # A kill cannot save: all rounds since the last checkpoint are repeated, to the same bits.
    trial.inject(Fault(KILL, number), tally := Tally())
    assert (tally.problems, tally.repeated) == ([], 3)


def test_a_second_signal_while_saving_tears_nothing(tmp_path, monkeypatch):
    trial = Trial(tmp_path, ["--trainer.engine", "sequential", "--checkpoint.every", "5"])

    class Insistent(Injector):
        def _step(self, name, path, *, takes_room=False):
            super()._step(name, path, takes_room=takes_room)
            if "checkpoints" in name:
                os.kill(os.getpid(), signal.SIGTERM)
                os.kill(os.getpid(), signal.SIGINT)

    fault = Fault("SIGTERM", step(trial, r"phase SequentialEngine\._train"))
    outcome = forked(trial.fit, trial.log, Insistent(trial.folder, fault))
    assert outcome.code == 143
    trial.judge(outcome, "insisting", tally := Tally())
    assert (tally.problems, tally.repeated) == ([], 0)


@pytest.mark.parametrize(("kind", "code"), [("SIGTERM", 75), ("SIGUSR1", 75), ("SIGINT", 130)])
def test_under_slurm_the_exit_code_asks_for_a_requeue(trial, kind, code, monkeypatch):
    for name, value in {"JOB_ID": "7", "NTASKS": "1", "PROCID": "0", "LOCALID": "0"}.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    monkeypatch.setenv("SLURM_NODEID", "0")
    monkeypatch.setenv("SLURM_JOB_NAME", "federated")
    fault = Fault(kind, step(trial, r"phase SequentialEngine\._train"))
    outcome = forked(trial.fit, trial.log, Injector(trial.folder, fault))
    assert outcome.code == code
    assert not broken_files(trial.folder)
    assert f"cwfed fit --resume {trial.folder}" in outcome.text


def test_what_nohup_ignores_stays_ignored(trial):
    fault = Fault("SIGHUP", step(trial, r"phase SequentialEngine\._train"))

    def ignore():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    outcome = forked(trial.fit, trial.log, Injector(trial.folder, fault), prepare=ignore)
    assert outcome.code == 0

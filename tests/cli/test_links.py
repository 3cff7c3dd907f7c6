"""Links in a folder from elsewhere: nothing outside of it is read, written or removed."""

import os
import shutil

import pytest
from helpers import SMALL_FIT

import cwfed
from cwfed.cli import main
from cwfed.config.files import UsageError
from cwfed.processes.lock import unlocked_afterwards
from cwfed.records.atomic import append_atomic
from cwfed.sweeps.finished import describe_run
from cwfed.sweeps.job_store import JobStore
from cwfed.sweeps.jobs import Job
from cwfed.sweeps.ledger import append, read_ledger

FIT = [
    *("--config", "quickstart", "--data", "SyntheticImages", "--data.image_size", "16"),
    *("--data.samples_per_class", "20", "--partition.num_clients", "4", "--rounds", "1"),
    *("--model.hidden_features", "8", "--trainer.engine", "sequential"),
]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "finished"
    options = {**SMALL_FIT, "rounds": 1, "trainer": {"engine": "sequential"}}
    cwfed.fit("quickstart", run_dir=folder, **options)
    return folder


@pytest.fixture
def theirs(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "theirs")
    return tmp_path / "theirs"


@pytest.fixture
def victim(tmp_path):
    """A folder of somebody with a bit of everything that a run removes or writes."""
    folder = tmp_path / "victim"
    folder.mkdir()
    for name in (".mine.tmp", "round_000000.npz", "round_000009.pt", "a.pt.partial", "best.pt"):
        (folder / name).write_text("precious")
    return folder


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def plant(folder, name, victim):
    """Put a link to the victim, or to a file of it, in the place of a file or folder of a run."""
    path = folder / name
    target = victim
    if path.is_file():
        target = victim / path.name
        shutil.copy(path, target)
        path.unlink()
    elif path.exists():
        for part in path.iterdir():
            shutil.copy(part, victim)
        shutil.rmtree(path)
    path.parent.mkdir(exist_ok=True)
    path.symlink_to(target)


def command(*arguments):
    with unlocked_afterwards():
        return main(list(map(str, arguments)))


FOLDERS = [
    "x",
    "wandb/latest-run-1-abc",
    "wandb/sub",
    "checkpoints",
    "snapshots",
    "figures",
    "models",
    "wandb",
    "wandb/run-1",
    ".x.tmp",
]
FILES = ["config.yaml", "rounds.jsonl", "partition.json", "labels.json", "result.json"]
FILES += [
    "clients.csv",
    "wandb_id.txt",
    "wandb_rounds.jsonl",
    "checkpoints/round_000001.pt",
    "figures/curves.png",
]


@pytest.mark.parametrize("name", FOLDERS + FILES)
def test_links_in_a_run_folder_are_refused(theirs, victim, capsys, tmp_path, name):
    plant(theirs, name, victim)
    before = content(victim)
    page = tmp_path / "page.html"
    for arguments in (
        ["fit", "--resume", theirs, "--rounds", "2"],
        ["plot", "curves", theirs],
        ["report", theirs, "-o", page],
    ):
        assert command(*arguments) == 2, arguments
        said = capsys.readouterr().err
        assert f"{theirs / name}: expected no link, got one to {victim}" in said
        assert len(said.splitlines()) == 1
    for read in (cwfed.Run.load, cwfed.resume, lambda folder: describe_run(folder, {})):
        with pytest.raises(ValueError, match="expected no link, got one to"):
            read(theirs)
    assert content(victim) == before
    assert not page.exists()


def test_the_folder_itself_may_be_a_link(theirs, tmp_path, capsys):
    link = tmp_path / "link"
    link.symlink_to(theirs)
    assert command("fit", "--resume", link, "--rounds", "2") == 0
    assert command("plot", "curves", link) == 0
    assert command("report", link, "-o", tmp_path / "page.html") == 0
    assert (theirs / "figures" / "curves.png").is_file()


def test_a_run_with_links_is_passed_over_among_others(finished, theirs, victim, tmp_path, capsys):
    runs = tmp_path / "runs"
    shutil.copytree(finished, runs / "good")
    plant(theirs, "rounds.jsonl", victim)
    theirs.rename(runs / "odd")
    assert command("report", runs, "-o", tmp_path / "page.html") == 0
    said = capsys.readouterr().err
    assert "Left out" in said
    assert "odd/rounds.jsonl: expected no link" in " ".join(said.split())


def test_links_that_wandb_makes_are_its_own(theirs, tmp_path, capsys):
    own = theirs / "wandb" / "offline-run-20260101_000000-abc"
    (own / "logs").mkdir(parents=True)
    (own / "files").mkdir()
    elsewhere = tmp_path / "core.log"
    elsewhere.touch()
    (own / "logs" / "debug-core.log").symlink_to(elsewhere)
    (own / "files" / "saved.txt").symlink_to(elsewhere)
    for name in ("debug.log", "debug-internal.log"):
        (own / "logs" / name).touch()
        (theirs / "wandb" / name).symlink_to(own / "logs" / name)
    (theirs / "wandb" / "latest-run").symlink_to(own)
    assert command("fit", "--resume", theirs, "--rounds", "2") == 0
    (own / "run-abc.wandb").symlink_to(elsewhere)
    assert command("fit", "--resume", theirs, "--rounds", "3") == 2


def test_a_second_name_of_a_file_is_not_written_to(theirs, tmp_path):
    second = tmp_path / "victim.jsonl"
    os.link(theirs / "rounds.jsonl", second)
    before = second.read_bytes()
    assert command("fit", "--resume", theirs, "--rounds", "2") == 0
    assert second.read_bytes() == before
    assert (theirs / "rounds.jsonl").read_bytes().startswith(before[:40])


def test_a_new_run_does_not_clean_up_behind_a_link(tmp_path, victim):
    folder = tmp_path / "new"
    folder.mkdir()
    (folder / ".x.tmp").symlink_to(victim)
    assert command("fit", *FIT, "--run_dir", folder) == 0
    assert (victim / ".mine.tmp").exists()


def test_nothing_is_appended_through_a_link(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match="link"):
        append_atomic(tmp_path / "link", "text")
    assert not (tmp_path / "victim").exists()


def test_a_ledger_is_no_link(tmp_path):
    (tmp_path / "ledger.jsonl").symlink_to(tmp_path / "victim")
    for use in (read_ledger, lambda path: append(path, {})):
        with pytest.raises(UsageError, match="expected a ledger, got a link"):
            use(tmp_path / "ledger.jsonl")
    assert not (tmp_path / "victim").exists()


@pytest.mark.parametrize("name", ["cells", "folder", ".log", ".lock", ".yaml", ".failed.json"])
def test_links_in_the_folder_of_a_tables_runs_are_refused(tmp_path, victim, name):
    config = {"data": {"class_path": "a.B"}, "algorithm": {"name": "m"}, "partition": {}}
    job = Job("t", "r", "c", "cpu", 0, 1, "k" * 64, "c" * 64, config)
    place = JobStore(tmp_path / "runs")
    path = {"cells": place.cells, "folder": place.folder(job)}.get(name, place.file(job, name))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(victim)
    before = content(victim)
    state, reason = place.state(job)
    assert state == "failed"
    assert f"{path}: expected no link, got one to {victim}" in reason
    assert content(victim) == before

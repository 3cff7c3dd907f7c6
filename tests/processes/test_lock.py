"""Locks, where folders can be locked and where they cannot."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from threading import Thread

import pytest

from cwfed.processes import lock
from cwfed.processes.lock import (
    LOCK,
    is_locked,
    lock_folder,
    try_lock,
    unlocked_afterwards,
    waiting_for,
)

WITHOUT = """
import sys, warnings
sys.modules["fcntl"] = None  # as where there is none
warnings.simplefilter("ignore")
"""
OWNER = """
import time
from pathlib import Path
from cwfed.processes.lock import lock_folder
lock_folder(Path(sys.argv[1]))
print("locked", flush=True)
time.sleep(60)
"""
LOOKER = """
from pathlib import Path
from cwfed.processes.lock import is_locked, lock_folder
path = Path(sys.argv[1])
try:
    print(is_locked(path))
    lock_folder(path)
    print("mine")
except ValueError as error:
    print(error)
"""
COMMAND = """
from cwfed.cli import main
sys.exit(main(sys.argv[1:]))
"""


def own_then_fork(path, pipe):
    lock_folder(path)
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
    child.start()
    pipe.send(child.pid)
    time.sleep(60)


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_a_worker_that_outlives_its_parent_does_not_hold_the_lock(tmp_path):
    context = multiprocessing.get_context("fork")
    pipe, theirs = context.Pipe()
    owner = context.Process(target=own_then_fork, args=(tmp_path, theirs))
    owner.start()
    worker = pipe.recv()
    assert is_locked(tmp_path)
    owner.kill()
    owner.join()
    try:
        os.kill(worker, 0)
        assert not is_locked(tmp_path)
    finally:
        os.kill(worker, signal.SIGKILL)


@pytest.fixture(params=["fcntl", "filelock"])
def either(request, monkeypatch):
    """Both ways of locking, in this process."""
    if request.param == "filelock":
        monkeypatch.setattr(lock, "fcntl", None)
    return request.param


def test_one_has_it_at_a_time(either, tmp_path):
    for path in (tmp_path, tmp_path / "file"):
        held = try_lock(path)
        assert try_lock(path) is None
        held.release()
        again = try_lock(path)
        assert again
        again.release()
    assert bool([p for p in tmp_path.iterdir() if p.name == LOCK]) <= (either == "filelock")


def test_a_folder_is_locked_until_the_end_of_the_block(either, tmp_path):
    assert not is_locked(tmp_path)
    with unlocked_afterwards():
        lock_folder(tmp_path)
        assert is_locked(tmp_path)
        with pytest.raises(ValueError, match=r"run_dir: another process is writing the run in /"):
            lock_folder(tmp_path)
    assert not is_locked(tmp_path)
    assert not is_locked(tmp_path / "missing")


def test_writers_wait_for_each_other(either, tmp_path):
    order = []

    def later():
        with waiting_for(tmp_path):
            order.append("second")

    with waiting_for(tmp_path):
        thread = Thread(target=later)
        thread.start()
        time.sleep(0.3)
        order.append("first")
    thread.join(20)
    assert order == ["first", "second"]


def said(script, *arguments):
    command = [sys.executable, "-c", WITHOUT + script, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_a_system_without_fcntl_locks_and_a_kill_unlocks(tmp_path):
    command = [sys.executable, "-c", WITHOUT + OWNER, str(tmp_path)]
    owner = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert owner.stdout.readline() == "locked\n"
    refusal = f"True\nrun_dir: another process is writing the run in {tmp_path}\n"
    assert said(LOOKER, tmp_path).stdout == refusal
    owner.kill()
    owner.wait()
    assert said(LOOKER, tmp_path).stdout == "False\nmine\n"


def test_runs_go_on_one_writer_at_a_time_where_there_is_no_fcntl(tmp_path):
    run = tmp_path / "run"
    options = ["fit", "--config", "quickstart", "--data", "SyntheticImages", "--run_dir", run]
    options += ["--data.samples_per_class", "5", "--data.image_size", "16", "--rounds", "1"]
    options += ["--partition.num_clients", "2", "--trainer.engine", "sequential"]
    done = said(COMMAND, *options)
    assert done.returncode == 0, done.stderr
    assert (run / "result.json").is_file()
    command = [sys.executable, "-c", WITHOUT + OWNER, str(run)]
    owner = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert owner.stdout.readline() == "locked\n"
    refused = said(COMMAND, "fit", "--resume", run, "--rounds", "2")
    owner.kill()
    owner.wait()
    assert refused.returncode == 2
    assert "run_dir: another process is writing" in refused.stderr
    longer = said(COMMAND, "fit", "--resume", run, "--rounds", "2")
    assert longer.returncode == 0, longer.stderr

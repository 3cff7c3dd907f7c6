"""What must not grow with the rounds, and what must not outlive a run."""

import os
import signal
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks.faults.trial import SMALL_FIT, forked
from benchmarks.length import Meter
from cwfed.processes.lock import is_locked

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

ROUNDS = 20


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    """Handles and memory after each round of a run, checkpoints and snapshots included."""
    scratch = tmp_path_factory.mktemp("length")
    meter = Meter(scratch / "samples.jsonl")
    fit = [*SMALL_FIT, "--rounds", str(ROUNDS), "--trainer.engine", "sequential"]
    fit += ["--run_dir", str(scratch / "run"), "--logger", "tensorboard"]
    assert forked(fit, scratch / "log.txt", prepare=meter.install).code == 0
    return meter.read()


def test_handles_and_memory_stay_flat(samples):
    assert len(samples) == ROUNDS + 1
    settled = samples[5:]
    assert len({sample.handles for sample in settled}) == 1
    # Two checkpoints of a megabyte would be seen, if they were held.
    assert settled[-1].memory - settled[0].memory < 2 << 20


def test_the_log_grows_by_the_same_every_round(samples):
    sizes = [sample.rounds_bytes for sample in samples[1:]]
    lines = [after - before for before, after in pairwise(sizes)]
    assert max(lines) < 1.2 * min(lines)


def test_killed_with_its_workers_nobody_is_left_and_the_folder_is_free(tmp_path):
    options = ["--trainer.engine", "parallel", "--trainer.workers", "2", "--rounds", "50"]
    folder, children = tmp_path / "run", []

    def kill(pid):
        deadline = time.monotonic() + 60
        while not (folder / "checkpoints" / "round_000001.json").exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        children.extend(Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
        os.kill(pid, signal.SIGKILL)

    fit = [*SMALL_FIT, *options, "--run_dir", str(folder)]
    assert forked(fit, tmp_path / "log.txt", disturb=kill).code == -signal.SIGKILL
    assert len(children) == 2
    assert not is_locked(folder)
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{child}").exists() for child in children):
        assert time.monotonic() < deadline
        time.sleep(0.05)

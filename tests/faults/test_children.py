"""Child processes, whoever starts them."""

import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from cwfed.processes.children import Child, end, explain, importable, python, start
from cwfed.processes.own_modules import SAFE_FLAGS

DEAF = (
    "import signal, subprocess, sys, time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
    "print('ready', child.pid, flush=True)\n"
    "time.sleep(60)\n"
)
POLITE = "print('ready', flush=True)\nimport time\ntime.sleep(60)\n"


def begin(text, log, **options):
    with log.open("wb") as output:
        child = start([sys.executable, "-c", text], output, **options)
    until = time.monotonic() + 30
    while "ready" not in log.read_text() and time.monotonic() < until:
        time.sleep(0.02)
    return child


def alive(pid):
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def test_who_ends_when_asked_is_not_killed_and_who_does_not_is(tmp_path):
    polite, deaf = begin(POLITE, tmp_path / "a"), begin(DEAF, tmp_path / "b")
    grandchild = int((tmp_path / "b").read_text().split()[1])
    assert polite.poll() is deaf.poll() is polite.wait(0.01) is None
    begun = time.monotonic()
    end([polite, deaf], 1.0)
    assert 0.9 < time.monotonic() - begun < 10
    assert (polite.poll(), deaf.poll()) == (-signal.SIGTERM, -signal.SIGKILL)
    time.sleep(0.1)
    assert not alive(grandchild), "what is left in the session ends too"


def test_without_grace_all_are_killed_at_once_also_paused_ones(tmp_path):
    child = begin(POLITE, tmp_path / "a")
    child.send(signal.SIGSTOP)
    end([child])
    assert child.poll() == -signal.SIGKILL
    child.send(signal.SIGCONT)
    child.ask()
    end([child], 5)


@pytest.mark.parametrize("apart", [True, False])
def test_sessions_output_and_environment(tmp_path, apart):
    text = "import os, sys\nprint('ready', os.getsid(0), os.environ['COLOUR'], sys.stdin.read())"
    child = begin(text, tmp_path / "log", environment={"COLOUR": "green"}, apart=apart)
    assert child.wait(30) == 0
    session = os.getsid(0) if not apart else child.pid
    assert (tmp_path / "log").read_text().split() == ["ready", str(session), "green"]


def test_modules_are_run_without_the_current_folder(tmp_path, monkeypatch):
    (tmp_path / "json.py").write_text("raise SystemExit(7)")
    monkeypatch.chdir(tmp_path)
    assert python("cwfed", "--help")[1:] == [*SAFE_FLAGS, "-m", "cwfed", "--help"]
    with (tmp_path / "log").open("wb") as output:
        child = start(python("cwfed", "--help"), output, {"PYTHONPATH": importable()})
    assert child.wait(120) == 0, (tmp_path / "log").read_text()


def test_children_of_multiprocessing_are_watched_the_same():
    process = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(60,))
    process.start()
    child = Child(process)
    assert child.poll() is child.wait(0.01) is None
    assert child.pid == process.pid
    end([child], 30)
    assert child.poll() == -signal.SIGTERM


def test_ends_in_words():
    assert explain(3) == "exit code 3"
    assert explain(-signal.SIGSEGV) == "killed by SIGSEGV"
    assert explain(-250) == "killed by signal 250"

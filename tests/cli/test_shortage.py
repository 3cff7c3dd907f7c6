"""What the machine has run out of is named, whoever would be blamed for it, in one line."""

import errno
import multiprocessing
import os
import resource
import shutil
import subprocess
import sys
import threading
from errno import EAGAIN

import pytest
import torch

from cwfed.cli import main
from cwfed.engines import selection as engines
from cwfed.engines.parallel import workers
from cwfed.messages.shortage import shortage
from cwfed.processes.lock import unlocked_afterwards

SMALL = [
    *("--config", "quickstart", "--data", "SyntheticImages", "--data.image_size", "16"),
    *("--data.samples_per_class", "20", "--partition.num_clients", "4", "--rounds", "1"),
]
MEMORY = "no memory is left (fewer workers, smaller batches or a smaller chunk need less)"
LIMIT = "(the system limits processes and threads (ulimit -u): fewer workers need less)"


@pytest.fixture
def fit(tmp_path, capsys):
    """Return what trains a small run and returns its exit code and the lines of its messages."""

    def run(*arguments):
        with unlocked_afterwards():
            code = main(["fit", *SMALL, "--run_dir", str(tmp_path / "run"), *arguments])
        error = capsys.readouterr().err
        assert "Traceback" not in error
        return code, error.splitlines()

    return run


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("room", [5, 20, 60])
def test_too_little_memory_is_not_blamed_on_the_model(room, tmp_path):
    """With so many megabytes left, some step of building and training the model fails."""
    script = f"""
import os, resource, sys
import cwfed.cli.fit, cwfed.cli.plot
from cwfed.cli import main
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + {room << 20},) * 2)
code = main(["fit", *{SMALL!r}, "--model.hidden_features", "20000", "--run_dir", "run"])
sys.stdout.flush()
os._exit(code)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 1, done.stderr
    assert [MEMORY in line for line in done.stderr.splitlines()].count(True) == 1, done.stderr
    assert "model:" not in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("limit", [100_000, 1_000_000])
def test_too_little_memory_for_the_libraries(limit, tmp_path):
    def limited():
        resource.setrlimit(resource.RLIMIT_AS, (limit << 10,) * 2)

    command = [sys.executable, "-m", "cwfed", "fit", *SMALL, "--run_dir", str(tmp_path / "run")]
    done = subprocess.run(
        command, preexec_fn=limited, capture_output=True, text=True, timeout=120, cwd=tmp_path
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"cwfed fit: error: {MEMORY}")
    assert len(done.stderr.splitlines()) == 1


def test_the_cause_of_an_error_counts():
    for first, said in (
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), "no memory"),
        (MemoryError(), "no memory is left"),
        (RuntimeError("can't start new thread"), "no thread can be started"),
    ):
        last = ValueError("model: Net could not be built")
        last.__cause__ = RuntimeError("in between")
        last.__cause__.__cause__ = first
        assert shortage(last).startswith(said)
    assert shortage(ValueError("model: Net could not be built")) is None
    assert shortage(BlockingIOError(EAGAIN, "a lock is held")) is None


@pytest.fixture
def two_workers(monkeypatch):
    monkeypatch.setattr(engines, "cores", lambda: 2)


def test_a_process_that_cannot_be_started(fit, two_workers, monkeypatch):
    def start(self):
        raise BlockingIOError(EAGAIN, os.strerror(EAGAIN))

    context = multiprocessing.get_context(workers.start_method(1))
    monkeypatch.setattr(context.Process, "start", start)
    code, lines = fit()
    assert code == 1
    assert lines[-2].startswith(f"no worker process can be started {LIMIT}: [Errno 11]")


def test_a_thread_that_cannot_be_started_in_a_worker(fit, two_workers, monkeypatch):
    def start(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    code, lines = fit()
    assert code == 1
    assert lines[-2].endswith(f": no thread can be started {LIMIT}: can't start new thread")
    assert lines[-2].startswith("client ")


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0 or not shutil.which("setpriv"),
    reason="a limit bites only a process without rights over it: needs root and setpriv",
)
@pytest.mark.parametrize("limit", [1, 3, 4])
def test_the_system_s_own_limit_of_processes(limit, tmp_path):
    """Another real user without the right to pass the limit, who may read all files."""
    tmp_path.chmod(0o777)
    command = [
        *("setpriv", "--ruid=65534", "--bounding-set=-sys_resource,-sys_admin"),
        *(sys.executable, "-c"),
        f"import resource, sys; resource.setrlimit(resource.RLIMIT_NPROC, ({limit}, {limit}));"
        "from cwfed.cli import main; sys.exit(main(sys.argv[1:]))",
        *("fit", *SMALL, "--trainer.engine", "parallel", "--trainer.workers", "2"),
        *("--run_dir", str(tmp_path / "run")),
    ]
    alone = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MPLCONFIGDIR": str(tmp_path)}
    done = subprocess.run(
        command, env=os.environ | alone, capture_output=True, text=True, timeout=300, cwd=tmp_path
    )
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    (line,) = (line for line in done.stderr.splitlines() if LIMIT in line)
    assert "can be started" in line
    assert "--resume" in done.stderr.splitlines()[-1]


def test_a_shortage_may_end_the_choice_of_a_layout_but_not_make_it(monkeypatch, fit):
    """A layout that was tried without memory would be another one on the next try."""

    def lacking(*args, **kwargs):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(torch, "randn", lacking)
    code, lines = fit("--trainer.engine", "sequential")
    assert (code, len(lines)) == (1, 1)
    assert MEMORY in lines[0]


def test_files_that_cannot_be_opened_while_a_command_is_loaded(monkeypatch, capsys):
    def full(name):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), "library.py")

    monkeypatch.setattr(sys.modules["cwfed.cli.main"], "import_module", full)
    assert main(["fit", "--config", "quickstart"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("cwfed fit: error: cannot go on: library.py: Too many open files")
    assert len(said.splitlines()) == 1

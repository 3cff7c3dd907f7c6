"""Kills and fails a small run in every step, resumes it, and compares it with one left alone.

``python -m benchmarks.faults`` goes through every file operation and phase of a run of two rounds,
with each kind of fault, and prints what was lost; ``--every 5`` takes every fifth step,
``python -m benchmarks.faults --timed 40`` adds signals at random times. A kill after a step is a
kill before the next one. Runs are forked from this process, which has imported everything once.
"""

import csv
import hashlib
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
import yaml

from benchmarks.faults_inject import DENIED, FULL, GONE, KILL, MEMORY, Fault, Injector
from cwfed.atomic import TEMPORARY
from cwfed.cli import main as run_cwfed
from cwfed.cli.guard import FAILED, INTERRUPTED, USAGE_ERROR, Terminal
from cwfed.federated.folder import CHECKPOINTS, CLIENTS, CONFIG, LABELS, PARTITION, RESULT, ROUNDS
from cwfed.federated.loop import FederatedLoop
from cwfed.federated.state import FederatedState
from cwfed.results import SNAPSHOTS, split_lines

SIGNALS = ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1")
FILE_LIMIT, MEMORY_LIMIT = "limit of file size", "limit of memory"
SMALL_DISK = "small disk (tmpfs)"
ROUND_COUNT = 2
SMALL_FIT = [
    *("fit", "--config", "quickstart", "--data", "SyntheticImages", "--data.image_size", "16"),
    *("--data.samples_per_class", "10", "--partition.num_clients", "3", "--rounds"),
    *(str(ROUND_COUNT), "--model.hidden_features", "8", "--trainer.accelerator", "cpu"),
]
_ENGINE = ["--trainer.engine", "sequential"]
_WHOLE = (CONFIG, PARTITION, LABELS, CLIENTS)


@dataclass(frozen=True)
class Outcome:
    """How a process ended.

    Attributes:
        code: Exit code; negative: killed by that signal.
        text: All that it wrote on the terminal.
        steps: Names of its steps.
    """

    code: int
    text: str
    steps: list[str]


@dataclass
class Tally:
    """What faults of one kind did.

    Attributes:
        injected: How many.
        states: Different states of the folder that they left. Each is resumed once, also if several
            kinds leave it.
        repeated: Most finished rounds that a resumed run did again.
        problems: What went wrong, in words.
    """

    injected: int = 0
    states: set[str] = field(default_factory=set)
    repeated: int = 0
    problems: list[str] = field(default_factory=list)


def forked(
    arguments: Sequence[str],
    log: Path,
    injector: Injector | None = None,
    disturb: Callable[[int], None] = lambda pid: None,
    prepare: Callable[[], None] = lambda: None,
) -> Outcome:
    """Run cwfed in a forked process.

    Args:
        arguments: Its command and options.
        log: File that takes its output.
        injector: Counts its steps and fails one.
        disturb: Called with its process id while it runs.
        prepare: Called in it before it starts.
    """
    steps = log.with_suffix(".steps")
    steps.unlink(missing_ok=True)
    pid = os.fork()
    if pid == 0:
        _work(arguments, log, steps, injector, prepare)
    disturb(pid)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    names = json.loads(steps.read_text()) if steps.exists() else []
    return Outcome(code, log.read_text(errors="replace"), names)


def _work(
    arguments: Sequence[str],
    log: Path,
    steps: Path,
    injector: Injector | None,
    prepare: Callable[[], None],
) -> None:
    code = 70
    try:
        for name in SIGNALS:  # what this process inherited, as under nohup, is not the test
            signal.signal(getattr(signal, name), signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.stdout = sys.stderr = log.open("w", buffering=1)
        if injector:
            injector.install()
        prepare()
        code = run_cwfed(arguments)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        if injector:
            steps.write_text(json.dumps(injector.steps))
        sys.stderr.flush()
        os._exit(code)


class Trial:
    """A run that is left alone, and the same run with faults.

    Args:
        scratch: An empty folder for the runs.
        options: Options of ``cwfed fit`` beside those of the small run.
    """

    def __init__(self, scratch: Path, options: Sequence[str] = _ENGINE) -> None:
        self.folder = scratch / "run"  # always the same: the configuration holds it
        self.log = scratch / "log.txt"
        self.fit = [*SMALL_FIT, *options, "--run_dir", str(self.folder)]
        self.reference = scratch / "reference"
        self._seen: dict[str, tuple[str | None, int]] = {}
        start = time.monotonic()
        whole = forked(self.fit, self.log, Injector(self.folder))
        if whole.code:
            raise ValueError(f"faults: expected the undisturbed run to finish, got\n{whole.text}")
        self.seconds = time.monotonic() - start
        self.steps = whole.steps
        self.folder.rename(self.reference)

    def inject(self, fault: Fault, tally: Tally) -> Outcome:
        """Carry out a fault, resume, compare; note what came of it."""
        shutil.rmtree(self.folder, ignore_errors=True)
        outcome = forked(self.fit, self.log, Injector(self.folder, fault))
        name = self.steps[fault.step] if fault.step < len(self.steps) else "the end"
        self.judge(outcome, f"{fault.kind} at {name}{' (half)' if fault.half else ''}", tally)
        expected = expected_code(fault.kind, outcome)
        if outcome.code != expected:
            tally.problems.append(
                f"{fault.kind} at {name}: exit code {outcome.code}, expected {expected}"
            )
        return outcome

    def judge(self, outcome: Outcome, name: str, tally: Tally) -> None:
        """Check what a fault has left, then resume and compare."""
        tally.injected += 1
        if "Traceback" in outcome.text:
            tally.problems.append(f"{name}: a traceback")
        if outcome.code > 0 and (self.folder / CONFIG).exists() and "--resume" not in outcome.text:
            tally.problems.append(f"{name}: no word of how to go on")
        tally.problems += [f"{name}: {problem}" for problem in broken_files(self.folder)]
        state = fingerprint(self.folder)
        if state not in self._seen:
            self._seen[state] = self.resume()
        tally.states.add(state)
        problem, repeated = self._seen[state]
        tally.repeated = max(tally.repeated, repeated)
        if problem:
            tally.problems.append(f"{name}: {problem}")

    def resume(self) -> tuple[str | None, int]:
        """Start the run again as a person would.

        Returns:
            What is wrong with its end, and how many finished rounds it did again.
        """
        recorded = len(split_lines(self.folder / ROUNDS)[0]) - 1
        begun = (self.folder / CONFIG).exists()
        again = forked(["fit", "--resume", str(self.folder)] if begun else self.fit, self.log)
        if again.code:
            return f"resuming ended with {again.code}: {again.text.strip()[-300:]}", 0
        hidden = [path.name for path in self.folder.rglob(f".*{TEMPORARY}")]
        different = [*differences(self.reference, self.folder), *hidden]
        problem = f"after resuming: {different}" if different else None
        if "finished already" in again.text:
            return problem, 0
        after = re.search(r"continuing after round (\d+)", again.text)
        return problem, max(recorded, 0) - (int(after[1]) if after else 0)


def expected_code(kind: str, outcome: Outcome) -> int:
    """Return the exit code that a fault of some kind has to end with."""
    if kind == KILL:
        return -signal.SIGKILL
    if kind == "SIGINT":
        return INTERRUPTED
    if kind.startswith("SIG"):
        return 128 + int(getattr(signal, kind))
    # What fails before the run has begun is a refusal.
    return USAGE_ERROR if "cwfed fit: error:" in outcome.text else FAILED


def broken_files(folder: Path) -> list[str]:
    """Return which of a run folder's visible files are not whole, whatever happened to it."""
    broken = []
    for path in sorted(folder.rglob("*")):
        if path.is_dir() or (path.name.startswith(".") and path.name.endswith(TEMPORARY)):
            continue
        try:
            _read(path)
        except Exception as error:
            broken.append(f"{path.relative_to(folder)} is broken ({error!r:.80})")
    return broken


def _read(path: Path) -> Any:
    """Read a file of a run folder as whatever it is; raise if it is not whole."""
    if path.name == ROUNDS:
        lines, rest = split_lines(path)
        if len(rest) > 1:
            raise ValueError(f"{len(rest)} damaged lines")
        return [{**line, "seconds": None} for line in lines]
    if path.name == RESULT:
        return {**json.loads(path.read_text()), "seconds": None}
    if path.suffix == ".json":
        return json.loads(path.read_text())
    if path.suffix == ".yaml":
        return yaml.safe_load(path.read_text())["rounds"]
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name].tolist() for name in arrays}
    if path.suffix == ".pt":
        torch.load(path, weights_only=True)
        return hashlib.sha256(path.read_bytes()).hexdigest()
    return list(csv.reader(path.open(newline="")))[1]


def fingerprint(folder: Path) -> str:
    """Return a hash of a folder's content, less what no two runs share."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_dir():
            continue
        hidden = path.name.endswith(TEMPORARY)
        try:
            content = "" if hidden else json.dumps(_read(path))
        except Exception:
            content = path.read_bytes().hex()
        if path.name == ROUNDS:
            # Half a line is a state of its own; how long the half is depends on the seconds.
            content += str(len(split_lines(path)[1]))
        name = path.parent.name if hidden else str(path.relative_to(folder))
        digest.update(f"{name}\0{content}\0".encode())
    return digest.hexdigest()


def differences(reference: Path, folder: Path) -> list[str]:
    """Return in which files a run differs from one that was left alone, seconds aside."""
    files = [p.name for p in (reference / SNAPSHOTS).iterdir()]
    # Of the checkpoints the newest: a stop adds one, and the last ones stay.
    newest = max((reference / CHECKPOINTS).glob("*.pt"))
    names = [*_WHOLE, ROUNDS, RESULT, *(f"{SNAPSHOTS}/{name}" for name in sorted(files))]
    names += [f"{CHECKPOINTS}/{newest.with_suffix(end).name}" for end in (".pt", ".json")]
    different = []
    for name in names:
        ours, theirs = folder / name, reference / name
        if not (ours.exists() and theirs.exists()):
            different.append(f"{name} is missing in one")
            continue
        same_bytes = name not in _WHOLE or ours.read_bytes() == theirs.read_bytes()
        if not (same_bytes and _read(ours) == _read(theirs)):
            different.append(name)
    return different


def faults_of(kind: str, steps: Sequence[str], every: int) -> Iterable[Fault]:
    """Return the faults of a kind, one in every so many steps that it can come in."""
    in_files = kind in (FULL, DENIED)
    chosen = [n for n, step in enumerate(steps) if not in_files or _takes_room(step)]
    if kind == MEMORY:
        chosen = [n for n in chosen if steps[n].startswith("phase")]
    for number in chosen[::every]:
        yield Fault(kind, number)
        if steps[number].startswith("write") and (kind in (KILL, FULL)):
            yield Fault(kind, number, half=True)


def _takes_room(step: str) -> bool:
    makes = step.startswith("open") and step.endswith(("~", ROUNDS))
    return makes or step.startswith(("write", "fsync", "mkdir"))


def timed(trial: Trial, count: int, tally: dict[str, Tally], seed: int) -> None:
    """Send signals at random times to runs of two workers."""
    rng = random.Random(seed)
    for number in range(count):
        kind = (KILL, *SIGNALS)[number % 5]
        wait = rng.uniform(0.2, 1.2) * trial.seconds
        shutil.rmtree(trial.folder, ignore_errors=True)

        def disturb(pid: int, wait: float = wait, kind: str = kind) -> None:
            time.sleep(wait)
            os.kill(pid, getattr(signal, kind))

        outcome = forked(trial.fit, trial.log, None, disturb)
        trial.judge(outcome, f"{kind} after {wait:.2f} s", tally[f"{kind}, any time, two workers"])


def gone(trial: Trial, every: int, tally: Tally) -> None:
    """Remove the run folder in mid-run: nothing is left to resume, but one line says so."""
    for number in range(0, len(trial.steps), every):
        shutil.rmtree(trial.folder, ignore_errors=True)
        outcome = forked(trial.fit, trial.log, Injector(trial.folder, Fault(GONE, number)))
        tally.injected += 1
        if "Traceback" in outcome.text or outcome.code not in (0, FAILED, USAGE_ERROR):
            tally.problems.append(f"gone at {trial.steps[number]}: {outcome.text[-300:]}")


def limited(trial: Trial, tally: dict[str, Tally]) -> None:
    """Have the system itself refuse: large files, and memory beyond what the process has."""
    for size in (3_000, 30_000, 300_000, 1_000_000):
        shutil.rmtree(trial.folder, ignore_errors=True)
        prepare = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (size, size))
        outcome = forked(trial.fit, trial.log, prepare=prepare)
        trial.judge(outcome, f"files of {size} bytes", tally[FILE_LIMIT])
    for more in (0, 1, 2, 3, 4, 5, 6, 8):
        shutil.rmtree(trial.folder, ignore_errors=True)
        outcome = forked(trial.fit, trial.log, prepare=partial(_limit_memory, more << 20))
        trial.judge(outcome, f"{more} MiB of memory", tally[MEMORY_LIMIT])


def _limit_memory(more: int) -> None:
    """Take the memory away once the rounds start; before, the run would choose other settings."""
    start = FederatedLoop.run

    def run(loop: FederatedLoop, state: FederatedState) -> FederatedState:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + more
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        return start(loop, state)

    setattr(FederatedLoop, "run", run)  # noqa: B010


def filled(trial: Trial, tally: Tally, terminal: Terminal) -> None:
    """Run on disks that are really too small, make them larger, and resume; needs root."""
    shutil.rmtree(trial.folder, ignore_errors=True)
    trial.folder.mkdir()
    for kilobytes in (4, 8, 16, 64, 1000, 1100, 1200, 2100, 2200, 2300):
        size = f"size={kilobytes}k"
        mount = ["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(trial.folder)]
        if subprocess.run(mount, check=False, capture_output=True).returncode:
            terminal.say("small disks are passed over: nothing can be mounted here")
            return
        try:
            outcome = forked(trial.fit, trial.log)
            larger = ["mount", "-o", "remount,size=64m", str(trial.folder)]
            subprocess.run(larger, check=True)
            trial.judge(outcome, f"a disk of {kilobytes} kB", tally)
        finally:
            subprocess.run(["umount", str(trial.folder)], check=True)


def table(tallies: dict[str, Tally]) -> str:
    """Return what was lost as a table in Markdown."""
    rows = [
        "| fault | injected | different states resumed | finished rounds repeated, at most "
        "| files broken, runs that differ |",
        "|---|---|---|---|---|",
    ]
    for name, tally in tallies.items():
        wrong = len(tally.problems) or "none"
        cells = (name, tally.injected, len(tally.states), tally.repeated, wrong)
        rows.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(rows)


def run(options: Namespace, scratch: Path, terminal: Terminal) -> dict[str, Tally]:
    """Inject every kind of fault; return what came of each."""
    trial = Trial(scratch)
    tallies = {kind: Tally() for kind in (KILL, *SIGNALS, FULL, DENIED, MEMORY)}
    terminal.say(f"{len(trial.steps)} steps, {trial.seconds:.1f} s a run")
    for kind, tally in tallies.items():
        for fault in faults_of(kind, trial.steps, options.every):
            trial.inject(fault, tally)
        terminal.say(f"{kind}: {tally.injected} injected, {len(tally.problems)} problems")
    tallies |= {kind: Tally() for kind in (GONE, FILE_LIMIT, MEMORY_LIMIT, SMALL_DISK)}
    gone(trial, options.every, tallies[GONE])
    limited(trial, tallies)
    filled(trial, tallies[SMALL_DISK], terminal)
    if options.timed:
        workers = ["--trainer.engine", "parallel", "--trainer.workers", "2"]
        (scratch / "timed").mkdir()
        several = Trial(scratch / "timed", workers)
        for kind in (KILL, *SIGNALS):
            tallies[f"{kind}, any time, two workers"] = Tally()
        timed(several, options.timed, tallies, options.seed)
    return tallies


def main() -> int:
    """Run the command; return 1 if anything was lost."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1, help="one in every so many steps")
    parser.add_argument("--timed", type=int, default=0, help="signals at random times")
    parser.add_argument("--seed", type=int, default=0, help="of the random times")
    terminal = Terminal()
    torch.set_num_threads(1)
    os.environ.pop("SLURM_JOB_ID", None)  # other exit codes
    with TemporaryDirectory() as scratch:
        tallies = run(parser.parse_args(), Path(scratch), terminal)
    terminal.say(table(tallies))
    problems = [problem for tally in tallies.values() for problem in tally.problems]
    for problem in problems:
        terminal.say(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

"""A small run with a fault, resumed and compared with the same run left alone."""

import json
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.faults.check import broken_files, differences, fingerprint
from benchmarks.faults.inject import DENIED, KILL, Fault, Injector
from cwfed.cli import main as run_cwfed
from cwfed.launch.exit_codes import FAILED, INTERRUPTED, USAGE_ERROR
from cwfed.records.atomic import TEMPORARY
from cwfed.records.names import CONFIG, ROUNDS
from cwfed.records.round_lines import read_rounds

SIGNALS = ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1")
ROUND_COUNT = 2
SMALL_FIT = [
    *("fit", "--config", "quickstart", "--data", "SyntheticImages", "--data.image_size", "16"),
    *("--data.samples_per_class", "10", "--partition.num_clients", "3", "--rounds"),
    *(str(ROUND_COUNT), "--model.hidden_features", "8", "--trainer.accelerator", "cpu"),
]
SEQUENTIAL = ["--trainer.engine", "sequential"]


@dataclass(frozen=True)
class Outcome:
    """End of a process.

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
    """Tally of the faults of one kind.

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

    def __init__(self, scratch: Path, options: Sequence[str] = SEQUENTIAL) -> None:
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
        if fault.kind == DENIED and self._syncs_folder(name):
            expected = 0  # some file systems cannot, and say so in this way
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

    def _syncs_folder(self, step: str) -> bool:
        call, _, label = step.partition(" ")
        return call == "fsync" and (self.reference / label).is_dir()

    def resume(self) -> tuple[str | None, int]:
        """Start the run again as a person would.

        Returns:
            What is wrong with its end, and how many finished rounds it did again.
        """
        recorded = len(read_rounds(self.folder / ROUNDS).lines) - 1
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

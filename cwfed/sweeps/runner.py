"""The runner: takes jobs one after the other, each in a process of its own.

It can be stopped and started at any time, and several may share a folder: finished jobs are
passed over, unfinished ones resumed, and what another process is on is left to it.
"""

import shutil
import signal
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from cwfed.config.files import UsageError
from cwfed.processes.children import Child
from cwfed.processes.lock import Lock, is_locked
from cwfed.records.finished import read_result
from cwfed.records.names import CHECKPOINTS
from cwfed.sweeps.board import Board
from cwfed.sweeps.estimate import Estimator
from cwfed.sweeps.finished import cpu_name, describe_run
from cwfed.sweeps.job_store import DONE, FAILED, RUNNING, SKIPPED, JobStore
from cwfed.sweeps.jobs import Job
from cwfed.sweeps.launch import cold, warm
from cwfed.sweeps.ledger import append

STOPPED = "stopped"
_TICK = 0.1


@dataclass
class Settings:
    """Settings by which jobs are run.

    Attributes:
        ledger: File that takes a line of each finished job.
        slots: Environment of each process that may run at a time.
        warm: Fork processes that have imported everything.
        retry: Run jobs again that failed before.
        discard: Delete a finished run's checkpoints.
        budget: Seconds after which what still runs is stopped, to be resumed another time.
    """

    ledger: Path
    slots: Sequence[Mapping[str, str]] = ({},)
    warm: bool = False
    retry: bool = False
    discard: bool = False
    budget: float | None = None


@dataclass
class _Active:
    job: Job
    process: Child
    claim: Lock
    slot: Mapping[str, str]
    asked: bool = False


class Runner:
    """Runs jobs.

    Args:
        jobs: What to run, in this order.
        place: Where their files are.
        settings: How they are run.
        estimator: Learns from each finished job.
        board: Shows what happens.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        place: JobStore,
        settings: Settings,
        estimator: Estimator,
        board: Board,
    ) -> None:
        self.place = place
        self.settings = settings
        self.estimator = estimator
        self.board = board
        self.outcomes: Counter[str] = Counter()
        self.interrupted = False
        self._pending = deque(jobs)
        self._active: list[_Active] = []
        self._free = list(settings.slots)
        self._over = {job.key for job in jobs if place.state(job)[0] in (DONE, SKIPPED)}
        self._start = time.monotonic()

    def run(self) -> Counter[str]:
        """Run all jobs; return how many ended how."""
        with self._stopped_by_signals():
            while (self._pending and not self._stopping()) or self._active:
                self._fill()
                self._collect()
                if self._active:
                    time.sleep(_TICK)
        self.outcomes[STOPPED] += len(self._pending)
        return self.outcomes

    def _fill(self) -> None:
        while self._pending and self._free and not self._stopping():
            job = self._pending.popleft()
            outcome = self._start_job(job)
            if outcome:
                self._end(job, *outcome)

    def _start_job(self, job: Job) -> tuple[str, str] | None:
        """Start a job, or return at once how it ended."""
        if job.skip:
            return SKIPPED, job.skip
        conflict = self.place.conflict(job)
        if conflict:
            return FAILED, conflict
        if self.place.result_folder(job):
            return self._keep(job)
        failure = self.place.failure(job)
        if failure and not self.settings.retry:
            return FAILED, f"{failure} (failed before; --retry runs it again)"
        claim = self.place.claim(job)
        if claim is None:
            return RUNNING, "passed over, another process runs it"
        if read_result(self.place.folder(job)):
            # Another runner has finished it between the look and the claim.
            claim.release()
            return self._keep(job)
        arguments = self.place.prepare(job)
        launch = warm if self.settings.warm else cold
        slot = self._free.pop(0)
        process = launch(arguments, self.place.file(job, ".log"), slot, claim)
        self._active.append(_Active(job, process, claim, slot))
        self.board.start(job.label, job.rounds)
        return None

    def _collect(self) -> None:
        if self._stopping():
            self._stop_all()
        for active in list(self._active):
            code = active.process.poll()
            if code is None:
                self.board.rounds(active.job.label, self.place.rounds_done(active.job))
                continue
            outcome = self._outcome(active.job, code)
            active.claim.release()
            self._active.remove(active)
            self._free.append(active.slot)
            self._end(active.job, *outcome)

    def _outcome(self, job: Job, code: int) -> tuple[str, str]:
        if code == 0:
            return self._keep(job)
        if self._stopping():
            done = self.place.rounds_done(job)
            return STOPPED, f"after round {done}; the same command continues"
        if is_locked(self.place.folder(job)):
            return RUNNING, "passed over, another process runs it"
        return FAILED, self.place.fail(job, code)

    def _keep(self, job: Job) -> tuple[str, str]:
        """Add a finished job to the ledger; return what it came to."""
        folder = self.place.result_folder(job)
        assert folder is not None
        own = folder == self.place.folder(job)
        labels = {name: getattr(job, name) for name in ("table", "row", "column", "profile")}
        try:
            # Of a run made elsewhere nobody knows the processor.
            line = describe_run(folder, {**labels, "cpu": cpu_name() if own else None})
        except ValueError as error:
            return FAILED, str(error)
        try:
            append(self.settings.ledger, line)
        except (UsageError, OSError) as error:
            # The other jobs go on; the next run finds this one finished and adds it then.
            return FAILED, f"finished, but not in the ledger: {error}"
        if own and self.settings.discard:
            shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
        self.estimator.learn(line)
        return DONE, describe(line)

    def _end(self, job: Job, outcome: str, text: str) -> None:
        self.outcomes[outcome] += 1
        self._over.add(job.key)
        said = text if outcome == DONE else f"{outcome}: {text}"
        self.board.end(job.label, said, self._left() / len(self.settings.slots))

    def _left(self) -> float:
        """Return about how many seconds of work are left."""
        seconds = sum(
            self.estimator.seconds(job) for job in self._pending if job.key not in self._over
        )
        for active in self._active:
            part = 1 - self.place.rounds_done(active.job) / active.job.rounds
            seconds += self.estimator.seconds(active.job) * max(part, 0.0)
        return seconds

    def _stopping(self) -> bool:
        budget = self.settings.budget
        return self.interrupted or (budget is not None and time.monotonic() - self._start > budget)

    def _stop_all(self) -> None:
        """Ask each process once; a second signal would cut short what the first made it write."""
        for active in self._active:
            if not active.asked:
                active.process.ask()
                active.asked = True

    @contextmanager
    def _stopped_by_signals(self) -> Iterator[None]:
        before = {}
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            which = getattr(signal, name, None)
            if which is not None:
                before[which] = signal.signal(which, self._interrupt)
        try:
            yield
        finally:
            for which, handler in before.items():
                signal.signal(which, handler)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self.interrupted = True


def describe(line: Mapping[str, Any]) -> str:
    """Return a finished run's accuracies and seconds in a few words."""
    best = [
        f"{label} {100 * line['metrics'][metric]['best']['accuracy']:.2f} %"
        for metric, label in (("received", "received"), ("post_local", "post-local"))
        if line["metrics"][metric]["best"]
    ]
    return f"best {', '.join(best)} in {line['metrics']['seconds']:.0f} s"

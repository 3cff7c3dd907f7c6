"""Kills and fails a small run in every step, resumes it, and compares it with one left alone.

``python -m benchmarks.faults`` goes through every file operation and phase of a run of two rounds,
with each kind of fault in turn, at random steps, and prints what was lost. ``--every 5`` takes
every fifth step, ``--budget 10m`` stops after that time, ``--shard 1/2`` does half of it,
``--timed 40`` adds signals at random times and ``--limits`` disks, files and memory that are really
too small. Further options, such as ``--algorithm ifca``, go to ``cwfed fit``. A kill after a step
is a kill before the next one. Runs are forked from this process, which has imported everything.
"""

import os
import random
import resource
import shutil
import signal
import subprocess
import time
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import zip_longest
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from benchmarks.faults.inject import DENIED, FULL, GONE, KILL, MEMORY, Fault, Injector
from benchmarks.faults.trial import SEQUENTIAL, SIGNALS, Tally, Trial, forked
from cwfed.federated.loop import FederatedLoop
from cwfed.federated.state import FederatedState
from cwfed.launch.exit_codes import FAILED, USAGE_ERROR
from cwfed.messages.terminal import Terminal
from cwfed.records.names import ROUNDS
from cwfed.sweeps.deadline import duration

FILE_LIMIT, MEMORY_LIMIT = "limit of file size", "limit of memory"
SMALL_DISK = "small disk (tmpfs)"


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


def gone(trial: Trial, fault: Fault, tally: Tally) -> None:
    """Remove the run folder in mid-run: nothing is left to resume, but one line says so."""
    shutil.rmtree(trial.folder, ignore_errors=True)
    outcome = forked(trial.fit, trial.log, Injector(trial.folder, fault))
    tally.injected += 1
    if "Traceback" in outcome.text or outcome.code not in (0, FAILED, USAGE_ERROR):
        tally.problems.append(f"gone at {trial.steps[fault.step]}: {outcome.text[-300:]}")


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


def inject(trial: Trial, options: Namespace, tallies: dict[str, Tally], terminal: Terminal) -> None:
    """Carry out faults at random steps, the kinds in turns, until the budget is used up."""
    end, rng = time.monotonic() + options.budget, random.Random(options.seed)
    part, parts = map(int, options.shard.split("/"))
    kinds = [list(faults_of(kind, trial.steps, options.every)) for kind in tallies]
    shuffled = [rng.sample(faults, len(faults))[part - 1 :: parts] for faults in kinds]
    chosen = [fault for turn in zip_longest(*shuffled) for fault in turn if fault]
    terminal.say(f"{len(trial.steps)} steps, {trial.seconds:.1f} s a run, {len(chosen)} faults")
    for number, fault in enumerate(chosen):
        if time.monotonic() > end:
            break
        if number % 20 == 0:
            problems = sum(len(tally.problems) for tally in tallies.values())
            terminal.say(f"{number} injected, {problems} problems")
        if fault.kind == GONE:
            gone(trial, fault, tallies[GONE])
        else:
            trial.inject(fault, tallies[fault.kind])


def run(
    options: Namespace, scratch: Path, terminal: Terminal, fit: Sequence[str] = ()
) -> dict[str, Tally]:
    """Inject every kind of fault; return what came of each."""
    trial = Trial(scratch, [*SEQUENTIAL, *fit])
    tallies = {kind: Tally() for kind in (KILL, *SIGNALS, FULL, DENIED, MEMORY, GONE)}
    inject(trial, options, tallies, terminal)
    if options.limits:
        tallies |= {kind: Tally() for kind in (FILE_LIMIT, MEMORY_LIMIT, SMALL_DISK)}
        limited(trial, tallies)
        filled(trial, tallies[SMALL_DISK], terminal)
    if options.timed:
        workers = ["--trainer.engine", "parallel", "--trainer.workers", "2", *fit]
        (scratch / "timed").mkdir()
        several = Trial(scratch / "timed", workers)
        for kind in (KILL, *SIGNALS):
            tallies[f"{kind}, any time, two workers"] = Tally()
        timed(several, options.timed, tallies, options.seed)
    return tallies


def main() -> int:
    """Run the command; return 1 if anything was lost."""
    parser = ArgumentParser(
        prog="python -m benchmarks.faults",
        description=__doc__,
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("--every", type=int, default=1, help="one in every so many steps")
    parser.add_argument("--budget", type=duration, default=inf, help="for the steps: 90s, 30m, 8h")
    parser.add_argument("--shard", default="1/1", help="which part of the steps, such as 1/2")
    parser.add_argument("--limits", action="store_true", help="real limits of disk and memory")
    parser.add_argument("--timed", type=int, default=0, help="signals at random times")
    parser.add_argument("--seed", type=int, default=0, help="of the random order and times")
    terminal = Terminal()
    torch.set_num_threads(1)
    os.environ.pop("SLURM_JOB_ID", None)  # other exit codes
    with TemporaryDirectory() as scratch:
        options, fit = parser.parse_known_args()
        tallies = run(options, Path(scratch), terminal, fit)
    terminal.say(table(tallies))
    problems = [problem for tally in tallies.values() for problem in tally.problems]
    for problem in problems:
        terminal.say(problem)
    return 1 if problems else 0

"""The commands for tables, but for ``list``."""

import os
import sys
import tempfile
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from cwfed.config.files import UsageError, output_file, user_path
from cwfed.launch.exit_codes import INTERRUPTED
from cwfed.messages.terminal import Terminal
from cwfed.records.atomic import write_atomic
from cwfed.sweeps.board import Board
from cwfed.sweeps.estimate import Estimator, clock
from cwfed.sweeps.fields import choose
from cwfed.sweeps.finished import find_finished
from cwfed.sweeps.job_store import DONE, FAILED, OPEN, SKIPPED, JobStore
from cwfed.sweeps.jobs import Job, Resolver, check_only, expand, select_shard, unique
from cwfed.sweeps.launch import devices, has_warm
from cwfed.sweeps.ledger import read_ledger
from cwfed.sweeps.norms import Folders
from cwfed.sweeps.options import RUNS
from cwfed.sweeps.profiles import PROFILES, Profile
from cwfed.sweeps.report import Line, cells_of, gather, write_report
from cwfed.sweeps.runner import Runner, Settings
from cwfed.sweeps.spread import measure_spread, spread_markdown
from cwfed.sweeps.summary import sections
from cwfed.sweeps.tracking import track, tracking
from cwfed.sweeps.verify import PLACES, Check, find_line
from cwfed.sweeps.verify import verify as check_line
from cwfed.tracking.wandb_options import WandbOptions


def run(options: Namespace) -> int:
    """Run the jobs of tables that are not done yet."""
    profile = _profile(options)
    cells = _cells(options, profile)
    jobs = _jobs(options, cells)
    common = tracking(options)
    if common:
        jobs = track(jobs, cells, common)
    ledger = _ledger(options, profile)
    estimator = Estimator(read_ledger(ledger))
    _writable(options.runs, "--runs")
    _require_writable(ledger)
    settings = Settings(
        ledger,
        _slots(options.jobs),
        warm=profile.warm and has_warm(),
        retry=options.retry,
        # All cells of all tables would leave gigabytes that nobody wants to continue from.
        discard=profile.generated,
        budget=options.budget,
    )
    place = JobStore(_runs(options))
    with Board(len(jobs)) as board:
        _announce(jobs, place, estimator, len(settings.slots), board)
        runner = Runner(jobs, place, settings, estimator, board)
        outcomes = runner.run()
        board.say(", ".join(f"{count} {what}" for what, count in outcomes.items() if count))
    if runner.interrupted:
        return INTERRUPTED
    return 1 if outcomes[FAILED] else 0


def status(options: Namespace) -> int:
    """Print what has become of each job."""
    profile = _profile(options)
    jobs = _jobs(options, _cells(options, profile))
    place, terminal = JobStore(_runs(options)), Terminal()
    estimator = Estimator(read_ledger(_ledger(options, profile)))
    counts: Counter[str] = Counter()
    left = 0.0
    for job in jobs:
        state, about = place.state(job)
        counts[state] += 1
        if state not in (DONE, SKIPPED):
            left += estimator.seconds(job)
        terminal.say(f"{state:12} {job.label}{f': {about}' if about and state != OPEN else ''}")
    terminal.say(f"{', '.join(f'{n} {what}' for what, n in counts.items())}; {clock(left)} left")
    return 0


def report(options: Namespace) -> int:
    """Write tables and curves."""
    profile = _profile(options)
    tables = options.suite.load_tables(options.tables)
    runs, ledger = _runs(options), _ledger(options, profile)
    if not runs.is_dir() and not ledger.is_file():
        raise UsageError(
            f"--runs, --ledger: expected at least one that exists, got {runs} and {ledger}"
        )
    output = _writable(options.output, "--output")
    lines, folders = _gather(ledger, runs)
    for path in write_report(tables, profile, lines, output, Resolver(), folders):
        Terminal().say(str(path))
    return 0


def _gather(ledger: Path, runs: Path) -> tuple[list[Line], Folders]:
    """Return all finished runs, and the folders of those that have one; say what is damaged."""
    damaged: list[str] = []
    folders = find_finished(runs, damaged)
    lines = gather(ledger, folders, damaged)
    for sentence in damaged:
        Terminal(stderr=True).say(f"left out, since it is damaged: {sentence}")
    return lines, folders


def spread(options: Namespace) -> int:
    """Print how much runs differ that should not, and which tolerance follows from it."""
    profile = _profile(options)
    (table,) = options.suite.load_tables([options.table])
    output = options.output and output_file("--output", options.output, (".md",))
    lines, _ = _gather(_ledger(options, profile), _runs(options))
    found = [
        section
        for section in sections(
            table, cells_of(table, profile, Resolver()), lines, generated=profile.generated
        )
        if section.runs() and section.rounds == (options.rounds or section.rounds)
    ]
    if not found:
        raise UsageError(
            f"spread: expected finished runs of {table.name}, got none; see "
            f"`{options.suite.command} run {table.name} --profile {profile.name}`"
        )
    text = spread_markdown(measure_spread(table, found[0]))
    Terminal().say(text)
    if output:
        write_atomic(output, text)
    return 0


def verify(options: Namespace) -> int:
    """Run a number of the ledger again."""
    ledger = _ledger_to_verify(options)
    if not ledger.is_file():
        raise UsageError(f"--ledger: expected an existing file, got {ledger}")
    lines = read_ledger(ledger)
    line = find_line(
        options.suite, options.target, lines, options.seed, options.rounds, options.profile
    )
    data_dir = user_path(options.data_dir, "--data_dir") if options.data_dir else None
    paths = {name: getattr(options, f"{name}_path") for name in PLACES}
    terminal = Terminal()
    mismatches = check_line(line, Check(options.rounds, options.tolerance, data_dir, paths))
    for mismatch in mismatches:
        terminal.say(f"{line['key'][:12]}: {mismatch}")
    if not mismatches:
        rounds = min(options.rounds or line["rounds"], line["rounds"])
        terminal.say(f"{line['key'][:12]}: {rounds} of {line['rounds']} rounds match")
    return 1 if mismatches else 0


def dashboard(options: Namespace) -> int:
    """Build a W&B workspace and report; print, write or save them."""
    from cwfed.sweeps.dashboard import build, render

    # An option like those of the runs: what W&B refuses in a name is refused here as well.
    account = WandbOptions(project=options.project, entity=options.entity, mode="online")
    tables = options.suite.load_tables(options.tables)
    made = build(account.project, account.entity, tables, _profile(options))
    terminal = Terminal()
    if options.output:
        path = user_path(options.output, "--output")
        _writable(str(path.parent), "--output")
        if path.is_dir():
            raise UsageError(f"--output: expected a file, got the folder {path}")
        path.write_text(render(made), encoding="utf-8")
        terminal.say(str(path))
    elif options.print:
        sys.stdout.write(render(made))
    else:
        from cwfed.tracking.wandb_login import log_in

        log_in(account, "see what would be sent with --print")
        for address in made.save():
            terminal.say(address)
    return 0


def _ledger_to_verify(options: Namespace) -> Path:
    if options.ledger:
        return user_path(options.ledger, "--ledger")
    table, _, cell = options.target.rpartition("/")[0].rpartition("/")
    ledger: Path = options.suite.ledger_of([table] if cell and table else [], RUNS)
    return ledger


COMMANDS: dict[str, Callable[[Namespace], int]] = {
    "run": run,
    "status": status,
    "report": report,
    "spread": spread,
    "verify": verify,
    "dashboard": dashboard,
}


def _announce(
    jobs: Sequence[Job], place: JobStore, estimator: Estimator, slots: int, board: Board
) -> None:
    """Say what there is to do, how long it takes and what it needs."""
    states = {job.key: place.state(job)[0] for job in jobs}
    counts = Counter(states.values())
    many = "job" if len(jobs) == 1 else "jobs"
    board.say(f"{len(jobs)} {many}: {', '.join(f'{n} {state}' for state, n in counts.items())}")
    left = [job for job in jobs if states[job.key] not in (DONE, SKIPPED)]
    if left:
        seconds = sum(map(estimator.seconds, left)) / slots
        memory = max(map(estimator.memory, left)) * slots / 1e9
        board.say(f"about {clock(seconds)} and at most about {memory:.1f} GB of memory")


def _profile(options: Namespace) -> Profile:
    return PROFILES[choose(options.profile, [*PROFILES], "--profile")]


def _runs(options: Namespace) -> Path:
    return _folder(options.runs, "--runs").absolute()


def _folder(text: str, option: str) -> Path:
    """Return a folder, which need not exist.

    Raises:
        UsageError: A file is in the way.
    """
    path = user_path(text, option)
    there = next(place for place in (path, *path.absolute().parents) if place.exists())
    if not there.is_dir():
        raise UsageError(f"{option}: expected a folder, got {path}, where {there} is a file")
    return path


def _writable(text: str, option: str) -> Path:
    """Return a folder, made if missing, after writing into it: before hours are spent, not after.

    Raises:
        UsageError: It cannot be written.
    """
    path = _folder(text, option)
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return path
    except OSError as error:
        raise UsageError(
            f"{option}: expected a folder that can be written, got {path}: {error.strerror}"
        ) from error


def _require_writable(ledger: Path) -> None:
    if ledger.is_dir():
        raise UsageError(f"--ledger: expected a file, got the folder {ledger}")
    _writable(str(ledger.parent), "--ledger")


def _ledger(options: Namespace, profile: Profile) -> Path:
    """Return the ledger: what is made to see whether it runs is not kept with what counts."""
    if options.ledger:
        return user_path(options.ledger, "--ledger")
    if profile.generated:
        return _runs(options) / "ledger.jsonl"
    names = [options.table] if options.command == "spread" else options.tables
    ledger: Path = options.suite.ledger_of(names, _runs(options))
    return ledger


def _cells(options: Namespace, profile: Profile) -> list[Job]:
    tables = options.suite.load_tables(options.tables)
    check_only(tables, options.only)
    resolver = Resolver()
    settings = {name: getattr(options, name) for name in ("data_dir", "rounds", "seeds", "only")}
    return [job for table in tables for job in expand(table, profile, resolver, **settings)]


def _jobs(options: Namespace, cells: Sequence[Job]) -> list[Job]:
    jobs = unique(cells)
    return select_shard(jobs, options.shard) if options.shard else jobs


def _slots(jobs: int) -> list[dict[str, str]]:
    found = devices(os.environ, torch.cuda.device_count()) if jobs > 1 else []
    if not found:
        return [{} for _ in range(jobs)]
    return [{"CUDA_VISIBLE_DEVICES": found[index % len(found)]} for index in range(jobs)]

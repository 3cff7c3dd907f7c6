"""What the commands do."""

import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

import torch
from jsonargparse import ArgumentParser, Namespace

from cwfed.cli.files import UsageError, order_arguments, take_option, user_path
from cwfed.cli.guard import FAILED, Terminal, explain_os, setting_up, stop_code
from cwfed.cli.parser import (
    absolute_paths,
    add_fit_options,
    build,
    make_parser,
    parse,
    plain,
)
from cwfed.engines.parallel.workers import WorkerError
from cwfed.engines.selection import describe_engine
from cwfed.federated.callbacks import LoopCallback
from cwfed.federated.faults import RunStopped
from cwfed.federated.loop import FederatedLoop
from cwfed.federated.snapshots import SnapshotWriter
from cwfed.federated.state import FederatedState
from cwfed.federated.stop import Stop
from cwfed.messages.shortage import shortage
from cwfed.messages.texts import require_name
from cwfed.records.files import read_yaml
from cwfed.records.finished import is_finished, read_result
from cwfed.records.names import CONFIG, RESULT
from cwfed.records.reading import reading, require_no_links
from cwfed.report.summary import result_table
from cwfed.runs.experiment import Experiment, blaming
from cwfed.runs.folder import RunFolder, division_damage, require_empty
from cwfed.runs.folder_writer import FolderWriter
from cwfed.runs.prepared import PreparedRun
from cwfed.tracking.figure_writer import FigureWriter
from cwfed.tracking.loggers import make_reporters
from cwfed.tracking.progress import ProgressPrinter

log = logging.getLogger("cwfed")

_CHANGEABLE = ("--rounds", "--data_dir", "--wandb.mode", "--faults.policy")
"""What a resumed run may do otherwise, since no number of the rounds before depends on it."""


@dataclass
class FitPlan:
    """What a command asks for, checked as far as no data are needed.

    Attributes:
        parser: The parser that made the configuration.
        config: The parsed configuration.
        path: The run folder.
        resume: Whether the folder holds the run already.
        longer: Whether that run was to have fewer rounds.
    """

    parser: ArgumentParser
    config: Namespace
    path: Path
    resume: bool
    longer: bool = False

    @property
    def done(self) -> bool:
        """Whether there is nothing left to do."""
        return self.resume and not self.longer and is_finished(self.path)


def fit(arguments: Sequence[str]) -> int:
    """Train: a new run, or the rest of one."""
    stop = Stop()
    with stop.watch():
        try:
            plan = plan_fit(arguments)
            if plan.done:
                log.info("%s is finished already; nothing changed", plan.path)
                _mend_division(plan)
                _show_result(plan.path)
                return 0
            return _fit(plan, stop)
        except KeyboardInterrupt:
            log.warning("%s", _stopped(stop))
            return stop_code(stop.received)


def plan_fit(arguments: Sequence[str]) -> FitPlan:
    """Return what the arguments of ``cwfed fit`` ask for.

    Raises:
        UsageError: Something is wrong; the message names the field.
    """
    parser = make_parser("fit", "Train a method on a divided data set.")
    add_fit_options(parser)
    folders, others = take_option(arguments, "--resume")
    resumed = user_path(folders[-1], "--resume") if folders else None
    if resumed:
        arguments = _resume_arguments(resumed, others)
    with setting_up():
        config = parse(parser, order_arguments(arguments))
        path = resumed or _new_folder(config)
        longer = resumed is not None and _is_longer(resumed, config.rounds)
    return FitPlan(parser, config, path, bool(resumed), longer)


def _new_folder(config: Namespace) -> Path:
    path = user_path(config.run_dir, "--run_dir") if config.run_dir else _default_folder(config)
    require_empty(path)
    return path


def start(
    plan: FitPlan, callbacks: Sequence[LoopCallback]
) -> tuple[FederatedLoop, list[FederatedState]]:
    """Make the run and its folder, or find it there; nothing is written for a user's mistake.

    Args:
        plan: What to run.
        callbacks: Hooks beside those that write the folder.

    Returns:
        The loop, and the state to start from alone in a list: to be handed over, not kept, since
        it would hold gigabytes for the whole run.

    Raises:
        UsageError: Something does not fit; the message names the field.
    """
    with setting_up():
        loop, run, folder = _prepare(plan.parser, plan.config, plan.path, callbacks)
        initial = loop.initial_state(run.initialisation())
        state = folder.restore(run, initial) if plan.resume else folder.create(run)
    _announce(run, plan.path, state)
    return loop, [state or initial]


def _fit(plan: FitPlan, stop: Stop) -> int:
    path, progress = plan.path, ProgressPrinter(plan.config.algorithm.name, Terminal(stderr=True))
    try:
        loop, states = start(plan, [progress, stop])
        loop.run(states.pop())
    except UsageError:
        if not plan.resume and (path / CONFIG).is_file():
            _say_how_to_go_on(path)
        raise
    except BaseException as error:
        stop.settle()
        progress.close()
        return _end(error, path, stop)
    finally:
        progress.close()
    _show_result(path)
    return 0


def _mend_division(plan: FitPlan) -> None:
    """Make a finished run's partition and label counts again where they are damaged or missing."""
    if (damage := division_damage(plan.path)) is None:
        return
    try:
        with setting_up():
            _, run, folder = _prepare(plan.parser, plan.config, plan.path, [])
            folder.mend(run)
    except UsageError as error:
        log.warning("%s; it cannot be made again: %s", damage, error)
        return
    log.info("%s; made again from the configuration and the data", damage)


def _end(error: BaseException, path: Path, stop: Stop) -> int:
    """Say why a run ended and how to go on; return the exit code."""
    said = _explain(error, stop)
    if isinstance(error, KeyboardInterrupt):
        log.warning("%s", said)
    else:
        log.error("%s", said or f"{type(error).__name__}: {error}")
    _say_how_to_go_on(path)
    if said is None:
        raise error
    return stop_code(stop.received) if isinstance(error, KeyboardInterrupt) else FAILED


def _explain(error: BaseException, stop: Stop) -> str | None:
    """Return in one line why a run ended; None for an error that needs its traceback."""
    if isinstance(error, KeyboardInterrupt):
        return _stopped(stop)
    if isinstance(error, WorkerError | RunStopped):
        return str(error)
    if lacking := shortage(error):
        return lacking
    return f"cannot go on: {explain_os(error)}" if isinstance(error, OSError) else None


def _stopped(stop: Stop) -> str:
    return f"stopped by {stop.received.name}" if stop.received else "interrupted"


def _say_how_to_go_on(path: Path) -> None:
    if (path / CONFIG).is_file():
        log.warning("finished rounds are kept; continue with: cwfed fit --resume %s", path)


def _prepare(
    parser: ArgumentParser, config: Namespace, path: Path, callbacks: Sequence[LoopCallback]
) -> tuple[FederatedLoop, PreparedRun, RunFolder]:
    """Make everything that can fail on a user's mistake, before anything is written."""
    absolute_paths(config)
    experiment, made = build(parser, config)
    torch.set_num_threads(experiment.trainer.threads)
    run = experiment.prepare(data_folder(config))
    # What was left open is settled now; a resumed or repeated run finds it there.
    config.trainer = Namespace(**asdict(run.trainer))
    values = plain(parser, config)
    folder = RunFolder(path, values)
    reporters = make_reporters(made.logger, made.wandb, path, values)
    # The writers come first: a round that is shown can be resumed from. The snapshot before the
    # round's line: a round that is resumed from has its snapshot.
    writers = [
        SnapshotWriter(path, experiment.snapshots.every),
        FigureWriter(path, experiment.figures.every, run.data.images.class_names),
        FolderWriter(folder, run, experiment.checkpoint),
    ]
    return run.loop([*writers, *callbacks, *reporters]), run, folder


def _resume_arguments(folder: Path, others: Sequence[str]) -> list[str]:
    """Return the arguments of the run in the folder; only `_CHANGEABLE` may change."""
    if not (folder / CONFIG).is_file():
        raise UsageError(f"--resume: expected a run folder with a {CONFIG}, got {folder}")
    with setting_up(), blaming("--resume"):
        require_no_links(folder)
    for argument in others:
        if argument.startswith("--") and argument.split("=")[0] not in _CHANGEABLE:
            raise UsageError(
                f"{argument.split('=')[0]}: a resumed run keeps its configuration; expected only "
                f"{', '.join(_CHANGEABLE)} beside --resume, got {argument}"
            )
    return ["--config", str(folder / CONFIG), *others]


def _is_longer(folder: Path, rounds: int) -> bool:
    """Return whether rounds are more than the folder's configuration says."""
    stored = read_yaml(folder / CONFIG, "a configuration").get("rounds", rounds)
    if rounds < stored:
        raise UsageError(
            f"--rounds: expected at least the {stored} of the run, got {rounds}: a run can be made "
            f"longer, not shorter"
        )
    return bool(rounds > stored)


def _default_folder(config: Namespace) -> Path:
    require_name("algorithm.name", config.algorithm.name)
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    data = config.data.class_path.rpartition(".")[2].lower()
    return Path("runs") / f"{stamp}-{data}-{config.algorithm.name}"


def _announce(run: PreparedRun, path: Path, state: FederatedState | None) -> None:
    experiment: Experiment = run.experiment
    images = run.data.images
    parameters = sum(p.numel() for p in run.model.parameters())
    log.info(
        "%s on %s: %d samples, %d classes, %d clients, %s parameters",
        experiment.algorithm.name,
        images.name,
        len(images),
        images.num_classes,
        run.data.num_clients,
        f"{parameters:,}",
    )
    log.info("%s (%s)", describe_engine(run.trainer), run.reason)
    verb = f"continuing after round {state.round}" if state else "writing"
    log.info("%s in %s", verb, path)


def _show_result(path: Path) -> None:
    result = read_result(path)
    assert result is not None
    terminal = Terminal()
    with setting_up(), reading(path / RESULT, "the result of a run"):
        table = result_table(result)
    # A run is not a failure because nobody can read its table: a closed pipe, a full disk.
    with suppress(OSError):
        terminal.print(table)
        terminal.say(f"run folder: {path}{os.sep}")


def data_folder(config: Namespace) -> Path | None:
    """Return the folder to search for data, if one was named."""
    return user_path(config.data_dir, "--data_dir") if config.data_dir else None

"""A run made ready and its folder made or found: all that can fail on a mistake comes first."""

import logging
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from jsonargparse import ArgumentParser, Namespace

from cwfed.config.files import UsageError, user_path
from cwfed.config.guard import setting_up
from cwfed.config.parser import absolute_paths, build, plain
from cwfed.engines.selection import describe_engine
from cwfed.federated.callbacks import LoopCallback
from cwfed.federated.loop import FederatedLoop
from cwfed.federated.snapshots import SnapshotWriter
from cwfed.federated.state import FederatedState
from cwfed.launch.plan import FitPlan
from cwfed.runs.experiment import Experiment
from cwfed.runs.folder import RunFolder, division_damage
from cwfed.runs.folder_writer import FolderWriter
from cwfed.runs.prepared import PreparedRun
from cwfed.tracking.figure_writer import FigureWriter
from cwfed.tracking.loggers import make_reporters

log = logging.getLogger("cwfed")


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
    for line in plan.said:
        log.info("%s", line)
    _announce(run, plan.path, state)
    return loop, [state or initial]


def mend_division(plan: FitPlan) -> None:
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


def _prepare(
    parser: ArgumentParser, config: Namespace, path: Path, callbacks: Sequence[LoopCallback]
) -> tuple[FederatedLoop, PreparedRun, RunFolder]:
    """Make everything that can fail on a user's mistake, before anything is written."""
    absolute_paths(config)
    experiment, made = build(parser, config)
    torch.set_num_threads(experiment.trainer.threads)
    run = experiment.prepare(data_folder(config))
    # What was left open is settled now; a resumed or repeated run finds it there.
    own = {} if isinstance(run.trainer.engine, str) else {"engine": config.trainer.engine}
    config.trainer = Namespace(**{**asdict(run.trainer), **own})
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


def _announce(run: PreparedRun, path: Path, state: FederatedState | None) -> None:
    experiment: Experiment = run.experiment
    images = run.data.images
    parameters = sum(p.numel() for p in run.model.parameters())
    log.info(
        "%s on %s: %d samples (%s%s), %d classes, %d clients, %s parameters",
        experiment.algorithm.name,
        images.name,
        len(images),
        images.kind,
        ", scaled to [-1, 1]" if images.scaling == "pixels" else "",
        images.num_classes,
        run.data.num_clients,
        f"{parameters:,}",
    )
    log.info("%s (%s)", describe_engine(run.trainer), run.reason)
    verb = f"continuing after round {state.round}" if state else "writing"
    log.info("%s in %s", verb, path)


def data_folder(config: Namespace) -> Path | None:
    """Return the folder to search for data, if one was named."""
    return user_path(config.data_dir, "--data_dir") if config.data_dir else None

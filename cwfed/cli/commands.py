"""What the commands do."""

import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

import torch
from jsonargparse import ArgumentParser, Namespace

from cwfed.cli.files import UsageError, order_arguments, take_option, user_path
from cwfed.cli.guard import (
    FAILED,
    INTERRUPTED,
    TERMINATED,
    Terminal,
    Termination,
    setting_up,
)
from cwfed.cli.parser import (
    absolute_paths,
    add_fit_options,
    build,
    make_parser,
    parse,
    plain,
)
from cwfed.engines.workers import WorkerError
from cwfed.federated.engines import describe_engine
from cwfed.federated.experiment import Experiment
from cwfed.federated.folder import (
    CONFIG,
    FolderWriter,
    RunFolder,
    read_result,
    require_empty,
)
from cwfed.federated.loggers import make_reporters
from cwfed.federated.loop import FederatedLoop
from cwfed.federated.prepared import PreparedRun
from cwfed.federated.progress import ProgressPrinter
from cwfed.federated.snapshots import SnapshotWriter
from cwfed.federated.state import FederatedState
from cwfed.report.partition import partition_table, plot_partition
from cwfed.report.summary import result_table

log = logging.getLogger("cwfed")

_THE_MACHINES = ("--data_dir", "--wandb.mode")
"""What a resumed run may do otherwise: where the data are, whether the network can be used."""


def fit(arguments: Sequence[str]) -> int:
    """Train: a new run, or the rest of one."""
    parser = make_parser("fit", "Train a method on a divided data set.")
    add_fit_options(parser)
    folders, others = take_option(arguments, "--resume")
    resumed = user_path(folders[-1], "--resume") if folders else None
    if resumed:
        arguments = _resume_arguments(resumed, others)
    with setting_up():
        config = parse(parser, order_arguments(arguments))
        path = resumed or _new_folder(config)
    if resumed and read_result(resumed):
        log.info("%s is finished already; nothing changed", resumed)
        _show_result(resumed)
        return 0
    return _fit(parser, config, path, resume=bool(resumed))


def partition(arguments: Sequence[str]) -> int:
    """Print and draw how the data are divided."""
    parser = make_parser("partition", "Show how a data set is divided among the clients.")
    parser.add_argument("--plot", type=str | None, default=None, help="Draw it: a .png or .pdf.")
    parser.add_argument("--save", type=str | None, default=None, help="Write it as JSON.")
    terminal = Terminal()
    with setting_up():
        config = parse(parser, order_arguments(arguments))
        plot = _output_file("--plot", config.plot, (".png", ".pdf"))
        save = _output_file("--save", config.save, (".json",))
        experiment, _ = build(parser, config)
        images, manifest = experiment.divide(_data_dir(config))
        labels, names = images.labels_N, images.class_names
        terminal.print(partition_table(manifest, labels, names, terminal.width))
        terminal.say(f"partition {manifest.hash}")
        if plot:
            plot_partition(manifest, labels, names, plot)
            terminal.say(f"drawn in {plot}")
        if save:
            manifest.save(save)
            terminal.say(f"written to {save}")
    return 0


def _output_file(option: str, text: str | None, suffixes: tuple[str, ...]) -> Path | None:
    """Return the path of a file to write, checked before the work is done."""
    if text is None:
        return None
    path = user_path(text, option)
    if path.suffix.lower() not in suffixes:
        raise UsageError(f"{option}: expected a name ending in {' or '.join(suffixes)}, got {text}")
    if not path.parent.is_dir():
        raise UsageError(f"{option}: expected an existing folder, got {path.parent}")
    return path


def _new_folder(config: Namespace) -> Path:
    path = user_path(config.run_dir, "--run_dir") if config.run_dir else _default_folder(config)
    require_empty(path)
    return path


def _fit(parser: ArgumentParser, config: Namespace, path: Path, *, resume: bool) -> int:
    progress = ProgressPrinter(config.algorithm.name, Terminal(stderr=True))
    with setting_up():
        loop, run, folder = _prepare(parser, config, path, progress)
        state = folder.restore(run) if resume else folder.create(run)
    _announce(run, path, state)
    # Handed over, not kept: it would hold gigabytes for the whole run.
    states = [state or loop.initial_state(run.initialisation())]
    del state
    termination = Termination()
    try:
        with termination.watch():
            loop.run(states.pop())
    except KeyboardInterrupt:
        progress.close()
        log.warning("interrupted; continue with: cwfed fit --resume %s", path)
        return TERMINATED if termination.received else INTERRUPTED
    except WorkerError as error:
        progress.close()
        log.error("%s", error)
        log.warning("finished rounds are kept; continue with: cwfed fit --resume %s", path)
        return FAILED
    finally:
        progress.close()
    _show_result(path)
    return 0


def _prepare(
    parser: ArgumentParser, config: Namespace, path: Path, progress: ProgressPrinter
) -> tuple[FederatedLoop, PreparedRun, RunFolder]:
    """Make everything that can fail on a user's mistake, before anything is written."""
    absolute_paths(config)
    experiment, made = build(parser, config)
    torch.set_num_threads(experiment.trainer.threads)
    run = experiment.prepare(_data_dir(config))
    # What was left open is settled now; a resumed or repeated run finds it there.
    config.trainer = Namespace(**asdict(run.trainer))
    values = plain(parser, config)
    folder = RunFolder(path, values)
    reporters = make_reporters(made.logger, made.wandb, path, values)
    # The writers come first: a round that is shown can be resumed from. The snapshot before the
    # round's line: a round that is resumed from has its snapshot.
    writers = [
        SnapshotWriter(path, experiment.snapshots.every),
        FolderWriter(folder, run, experiment.checkpoint),
    ]
    return run.loop([*writers, progress, *reporters]), run, folder


def _resume_arguments(folder: Path, others: Sequence[str]) -> list[str]:
    """Return the arguments of the run in the folder; only what is the machine's may change."""
    if not (folder / CONFIG).is_file():
        raise UsageError(f"--resume: expected a run folder with a {CONFIG}, got {folder}")
    for argument in others:
        if argument.startswith("--") and argument.split("=")[0] not in _THE_MACHINES:
            raise UsageError(
                f"{argument.split('=')[0]}: a resumed run keeps its configuration; expected only "
                f"{' and '.join(_THE_MACHINES)} beside --resume, got {argument}"
            )
    return ["--config", str(folder / CONFIG), *others]


def _default_folder(config: Namespace) -> Path:
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
    # A run is not a failure because nobody can read its table: a closed pipe, a full disk.
    with suppress(OSError):
        terminal.print(result_table(result))
        terminal.say(f"run folder: {path}{os.sep}")


def _data_dir(config: Namespace) -> Path | None:
    return user_path(config.data_dir, "--data_dir") if config.data_dir else None

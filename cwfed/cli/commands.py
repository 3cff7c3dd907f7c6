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
    Stop,
    Terminal,
    explain_os,
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
from cwfed.engines.workers import STOPPING, WorkerError, is_out_of_memory
from cwfed.federated.callbacks import LoopCallback
from cwfed.federated.engines import describe_engine
from cwfed.federated.experiment import Experiment
from cwfed.federated.folder import (
    CONFIG,
    FolderWriter,
    RunFolder,
    is_finished,
    read_result,
    require_empty,
)
from cwfed.federated.loggers import RoundLogger, make_loggers
from cwfed.federated.loop import FederatedLoop
from cwfed.federated.prepared import PreparedRun
from cwfed.federated.progress import ProgressPrinter
from cwfed.federated.snapshots import SnapshotWriter
from cwfed.federated.state import FederatedState
from cwfed.report.partition import partition_table, plot_partition
from cwfed.report.summary import result_table
from cwfed.results import RoundRecord

log = logging.getLogger("cwfed")


def fit(arguments: Sequence[str]) -> int:
    """Train: a new run, or the rest of one."""
    stop = Stop()
    with stop.watch(STOPPING):
        try:
            return _fit_until(stop, arguments)
        except KeyboardInterrupt:
            if stop.received is None:
                raise
            log.warning("stopped by %s before the first round", stop.received.name)
            return stop.code()


def _fit_until(stop: Stop, arguments: Sequence[str]) -> int:
    parser = make_parser("fit", "Train a method on a divided data set.")
    add_fit_options(parser)
    folders, others = take_option(arguments, "--resume")
    resumed = user_path(folders[-1], "--resume") if folders else None
    if resumed:
        arguments = _resume_arguments(resumed, others)
    with setting_up():
        config = parse(parser, order_arguments(arguments))
        path = resumed or _new_folder(config)
    if resumed and is_finished(resumed):
        log.info("%s is finished already; nothing changed", resumed)
        _show_result(resumed)
        return 0
    return _fit(parser, config, path, stop, resume=bool(resumed))


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


def _fit(parser: ArgumentParser, config: Namespace, path: Path, stop: Stop, *, resume: bool) -> int:
    progress = ProgressPrinter(config.algorithm.name, Terminal(stderr=True))
    try:
        with setting_up():
            loop, run, writer = _prepare(parser, config, path, progress, stop)
            state = writer.folder.restore(run) if resume else writer.folder.create(run)
        _announce(run, path, state)
        # Handed over, not kept: it would hold gigabytes for the whole run.
        states = [state or loop.initial_state(run.initialisation())]
        del state
        try:
            loop.run(states.pop())
        except BaseException:
            _save_last(writer)
            raise
    except UsageError:
        if not resume and (path / CONFIG).is_file():
            log.warning("continue with: cwfed fit --resume %s", path)
        raise
    except BaseException as error:
        said = _explain(error, path, stop)
        progress.close()
        return _end(error, said, path, stop)
    finally:
        progress.close()
    _show_result(path)
    return 0


class _StopAtLast(LoopCallback):
    """Stops after the round if a signal's exception was lost, as in a destructor it is."""

    def __init__(self, stop: Stop) -> None:
        self.stop = stop

    def on_round(self, record: RoundRecord, state: FederatedState) -> None:
        """Raise what was lost."""
        if self.stop.received:
            raise KeyboardInterrupt


def _save_last(writer: FolderWriter) -> None:
    """Save the last finished round, if it can be; what ended the run is what matters."""
    try:
        writer.save()
    except OSError as error:
        log.debug("the last round could not be saved: %s", error)


def _explain(error: BaseException, path: Path, stop: Stop) -> str | None:
    """Return in one line why a run ended; None for an error that needs its traceback."""
    if isinstance(error, KeyboardInterrupt):
        return f"stopped by {stop.received.name}" if stop.received else "interrupted"
    if is_out_of_memory(error):
        advice = "fewer workers, smaller batches or a smaller chunk need less"
        return f"no memory is left ({advice}): {error}".removesuffix(": ")
    if isinstance(error, OSError):
        return f"cannot go on: {explain_os(error)}"
    return str(error) if isinstance(error, WorkerError) else None


def _end(error: BaseException, said: str | None, path: Path, stop: Stop) -> int:
    """Say why a run ended and how to go on; return the exit code."""
    if isinstance(error, Exception):
        log.error("%s", said or f"{type(error).__name__}: {error}")
    else:
        log.warning("%s", said)
    if (path / CONFIG).is_file():
        log.warning("finished rounds are kept; continue with: cwfed fit --resume %s", path)
    if said is None:
        raise error
    return stop.code() if isinstance(error, KeyboardInterrupt) else FAILED


def _prepare(
    parser: ArgumentParser, config: Namespace, path: Path, progress: ProgressPrinter, stop: Stop
) -> tuple[FederatedLoop, PreparedRun, FolderWriter]:
    """Make everything that can fail on a user's mistake, before anything is written."""
    absolute_paths(config)
    experiment, made = build(parser, config)
    torch.set_num_threads(experiment.trainer.threads)
    run = experiment.prepare(_data_dir(config))
    # What was left open is settled now; a resumed or repeated run finds it there.
    config.trainer = Namespace(**asdict(run.trainer))
    values = plain(parser, config)
    folder = RunFolder(path, values)
    loggers = make_loggers(made.logger, path, path.name)
    # The writers come first: a round that is shown can be resumed from. The snapshot before the
    # round's line: a round that is resumed from has its snapshot.
    writer = FolderWriter(folder, run, experiment.checkpoint)
    snapshots = SnapshotWriter(path, experiment.snapshots.every)
    shown = [progress, RoundLogger(loggers, values), _StopAtLast(stop)]
    return run.loop([snapshots, writer, *shown]), run, writer


def _resume_arguments(folder: Path, others: Sequence[str]) -> list[str]:
    """Return the arguments of the run in the folder; only the place of the data may change."""
    if not (folder / CONFIG).is_file():
        raise UsageError(f"--resume: expected a run folder with a {CONFIG}, got {folder}")
    for argument in others:
        if argument.startswith("--") and argument.split("=")[0] != "--data_dir":
            raise UsageError(
                f"{argument.split('=')[0]}: a resumed run keeps its configuration; expected only "
                f"--data_dir beside --resume, got {argument}"
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

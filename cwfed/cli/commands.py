"""What the commands do."""

import json
import logging
import os
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import torch
from jsonargparse import ArgumentParser, Namespace
from rich.console import Console

from cwfed.cli.files import UsageError, order_arguments, take_option
from cwfed.cli.parser import add_fit_options, build, make_parser, parse, plain
from cwfed.engines.sequential import resolve_accelerator
from cwfed.federated.experiment import Experiment, PreparedRun
from cwfed.federated.folder import CONFIG, RESULT, FolderWriter, RunFolder, require_empty
from cwfed.federated.loggers import RoundLogger, make_loggers
from cwfed.federated.loop import FederatedLoop
from cwfed.federated.progress import ProgressPrinter
from cwfed.federated.state import FederatedState
from cwfed.report.partition import partition_table, plot_partition
from cwfed.report.summary import result_table

log = logging.getLogger("cwfed")

_INTERRUPTED = 130


def fit(arguments: Sequence[str]) -> int:
    """Train: a new run, or the rest of one."""
    parser = make_parser("fit", "Train a method on a divided data set.")
    add_fit_options(parser)
    folders, others = take_option(arguments, "--resume")
    if not folders:
        return _fit_new(parser, parse(parser, order_arguments(arguments)))
    resumed = Path(folders[-1]).expanduser()
    config = parse(parser, order_arguments(_resume_arguments(resumed, others)))
    if (resumed / RESULT).is_file():
        log.info("%s is finished already; nothing changed", resumed)
        _show_result(resumed)
        return 0
    return _fit(parser, config, resumed, resume=True)


def partition(arguments: Sequence[str]) -> int:
    """Print and draw how the data are divided."""
    parser = make_parser("partition", "Show how a data set is divided among the clients.")
    parser.add_argument("--plot", type=str | None, default=None, help="Draw it: a .png or .pdf.")
    config = parse(parser, order_arguments(arguments))
    experiment, _ = build(parser, config)
    console = Console()
    try:
        images, manifest = experiment.divide(_path(config.data_dir))
        console.print(partition_table(manifest, images.labels_N, images.class_names, console.width))
        console.print(f"partition {manifest.hash}", highlight=False, soft_wrap=True)
        if config.plot:
            path = Path(config.plot).expanduser()
            plot_partition(manifest, images.labels_N, images.class_names, path)
            console.print(f"drawn in {path}", highlight=False, soft_wrap=True)
    except (ValueError, OSError) as error:
        raise UsageError(str(error)) from error
    return 0


def _fit_new(parser: ArgumentParser, config: Namespace) -> int:
    path = _path(config.run_dir) or _default_folder(config)
    try:
        require_empty(path)
    except ValueError as error:
        raise UsageError(str(error)) from error
    return _fit(parser, config, path, resume=False)


def _fit(parser: ArgumentParser, config: Namespace, path: Path, *, resume: bool) -> int:
    progress = ProgressPrinter(config.algorithm.name)
    try:
        loop, run, folder = _prepare(parser, config, path, progress)
        if resume:
            state = folder.restore(run)
        else:
            state = None
            folder.create(run)
    except (ValueError, OSError) as error:
        raise UsageError(str(error)) from error
    _announce(run, path, state)
    try:
        loop.run(state or loop.initial_state(run.initialisation()))
    except KeyboardInterrupt:
        progress.close()
        log.warning("interrupted; continue with: cwfed fit --resume %s", path)
        return _INTERRUPTED
    finally:
        progress.close()
    _show_result(path)
    return 0


def _prepare(
    parser: ArgumentParser, config: Namespace, path: Path, progress: ProgressPrinter
) -> tuple[FederatedLoop, PreparedRun, RunFolder]:
    """Make everything that can fail on a user's mistake, before anything is written."""
    config.trainer.accelerator = resolve_accelerator(config.trainer.accelerator)
    experiment, made = build(parser, config)
    torch.set_num_threads(experiment.trainer.threads)
    values = plain(parser, config)
    run = experiment.prepare(_path(config.data_dir))
    folder = RunFolder(path, values)
    loggers = make_loggers(made.logger, path, path.name)
    writer = FolderWriter(folder, run, experiment.checkpoint)
    return run.loop([progress, RoundLogger(loggers, values), writer]), run, folder


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
        "%s on %s: %d samples, %d classes, %d clients, %s parameters; %s, threads: %d",
        experiment.algorithm.name,
        images.name,
        len(images),
        images.num_classes,
        run.data.num_clients,
        f"{parameters:,}",
        experiment.trainer.accelerator,
        torch.get_num_threads(),
    )
    verb = f"continuing after round {state.round}" if state else "writing"
    log.info("%s in %s", verb, path)


def _show_result(path: Path) -> None:
    result: dict[str, Any] = json.loads((path / RESULT).read_text(encoding="utf-8"))
    console = Console()
    console.print(result_table(result))
    console.print(f"run folder: {path}{os.sep}", highlight=False, soft_wrap=True)


def _path(text: str | None) -> Path | None:
    return Path(text).expanduser() if text else None

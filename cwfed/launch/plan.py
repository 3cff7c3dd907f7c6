"""Plans a run from what a person asks, checked as far as no data are needed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser, Namespace

from cwfed.config.files import UsageError, order_arguments, take_option, user_path
from cwfed.config.guard import setting_up
from cwfed.config.numbers import leaves
from cwfed.config.parser import (
    add_fit_options,
    make_parser,
    parse,
    parse_values,
)
from cwfed.messages.texts import require_name
from cwfed.records.files import read_yaml
from cwfed.records.finished import is_finished
from cwfed.records.names import CONFIG
from cwfed.records.reading import require_no_links
from cwfed.runs.experiment import blaming
from cwfed.runs.folder import require_empty

_CHANGEABLE = ("--rounds", "--data_dir", "--wandb.mode", "--faults.policy")
"""Options that a resumed run may change, since no number of the rounds before depends on it."""


@dataclass
class FitPlan:
    """A run to be started or resumed, checked as far as no data are needed.

    Attributes:
        parser: The parser that made the configuration.
        config: The parsed configuration.
        path: The run folder.
        resume: Whether the folder holds the run already.
        longer: Whether that run was to have fewer rounds.
        said: What a person should know of the configuration, a line each.
    """

    parser: ArgumentParser
    config: Namespace
    path: Path
    resume: bool
    longer: bool = False
    said: Sequence[str] = ()

    @property
    def done(self) -> bool:
        """True if there is nothing left to do."""
        return self.resume and not self.longer and is_finished(self.path)


def plan_fit(arguments: Sequence[str]) -> FitPlan:
    """Return what the arguments of ``cwfed fit`` ask for.

    Raises:
        UsageError: Something is wrong; the message names the field.
    """
    parser = _parser()
    folders, others = take_option(arguments, "--resume")
    resumed = user_path(folders[-1], "--resume") if folders else None
    if resumed:
        arguments = _resume_arguments(resumed, others)
    with setting_up():
        ordered = order_arguments(arguments)
        said: list[str] = []
        return _plan(parser, parse(parser, ordered, said), resumed, said)


def plan_run(
    values: Mapping[str, Any], files: Sequence[str] = (), method: str | None = None
) -> FitPlan:
    """Return what plain values ask for, as `plan_fit` does for arguments.

    Args:
        values: Options by name, in groups as configuration files have them.
        files: Names of shipped configurations, or files; merged in order, the values win.
        method: Name of a shipped method, or a file, in the place of theirs.

    Raises:
        UsageError: Something is wrong; the message names the field.
    """
    arguments = [f"--config={file}" for file in files]
    arguments += [f"--algorithm={method}"] if method is not None else []
    parser = _parser()
    with setting_up():
        ordered = order_arguments(arguments)
        said: list[str] = []
        return _plan(parser, parse_values(parser, ordered, values, said), None, said)


def plan_rest(folder: Path, values: Mapping[str, Any]) -> FitPlan:
    """Return what is left of a run.

    Args:
        folder: The run folder.
        values: What is done otherwise from now on, as for `plan_run`.

    Raises:
        UsageError: Something is wrong; the message names the field.
    """
    parser = _parser()
    _require_run(folder)
    for option, value in leaves(Namespace(values)):
        _require_changeable(f"--{option}", value)
    with setting_up():
        arguments = order_arguments(["--config", str(folder / CONFIG)])
        return _plan(parser, parse_values(parser, arguments, values), folder)


def _parser() -> ArgumentParser:
    parser = make_parser("fit", "Train a method on a divided data set.")
    add_fit_options(parser)
    return parser


def _plan(
    parser: ArgumentParser, config: Namespace, resumed: Path | None, said: Sequence[str] = ()
) -> FitPlan:
    path = resumed or _new_folder(config)
    longer = resumed is not None and _is_longer(resumed, config.rounds)
    return FitPlan(parser, config, path, resumed is not None, longer, said)


def _new_folder(config: Namespace) -> Path:
    path = user_path(config.run_dir, "--run_dir") if config.run_dir else _default_folder(config)
    require_empty(path)
    return path


def _resume_arguments(folder: Path, others: Sequence[str]) -> list[str]:
    """Return the arguments of the run in the folder; only `_CHANGEABLE` may change."""
    _require_run(folder)
    for argument in others:
        if argument.startswith("--"):
            _require_changeable(argument.split("=")[0], argument)
    return ["--config", str(folder / CONFIG), *others]


def _require_run(folder: Path) -> None:
    if not (folder / CONFIG).is_file():
        raise UsageError(f"--resume: expected a run folder with a {CONFIG}, got {folder}")
    with setting_up(), blaming("--resume"):
        require_no_links(folder)


def _require_changeable(option: str, got: Any) -> None:
    if option not in _CHANGEABLE:
        raise UsageError(
            f"{option}: a resumed run keeps its configuration; expected only "
            f"{', '.join(_CHANGEABLE)} beside --resume, got {got}"
        )


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

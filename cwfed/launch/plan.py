"""What a person asks of a run, checked as far as no data are needed."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from jsonargparse import ArgumentParser, Namespace

from cwfed.config.files import UsageError, order_arguments, take_option, user_path
from cwfed.config.guard import setting_up
from cwfed.config.parser import add_fit_options, make_parser, parse
from cwfed.messages.texts import require_name
from cwfed.records.files import read_yaml
from cwfed.records.finished import is_finished
from cwfed.records.names import CONFIG
from cwfed.records.reading import require_no_links
from cwfed.runs.experiment import blaming
from cwfed.runs.folder import require_empty

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

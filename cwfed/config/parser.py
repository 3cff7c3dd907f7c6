"""The parser of a run's configuration, made from the signatures it configures."""

import inspect
import logging
import re
from argparse import ArgumentError
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import yaml
from jsonargparse import (
    ActionConfigFile,
    ArgumentParser,
    Namespace,
    get_loader,
    set_dumper,
    set_loader,
)
from lightning.pytorch.loggers import Logger
from torch import nn
from torch.optim import Optimizer

from cwfed.aggregators import Aggregator
from cwfed.config.class_change import OPTIMIZER, settle_changes
from cwfed.config.explain import explain
from cwfed.config.files import REPLACING, UsageError, check_text, load_mapping, user_path
from cwfed.config.guard import setting_up
from cwfed.config.numbers import check_numbers, leaves, odd_numbers, refuse_large, refuse_odd
from cwfed.config.trust import restrict_imports
from cwfed.config.unwritable import RunParser
from cwfed.config.written import (
    Written,
    check_classes,
    check_lists,
    written,
    written_values,
)
from cwfed.data.partitioners import Partitioner
from cwfed.data.sources import Source
from cwfed.engines.selection import BUILT_IN
from cwfed.messages.texts import brief_about
from cwfed.models import DATA_ARGUMENTS, Head, ModelFactory
from cwfed.objectives import ObjectiveTerm
from cwfed.records.files import read_yaml
from cwfed.records.identity import filled, is_resolved, older_meanings
from cwfed.records.plain_yaml import dump_yaml
from cwfed.records.reading import load_yaml
from cwfed.runs.experiment import Experiment
from cwfed.tracking.loggers import LoggerChoice
from cwfed.tracking.wandb_options import WandbOptions

COMPONENTS: dict[str, type] = {
    "data": Source,
    "partition": Partitioner,
    "algorithm.aggregator": Aggregator,
    "algorithm.objectives": ObjectiveTerm,
    "algorithm.head": Head,
    "logger": Logger,
}
"""Options whose value is chosen by class_path, and the base class that it must have."""

PLAIN_OPTIONS = ("config", "run_dir", "resume", "plot", "save", "save_pfllib", "trusted_modules")
"""Options that say where to read and write and whom to trust; not part of what a run is."""

_USUAL_OPTIMIZER = "torch.optim.SGD"

_parsers_yaml = get_loader("yaml")

log = logging.getLogger("cwfed")


class ConfigFile(ActionConfigFile):
    """A configuration file; errors in it name the file."""

    def __call__(
        self, parser: Any, cfg: Any, values: Any, option_string: str | None = None
    ) -> None:
        """Merge the file into the configuration; a method's file replaces the method first."""
        path = values.removeprefix(REPLACING)
        if path != values:
            cfg["algorithm"] = parser.get_defaults()["algorithm"]
        try:
            self.apply_config(parser, cfg, self.dest, _as_it_was_meant(path))
        except (TypeError, ValueError, ArgumentError) as error:
            said = brief_about(_content(path), str(error))
            raise UsageError(f"{path}: {explain(said, option_names(parser))}") from error


def _content(path: str) -> Any:
    """Return what a file holds, as far as it can be read."""
    try:
        return read_yaml(Path(path))
    except ValueError:
        return None


def _as_it_was_meant(path: str) -> str:
    """Return a file, or its content with the options that a run of an earlier version lacks.

    They had a meaning then, which may not be today's default.
    """
    content = load_mapping(Path(path))
    older = older_meanings(content) if is_resolved(content) else {}
    if not older:
        return path
    told = ", ".join(f"{name} {value}" for name, value in older.items())
    log.info("%s was written before these options; it keeps what was done then: %s", path, told)
    return dump_yaml(filled(content))


def _load_yaml(text: str) -> Any:
    """Read a file or a value of an option, as the parser does itself but for numbers."""
    try:
        value = load_yaml(text)
        # Texts such as `C:` and `{a, b}` look like mappings, which the parser knows.
        empty = isinstance(value, dict) and all(inner is None for inner in value.values())
        return _parsers_yaml(text) if empty else value
    except RecursionError as error:
        raise ValueError("expected values that end, got some that nest too deeply") from error


def make_parser(command: str, description: str, *, whole: bool = True) -> ArgumentParser:
    """Return the parser of one command: all options of an experiment and where it lives.

    Args:
        command: Its name.
        description: What it does.
        whole: Whether what has no default must be given.
    """
    restrict_imports(None)
    set_loader("yaml", _load_yaml, exceptions=(yaml.YAMLError, ValueError))
    set_dumper("yaml", partial(dump_yaml, allow_unicode=True))
    parser = RunParser(prog=f"cwfed {command}", description=description, exit_on_error=False)
    parser.add_argument("--config", action=ConfigFile, help=_CONFIG_HELP)
    parser.add_argument("--data_dir", type=str | None, default=None, help=_DATA_DIR_HELP)
    # Taken from the arguments before they are parsed; here for --help.
    parser.add_argument("--trusted_modules", type=str, nargs="*", help=_TRUSTED_HELP)
    parser.add_class_arguments(Experiment, None, skip={"model"})
    parser.add_subclass_arguments(
        nn.Module,
        "model",
        skip=set(DATA_ARGUMENTS),
        instantiate=False,
        required=whole,
        help="The network; what the data decides (classes, channels, image size) is filled in.",
    )
    _polish_help(parser)
    for action in () if whole else parser._actions:
        action.required = False
    parser.set_defaults(
        {"client.optimizer": {"class_path": _USUAL_OPTIMIZER, "init_args": {"lr": 0.005}}}
    )
    return parser


def _polish_help(parser: ArgumentParser) -> None:
    """Say of two options what a person needs instead of what their types make of them."""
    for action in parser._actions:
        if action.dest == "algorithm":
            action.metavar, action.help = "NAME", _ALGORITHM_HELP
        elif action.dest == "trainer.engine":
            action.metavar = "{auto,sequential,parallel,vectorized,CLASS_PATH}"
        elif action.dest == "model":
            # Every subclass of nn.Module that happens to be imported would be listed: hundreds.
            action.extra_help = lambda: ", built in: CNN4, ResNet18"  # type: ignore[attr-defined]
    for group in parser._action_groups:
        if group.title and group.title.startswith("Base class for all neural network modules"):
            group.title = "The network"


def add_fit_options(parser: ArgumentParser) -> None:
    """Add what only ``fit`` knows."""
    group = parser.add_argument_group("The run")
    group.add_argument("--run_dir", type=str | None, default=None, help=_RUN_DIR_HELP)
    group.add_argument("--resume", type=str | None, default=None, help=_RESUME_HELP)
    group.add_argument("--logger", type=LoggerChoice, default=None, help=_LOGGER_HELP)
    parser.add_class_arguments(WandbOptions, "wandb")


def parse(
    parser: ArgumentParser, arguments: Sequence[str], said: list[str] | None = None
) -> Namespace:
    """Parse arguments that `order_arguments` has put in order.

    Args:
        parser: The parser.
        arguments: The arguments.
        said: Takes what new classes keep and drop of those in whose place they are.

    Raises:
        UsageError: Something is wrong; the message names the field.
    """
    values = written(arguments)
    check_lists(values)
    check_classes(values)
    odd = odd_numbers(values)
    try:
        config = parser.parse_args(list(arguments))
    except (ArgumentError, UsageError) as error:
        message = explain(str(error), option_names(parser))
        refuse_odd(odd, message)
        if isinstance(error, UsageError):
            raise
        unknown = re.match(r"(?:.*: )?unknown key (\w+)", message)
        file = unknown and _file_with_key(unknown[1], arguments)
        raise UsageError(f"{file}: {message}" if file else message) from error
    except OverflowError as error:
        # Some types turn whole numbers into floats without a word about the option.
        refuse_large(odd)
        raise UsageError(f"expected numbers that a computer can hold: {error}") from error
    check_numbers(config, odd)
    _check_choices(config, values, said)
    return config


def parse_values(
    parser: ArgumentParser,
    arguments: Sequence[str],
    values: Mapping[str, Any],
    said: list[str] | None = None,
) -> Namespace:
    """Parse plain values over what configuration files say.

    Args:
        parser: The parser.
        arguments: The files, as `order_arguments` has put them in order.
        values: Options by name, in groups as files have them; they win over the files.
        said: As for `parse`.

    Raises:
        UsageError: Something is wrong; the message names the field.
    """
    given = list(written_values(values))
    check_lists(given)
    odd = odd_numbers(given)
    # What the files lack may be among the values.
    files = make_parser("fit", "", whole=False)
    add_fit_options(files)
    try:
        base = files.parse_args(list(arguments))
        config = parser.parse_object(dict(values), base)
    except (ArgumentError, UsageError) as error:
        if isinstance(error, UsageError):
            raise
        message = explain(str(error), option_names(parser))
        refuse_odd(odd, message)
        raise UsageError(message) from error
    except OverflowError as error:
        refuse_large(odd)
        raise UsageError(f"expected numbers that a computer can hold: {error}") from error
    check_numbers(config, odd)
    _check_choices(config, [*written(arguments), *given], said)
    return config


def _check_choices(config: Namespace, values: Sequence[Written], said: list[str] | None) -> None:
    _check_texts(config)
    _check_optimizer(config.client.optimizer)
    changes = settle_changes(config, values, {OPTIMIZER: _USUAL_OPTIMIZER})
    if said is not None:
        said += changes
    config.trainer.engine = _checked_engine(config.trainer.engine)


def named_class(path: str) -> type:
    """Return the class that a class_path names, if configurations may name it.

    Raises:
        UsageError: They may not, or there is none; nothing untrusted is imported.
    """
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--class_path", type=type[object])
    try:
        named: type = parser.parse_args([f"--class_path={path}"]).class_path
    except ArgumentError as error:
        raise UsageError(explain(str(error))) from error
    return named


def _check_optimizer(choice: Any) -> None:
    """Refuse a function with arguments: making the optimiser would call it, whatever it does."""
    path = choice.get("class_path") if isinstance(choice, Namespace) else None
    if path is None:
        return
    named = resolve_name(path)
    if not (isinstance(named, type) and issubclass(named, Optimizer)):
        raise UsageError(f"client.optimizer: expected a subclass of Optimizer, got {path}")


def _checked_engine(choice: Any) -> Any:
    """Return the choice of an engine: one of this package goes by its short name, however named.

    So it is checked and settled as such, and no part of what a run is known by.
    """
    if isinstance(choice, str):
        return choice
    kind = resolve_name(choice.class_path) if isinstance(choice, Namespace) else choice
    if not isinstance(kind, type) or inspect.isabstract(kind):
        lacking = ", ".join(sorted(getattr(kind, "__abstractmethods__", ())))
        named = f"{kind.__module__}.{kind.__qualname__}"
        without = f" without {lacking}" if lacking else ""
        raise UsageError(f"trainer.engine: expected a subclass of Engine, got {named}{without}")
    return next((name for name, ours in BUILT_IN.items() if kind is ours), choice)


def option_names(parser: ArgumentParser) -> list[str]:
    """Return the names of a parser's options, for suggestions."""
    return [action.dest for action in parser._actions if action.dest != "help"]


def _file_with_key(key: str, arguments: Sequence[str]) -> str | None:
    """Return the last configuration file that has the key; the parser forgets which it was."""
    for before, value in reversed(list(pairwise(arguments))):
        if before == "--config":
            path = value.removeprefix(REPLACING)
            if re.search(rf"\b{re.escape(key)}\b\s*:", Path(path).read_text(encoding="utf-8")):
                return path
    return None


def build(parser: ArgumentParser, config: Namespace) -> tuple[Experiment, Namespace]:
    """Make the experiment from a parsed configuration; also return the other options.

    Raises:
        UsageError: A component refuses its arguments; the message names the field.
    """
    with setting_up():
        instantiators = [
            (partial(_instantiate, option), base, True) for option, base in COMPONENTS.items()
        ]
        made = parser.instantiate(config, instantiators=instantiators)
        fields = {name: made[name] for name in Experiment.__dataclass_fields__ if name != "model"}
        if isinstance(engine := config.trainer.engine, Namespace):
            kind = resolve_name(engine.class_path)
            fields["trainer"].engine = partial(kind, **fields["trainer"].engine.keywords)
        return Experiment(model=_model_factory(config.model), **fields), made


def plain(parser: ArgumentParser, config: Namespace) -> dict[str, Any]:
    """Return the resolved configuration as plain values, less where it is read and written."""
    text = parser.dump(config, skip_unset=False)
    values: Mapping[str, Any] = load_yaml(text)
    order = [*Experiment.__dataclass_fields__, *values]
    return {key: values[key] for key in dict.fromkeys(order) if key not in PLAIN_OPTIONS}


def absolute_paths(config: Namespace) -> None:
    """Make the paths in a configuration work from any folder, as a resumed run needs."""
    if config.data_dir:
        config.data_dir = str(user_path(config.data_dir, "--data_dir").resolve())
    for option in ("data", "partition"):
        arguments = config[option].get("init_args") or Namespace()
        path = arguments.get("path")
        if isinstance(path, str):
            arguments.path = str(user_path(path, f"{option}.path").resolve())
        elif isinstance(path, list):
            arguments.path = [str(user_path(p, f"{option}.path").resolve()) for p in path]
    _check_texts(config)


def _check_texts(config: Namespace) -> None:
    for option, value in leaves(config):
        if isinstance(value, str):
            check_text(value, option, named=True)


def _model_factory(choice: Namespace) -> ModelFactory:
    init_args = choice.get("init_args") or Namespace()
    return partial(resolve_name(choice.class_path), **init_args.as_dict())


def _instantiate(option: str, class_type: type, *args: Any, **kwargs: Any) -> Any:
    try:
        return class_type(*args, **kwargs)
    except (ValueError, TypeError, OSError, ImportError) as error:
        raise ValueError(f"{option}: {class_type.__name__}: {error}") from error


_CONFIG_HELP = (
    "Configuration file, or the name of a shipped one such as mnist_practical. Several are merged "
    "in order; options given here win over all of them."
)
_ALGORITHM_HELP = (
    "Name of a shipped method such as cwfedavg, fedavg or local, or a file. Replaces the method of "
    "the configuration files. Default: cwfedavg."
)
_DATA_DIR_HELP = (
    "Folder searched for the data set before any download (parquet files, torchvision's layout, "
    "the zip). Default: the environment variable CWFED_DATA, else a folder in the user's cache."
)
_TRUSTED_HELP = (
    "Modules that configurations may name, with all below them, beside cwfed and torch.optim; "
    "those in the current folder are found only if . is among them. For configurations that "
    "others wrote. Default: the environment variable CWFED_TRUSTED_MODULES, else any module."
)
_RUN_DIR_HELP = "The run folder itself; new or empty. Default: a new folder below runs/."
_RESUME_HELP = (
    "Run folder to continue after an interruption, to the same numbers; with --rounds for longer."
)
_LOGGER_HELP = "tensorboard, wandb, Lightning loggers by class_path, or a list of these."

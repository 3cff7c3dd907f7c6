"""Finds configuration files and puts them in the order in which they count."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

DEFAULT_ALGORITHM = "cwfedavg"
REPLACING = "replace-algorithm:"
"""Prefix of a file whose method replaces the one chosen so far instead of merging into it."""


class UsageError(Exception):
    """A user's mistake, with one clear message."""


GROUPS = {
    "algorithm",
    "client",
    "trainer",
    "checkpoint",
    "snapshots",
    "faults",
    "figures",
    "released_code",
    "wandb",
}
"""Options that are groups of options."""

NOT_IN_FILES = {"config", "resume", "plot", "save", "save_pfllib", "trusted_modules"}
"""Options that a file cannot hold."""


def config_root() -> Path:
    """Return the folder of the shipped configurations: installed, or beside the package."""
    package = Path(__file__).resolve().parent.parent
    installed = package / "configs"
    return installed if installed.is_dir() else package.parent / "configs"


def user_path(text: str, option: str) -> Path:
    """Return the path a user gave, with ``~`` expanded.

    Raises:
        UsageError: It cannot be a path, or names an unknown user.
    """
    check_text(text, option)
    try:
        path = Path(text).expanduser()
        path.exists()
    except (OSError, ValueError, RuntimeError) as error:
        raise UsageError(f"{option}: expected a usable path, got {text[:80]!r}: {error}") from error
    return path


def check_text(text: str, option: str, *, named: bool = False) -> None:
    """Check that a text can be the name of a file and, if so asked, be written to one.

    Args:
        text: What a user gave.
        option: The option, for the message.
        named: Whether files of the run will hold it.

    Raises:
        UsageError: It holds a NUL character, or what is not UTF-8.
    """
    if "\0" in text:
        raise UsageError(f"{option}: expected a text without NUL characters, got {text[:80]!r}")
    if named and not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            known = text[:80].encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
            raise UsageError(f"{option}: expected a text in UTF-8, got {known}") from error


def find_config(text: str, option: str = "--config") -> Path:
    """Find a configuration by path, or by name among the shipped ones.

    ``configs/mnist_practical.yaml``, ``mnist_practical.yaml`` and ``mnist_practical`` all name
    the same shipped file when no file of that path exists.

    Raises:
        UsageError: There is no such file.
    """
    path = user_path(text, option)
    if path.is_file():
        return path
    name = text.removeprefix("configs/").removesuffix(".yaml") + ".yaml"
    shipped = config_root() / name
    if shipped.is_file() and shipped.resolve().is_relative_to(config_root()):
        return shipped
    known = ", ".join(sorted(p.stem for p in config_root().glob("*.yaml")))
    raise UsageError(f"{option}: expected an existing file or one of {known}; got {text!r}")


def output_file(option: str, text: str, suffixes: Sequence[str]) -> Path:
    """Return the path of a file to write, checked before the work is done.

    Raises:
        UsageError: Its suffix is another one, it is a folder, or its folder does not exist.
    """
    path = user_path(text, option)
    if path.suffix.lower() not in suffixes:
        raise UsageError(f"{option}: expected a name ending in {' or '.join(suffixes)}, got {text}")
    if path.is_dir():
        raise UsageError(f"{option}: expected a file, got the folder {path}")
    if not path.parent.is_dir():
        raise UsageError(f"{option}: expected an existing folder, got {path.parent}")
    return path


def find_algorithm(text: str) -> Path:
    """Find a method's configuration by its name, or by path.

    Raises:
        UsageError: There is no such method or file.
    """
    folder = config_root() / "algorithm"
    shipped = {path.stem: path for path in folder.glob("*.yaml")}
    if text in shipped:
        return shipped[text]
    if (path := user_path(text, "--algorithm")).is_file():
        return path
    raise UsageError(
        f"--algorithm: expected one of {', '.join(sorted(shipped))} or an existing file, "
        f"got {text!r}"
    )


def order_arguments(arguments: Sequence[str]) -> list[str]:
    """Put configuration files first and the method second, so that other options win.

    ``--config`` and ``--algorithm`` become paths. Without ``--algorithm`` and without a file that
    chooses a method, the default method comes first of all.
    """
    configs, rest = take_option(arguments, "--config")
    algorithms, rest = take_option(rest, "--algorithm")
    files = [find_config(text) for text in configs]
    chosen = [find_algorithm(text) for text in algorithms[-1:]]
    ordered = [part for file in files for part in ("--config", str(file))]
    for file in chosen:
        ordered += ["--config", f"{REPLACING}{file}"]
    # A file that does not say which method still changes parts of the default one.
    methods = [load_mapping(file).get("algorithm") or {} for file in files]
    if not chosen and not any("aggregator" in method for method in methods):
        ordered = ["--config", str(find_algorithm(DEFAULT_ALGORITHM)), *ordered]
    return ordered + rest


def load_mapping(path: Path) -> dict[str, Any]:
    """Read a YAML file that must hold a mapping.

    Raises:
        UsageError: It cannot be read, is no YAML, or holds something else.
    """
    # Imported here: --help and --version need none of what results need.
    from cwfed.records.files import read_yaml

    try:
        value = read_yaml(path)
    except ValueError as error:
        raise UsageError(str(error)) from error
    if not isinstance(value, dict):
        raise UsageError(f"{path}: expected a mapping of options, got {type(value).__name__}")
    for group in GROUPS & value.keys():
        if not isinstance(value[group], dict):
            raise UsageError(
                f"{path}: {group}: expected a mapping of options, got {str(value[group])[:60]!r}"
            )
    # Printed configurations hold them as null.
    if unknown := {name for name in NOT_IN_FILES & value.keys() if value[name] is not None}:
        raise UsageError(f"{path}: {min(unknown)}: expected on the command line, not in a file")
    return value


def take_option(arguments: Sequence[str], option: str) -> tuple[list[str], list[str]]:
    """Split off an option and its values: ``--option VALUE`` or ``--option=VALUE``."""
    taken: list[str] = []
    rest: list[str] = []
    pending = iter(arguments)
    for argument in pending:
        if argument == option:
            value = next(pending, None)
            if value is None or value.startswith("--"):
                raise UsageError(f"{option}: expected a value, got {value or 'nothing'}")
            taken.append(value)
        elif argument.startswith(f"{option}="):
            taken.append(argument.removeprefix(f"{option}="))
        else:
            rest.append(argument)
    return taken, rest


def as_arguments(options: Mapping[str, Any]) -> list[str]:
    """Return options by dotted name as they are typed; those that are None are left out.

    Example:
        >>> as_arguments({"rounds": 3, "algorithm.aggregator.scope": "all", "seed": None})
        ['--rounds=3', '--algorithm.aggregator.scope=all']
    """
    return [
        f"--{name}={value if isinstance(value, str) else json.dumps(value)}"
        for name, value in options.items()
        if value is not None
    ]

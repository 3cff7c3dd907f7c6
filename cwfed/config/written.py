"""Values as they stand on the command line and in configuration files, before they are parsed."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from cwfed.config.files import REPLACING, UsageError
from cwfed.records.plain_yaml import PlainLoader
from cwfed.records.reading import check_yaml

MOST_CHOSEN = 100
"""Classes in a list, such as terms of an objective: the time to read them grows with the square."""

_TEXT, _NULL, _MAPPING = (f"tag:yaml.org,2002:{kind}" for kind in ("str", "null", "map"))
_CHOSEN = re.compile(r"algorithm\.objectives|algorithm\.phases(\.\d+\.objectives)?|logger")


@dataclass(frozen=True)
class Written:
    """A value as it was written.

    Attributes:
        option: Dotted name of its option, less ``init_args``.
        node: The value: an unquoted scalar, a list or a mapping.
        file: The configuration file it stands in; None for the command line.
    """

    option: str
    node: yaml.Node
    file: str | None = None

    @property
    def field(self) -> str:
        """Return the option, with its file, as messages name it."""
        return f"{self.file}: {self.option}" if self.file else self.option


def written(arguments: Sequence[str]) -> list[Written]:
    """Return every unquoted scalar, every list and every mapping, in order.

    Args:
        arguments: Arguments that `order_arguments` has put in order.
    """
    return list(_written(arguments))


def written_values(value: Any, keys: tuple[str, ...] = ()) -> Iterator[Written]:
    """Return every value and every list among plain values, as if it had been written.

    Of what is no text only the place is told.

    Args:
        value: Options by name.
        keys: Names of what they are part of.
    """
    option = ".".join(key for key in keys if key != "init_args")
    if isinstance(value, Mapping):
        # A class first: what stands beside it are its arguments.
        for key in sorted(value, key=lambda key: key != "class_path"):
            yield from written_values(value[key], (*keys, str(key)))
    elif isinstance(value, list):
        yield Written(option, yaml.SequenceNode("tag:yaml.org,2002:seq", value))
        for index, inner in enumerate(value):
            yield from written_values(inner, (*keys, str(index)))
    else:
        text = value if isinstance(value, str) else ""
        yield Written(option, yaml.ScalarNode("tag:yaml.org,2002:str", text))


def check_classes(values: Sequence[Written]) -> None:
    """Refuse what is chosen as a class and names none, or has arguments without names.

    Raises:
        UsageError: A ``class_path`` is no text, or ``init_args`` are no mapping.
    """
    for value in values:
        parts = value.node.value if isinstance(value.node, yaml.MappingNode) else []
        by_name = {str(name.value): part for name, part in parts}
        path, arguments = by_name.get("class_path"), by_name.get("init_args")
        if path is not None and path.tag != _TEXT:
            raise _odd_part(value, "class_path", "the name of a class", path)
        if arguments is not None and arguments.tag not in (_NULL, _MAPPING):
            raise _odd_part(value, "init_args", "a mapping of arguments", arguments)


def _odd_part(value: Written, name: str, expected: str, node: yaml.Node) -> UsageError:
    kind = "a sequence" if isinstance(node, yaml.SequenceNode) else "a mapping"
    got = node.value if isinstance(node, yaml.ScalarNode) else kind
    return UsageError(f"{value.field}.{name}: expected {expected}, got {got}")


def check_lists(values: Sequence[Written]) -> None:
    """Refuse lists of classes that would take minutes to read.

    Raises:
        UsageError: One has more than `MOST_CHOSEN`.
    """
    lengths: dict[str, int] = {}
    for value in values:
        option = value.option.removesuffix("+")
        listed = isinstance(value.node, yaml.SequenceNode)
        added = option != value.option
        if listed or added:
            before = lengths.get(option, 0) if added else 0
            lengths[option] = before + (len(value.node.value) if listed else 1)
        _check_length(option, lengths.get(option, 0), value.field.removesuffix("+"))


def _check_length(option: str, count: int, field: str) -> None:
    if count > MOST_CHOSEN and _CHOSEN.fullmatch(option):
        raise UsageError(
            f"{field}: expected at most {MOST_CHOSEN} classes, since the time to read them grows "
            f"with the square of their number, got {count:,}"
        )


def _written(arguments: Sequence[str]) -> Iterator[Written]:
    for argument, after in pairwise([*arguments, ""]):
        name, equals, value = argument.partition("=")
        text = value if equals else after
        if name == "--config":
            path = text.removeprefix(REPLACING)
            yield from _in_text(_read(path), (), path)
        elif name.startswith("--"):
            keys = tuple(name.removeprefix("--").split("."))
            structured = text.lstrip().startswith(("[", "{"))
            scalar = yaml.ScalarNode("tag:yaml.org,2002:str", text)
            yield from _in_text(text, keys, None) if structured else _values(scalar, keys, None)


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""  # the parser says what is wrong with it


def _in_text(text: str, keys: tuple[str, ...], file: str | None) -> Iterator[Written]:
    try:
        check_yaml(text)
        tree = yaml.compose(text, Loader=PlainLoader)
    except (RecursionError, yaml.YAMLError):
        return  # likewise
    except ValueError as error:
        option = ".".join(keys).removesuffix("+")
        if _CHOSEN.fullmatch(option):
            raise UsageError(f"{option}: {error}") from error
        return
    if tree:
        yield from _values(tree, keys, file)


def _values(node: yaml.Node, keys: tuple[str, ...], file: str | None) -> Iterator[Written]:
    option = ".".join(key for key in keys if key != "init_args")
    if isinstance(node, yaml.MappingNode):
        if keys[-1:] != ("init_args",):
            yield Written(option, node, file)
        for key, value in node.value:
            yield from _values(value, (*keys, str(key.value)), file)
    elif isinstance(node, yaml.SequenceNode):
        yield Written(option, node, file)
        for index, value in enumerate(node.value):
            yield from _values(value, (*keys, str(index)), file)
    elif isinstance(node, yaml.ScalarNode) and not node.style:
        yield Written(option, node, file)

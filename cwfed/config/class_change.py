"""A class that takes the place of another: which arguments it inherits, and which are dropped.

The parser hands arguments that were written for the class before to the new one where that has some
of their names. For a learning rate that is wrong: it belongs to its optimiser.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import Parameter, signature
from pkgutil import resolve_name

import yaml
from jsonargparse import Namespace

from cwfed.config.written import Written

OPTIMIZER = "client.optimizer"
CHOICES = ("data", "partition", "model", OPTIMIZER)
"""Options whose class may be changed on its own; a method is changed as a whole."""


@dataclass
class Change:
    """A class that was chosen over an earlier one.

    Attributes:
        before: The earlier class, as it was written.
        inherited: Names of arguments that were written for an earlier class.
        given: Names of arguments that were written with the class, or after it.
    """

    before: str
    inherited: set[str] = field(default_factory=set)
    given: set[str] = field(default_factory=set)


def settle_changes(
    config: Namespace, values: Sequence[Written], usual: Mapping[str, str]
) -> list[str]:
    """Give a new optimiser its own learning rate.

    Args:
        config: The parsed configuration; an optimiser without a learning rate of its own takes
            the default of its class.
        values: What was written, in order.
        usual: Classes of options where none was written.

    Returns:
        What every new class keeps and drops of the one before, a line each.
    """
    found = [(option, last_change(option, values, usual.get(option))) for option in CHOICES]
    said = [_settle(option, config[option], change) for option, change in found if change]
    return [line for line in said if line]


def last_change(option: str, values: Sequence[Written], usual: str | None) -> Change | None:
    """Return the last change of an option's class; None where it was chosen but once."""
    current, given, change = usual, set[str](), None
    read = [(value.file, *found) for value in values for found in _read(option, value)]
    # On one command line the class comes first, wherever it stands.
    for _, name, text in sorted(read, key=lambda it: it[0] is None and (1 if it[1] == "" else 2)):
        if name:
            given.add(name)
        elif current is None or _short(text) == _short(current):
            current = text
        else:
            inherited = (change.inherited if change else set()) | given
            current, given, change = text, set(), Change(current, inherited)
    if change:
        change.given = given
        change.inherited -= given
    return change


def _read(option: str, value: Written) -> Iterator[tuple[str, str]]:
    """Yield what was written for an option: a class without a name, an argument by its name."""
    if value.option == option:
        if isinstance(value.node, yaml.ScalarNode):
            yield "", value.node.value
        for key, inner in value.node.value if isinstance(value.node, yaml.MappingNode) else ():
            if key.value == "class_path":
                yield "", inner.value
    elif value.option.startswith(f"{option}."):
        name = value.option.removeprefix(f"{option}.").split(".")[0]
        if name not in ("class_path", "dict_kwargs"):
            yield name, ""
        elif name == "class_path" and isinstance(value.node, yaml.ScalarNode):
            yield "", value.node.value


def _short(path: str) -> str:
    return path.rpartition(".")[2]


def _settle(option: str, choice: Namespace, change: Change) -> str:
    arguments = choice.get("init_args") or Namespace()
    kept = {name: arguments[name] for name in sorted(change.inherited) if name in arguments}
    dropped = sorted((change.inherited | change.given) - set(vars(arguments)))
    own = ""
    if option == OPTIMIZER and "lr" in arguments and "lr" not in change.given:
        default = signature(resolve_name(choice.class_path)).parameters["lr"].default
        if default is not Parameter.empty:
            kept.pop("lr", None)
            arguments.lr = default
            own = f"takes its own learning rate {default:g}"
    said = [
        own,
        f"keeps {', '.join(f'{name} {value}' for name, value in kept.items())}" if kept else "",
        f"drops {', '.join(dropped)}" if dropped else "",
    ]
    if not any(said):
        return ""
    new, old = _short(choice.class_path), _short(change.before)
    return f"{option}: {new} in the place of {old} {', '.join(filter(None, said))}"

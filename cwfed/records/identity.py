"""A run's identity: what was chosen and can change a number, whatever it is called or spelled.

A resolved configuration states every option. Its identity keeps those that differ from a numbered
set of defaults (`cwfed.records.defaults`) and leaves out those that cannot change a number
(`CANNOT_CHANGE_NUMBERS`). Classes of this package and PyTorch's optimisers go by their public
names, so that they may move; all others by their full path. So another order of keys, a new option
at its default or an optimiser that gains an argument leave an identity as it is.

Version 1 is the hash that version 0.1 of this package made, of class paths and all defaults; it is
kept to know the runs, checkpoints and ledger lines of that time.
"""

import hashlib
import inspect
import json
from collections.abc import Mapping
from copy import deepcopy
from functools import cache
from typing import Any

from cwfed.records.defaults import CHANGES, VERSION_1

VERSION = max(CHANGES)
"""The version of identities that runs are given now."""

CANNOT_CHANGE_NUMBERS: Mapping[str, str] = {
    "config": "files that the configuration was read from; what they say is in it",
    "run_dir": "a place",
    "resume": "a place; what may change beside it is in this list, or the number of rounds",
    "data_dir": "a place; what lies there enters through the hash of the partition",
    "data.path": "a place; what lies there enters through the hash of the partition",
    "partition.path": "a place; what lies there enters through the hash of the partition",
    "plot": "a place",
    "save": "a place",
    "save_pfllib": "a place",
    "trusted_modules": "refuses classes, changes none",
    "logger": "who is told",
    "wandb": "who is told, and what is kept for it",
    "checkpoint": "what is kept",
    "snapshots": "what is kept",
    "figures": "what is drawn",
    "faults.policy": "ends a run or not; the rounds before are the same, and it may change later",
    "trainer.accelerator": "the last bits at most",
    "trainer.engine": "the last bits at most, if it is of this package; else it is part of it",
    "trainer.threads": "the last bits at most",
    "trainer.workers": "nothing",
    "trainer.chunk": "the last bits at most",
    "trainer.kernel": "the last bits at most",
    "trainer.memory_format": "the last bits at most",
    "trainer.eval_batch_size": "the last bits of a loss at most",
}
"""Options, or groups of them, that are no part of an identity, each with the reason."""

_RESOLVED = {
    "data", "partition", "model", "algorithm", "seed", "rounds", "participation", "val_fraction",
    "wdr_lambda", "head", "client", "released_code",
}  # fmt: skip
"""Options that every resolved configuration states; one by a person leaves something out."""

_FIRST_TRAINER_OPTIONS = ("precision", "matmul_precision")
_FIRST_PLACES = ("run_dir", "data_dir", "logger", "wandb", "checkpoint", "snapshots", "figures")


def config_hash(config: Mapping[str, Any], version: int = VERSION) -> str:
    """Return the identity of a resolved configuration, a SHA-256 in hexadecimal digits.

    Args:
        config: The configuration, plain values.
        version: Version of the identity, from 1 on.

    Raises:
        ValueError: It, or a group of its options, is no mapping.
    """
    _mapping(config, "configuration")
    if version == 1:
        text = json.dumps(_first_portable(config), sort_keys=True)
    else:
        content = {"identity": version, "chosen": chosen(config, version)}
        text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def cell_hash(config: Mapping[str, Any]) -> str:
    """Return the identity of a resolved configuration whatever its seed and number of rounds."""
    return config_hash({**_mapping(config, "configuration"), "rounds": None, "seed": None})


def identities(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a configuration's identities by all versions, the newest first."""
    return tuple(config_hash(config, version) for version in (*sorted(CHANGES, reverse=True), 1))


def chosen(config: Mapping[str, Any], version: int = VERSION) -> dict[str, Any]:
    """Return what a resolved configuration chooses: all that can change a number and is no default.

    Args:
        config: The configuration, plain values; whole, or less some of its options.
        version: Version of the defaults, from 2 on.

    Returns:
        A configuration in which classes have their public names, and whole numbers no fraction.
    """
    made, table = filled(config), defaults(version)
    client = made.get("client")
    usual = client.get("local_epochs") if isinstance(client, Mapping) else None
    epochs = table["client.local_epochs"] if usual is None else usual
    return _chosen_options(made, "", table, epochs)


def portable(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a resolved configuration less what cannot change a number.

    Raises:
        ValueError: It is no mapping.
    """
    return _portable(_mapping(config, "configuration"), "")


def filled(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a resolved configuration with the options that it is too old to state.

    Only those that would have another meaning now are filled in: with the one of its time.
    """
    made = deepcopy(dict(config))
    for name in _changed():
        _fill(made, name)
    return made


def older_meanings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that `filled` fills in, by name, with their values."""
    found = {}
    for name in _changed():
        made = deepcopy(dict(config))
        _fill(made, name)
        if made != config:
            found[name] = VERSION_1[name]
    return found


def is_resolved(config: Mapping[str, Any]) -> bool:
    """Return whether a configuration is one that a run has left, not one that a person wrote."""
    return set(config) >= _RESOLVED


@cache
def defaults(version: int = VERSION) -> Mapping[str, Any]:
    """Return the defaults of a version by name, as `cwfed.records.defaults` has them."""
    made = dict(VERSION_1)
    for number in sorted(CHANGES):
        if number <= version:
            made |= CHANGES[number]
    return made


def public_name(path: str) -> str:
    """Return the name by which an identity knows a class.

    >>> public_name("cwfed.aggregators.cwfedavg.CwFedAvg")
    'CwFedAvg'
    >>> public_name("torch.optim.sgd.SGD")
    'SGD'
    >>> public_name("torch.nn.modules.linear.Linear")
    'torch.nn.Linear'
    >>> public_name("mine.CwFedAvg")
    'mine.CwFedAvg'
    """
    first, *rest = path.split(".")
    if rest and (first == "cwfed" or (first, rest[0]) == ("torch", "optim")):
        return rest[-1]
    if [first, *rest[:2]] == ["torch", "nn", "modules"]:
        return f"torch.nn.{rest[-1]}"
    return path


@cache
def _changed() -> tuple[str, ...]:
    """Return the names whose default is not that of version 1."""
    return tuple(name for name in defaults() if not _same(defaults()[name], VERSION_1[name]))


def _fill(config: dict[str, Any], name: str) -> None:
    option, _, argument = name.rpartition(".")
    if option[:1].isupper():
        _fill_class(config, option, argument, VERSION_1[name])
    else:
        _fill_option(config, name.split("."), VERSION_1[name])


def _fill_option(config: dict[str, Any], path: list[str], value: Any) -> None:
    for group in path[:-1]:
        config = config.get(group)  # type: ignore[assignment]
        if not isinstance(config, dict):
            return
    config.setdefault(path[-1], deepcopy(value))


def _fill_class(value: Any, name: str, argument: str, default: Any) -> None:
    """Give an argument to every choice of a class that lacks it, at any depth."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for part in inner:
        _fill_class(part, name, argument, default)
    if not isinstance(value, dict):
        return
    if name == "TrainingPhase":
        phases = value.get("phases")
        for phase in phases if isinstance(phases, list) else []:
            if isinstance(phase, dict):
                phase.setdefault(argument, deepcopy(default))
    elif public_name(str(value.get("class_path"))) == name:
        arguments = value.get("init_args") or {}
        value["init_args"] = {argument: deepcopy(default), **arguments}


def _chosen_options(
    group: Mapping[str, Any], prefix: str, table: Mapping[str, Any], local_epochs: Any
) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, value in group.items():
        name = f"{prefix}{key}"
        if _cannot_change(name, value):
            continue
        if isinstance(value, Mapping) and any(known.startswith(f"{name}.") for known in table):
            value = _chosen_options(value, f"{name}.", table, local_epochs)
            if not value:
                continue
        elif name == "algorithm.phases" and isinstance(value, list):
            value = [_chosen_phase(phase, local_epochs, table) for phase in value]
        else:
            value = _chosen_value(value, table, known=True, option=name)
        if name in table and _same(value, table[name]):
            continue
        kept[str(key)] = value
    return kept


def _chosen_phase(phase: Any, local_epochs: Any, table: Mapping[str, Any]) -> Any:
    if not isinstance(phase, Mapping):
        return phase
    values = {str(n): _chosen_value(value, table, known=True) for n, value in phase.items()}
    if "epochs" in values and _same(values["epochs"], local_epochs):
        # As many as null stands for.
        del values["epochs"]
    return _different(values, "TrainingPhase", table)


def _chosen_value(
    value: Any, table: Mapping[str, Any], *, known: bool, option: str | None = None
) -> Any:
    """Return a value with its classes reduced to what was chosen.

    Args:
        value: The value, plain.
        table: The defaults.
        known: Whether its type is ours to know, so that 1 and 1.0 are one number.
        option: The option whose value it is, for the names of places.
    """
    if isinstance(value, list | tuple):
        return [_chosen_value(inner, table, known=known) for inner in value]
    if isinstance(value, Mapping):
        if isinstance(value.get("class_path"), str):
            return _chosen_class(value, table, option)
        return {str(n): _chosen_value(inner, table, known=known) for n, inner in value.items()}
    if known and isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _chosen_class(
    choice: Mapping[str, Any], table: Mapping[str, Any], option: str | None
) -> dict[str, Any]:
    path = choice["class_path"]
    name = public_name(path)
    known = name != path or "." not in path
    gains = path.startswith("torch.optim.")
    kept: dict[str, Any] = {"class_path": name}
    for part in ("init_args", "dict_kwargs"):
        given = choice.get(part)
        if not isinstance(given, Mapping):
            continue
        values = {
            str(key): _chosen_value(value, table, known=known)
            for key, value in given.items()
            if f"{option}.{key}" not in CANNOT_CHANGE_NUMBERS
        }
        values = _different(values, name, table, gains) if known else values
        if values:
            kept[part] = values
    return kept


def _different(
    values: Mapping[str, Any], name: str, table: Mapping[str, Any], gains: bool = False
) -> dict[str, Any]:
    """Return the arguments of a class that are not at their defaults.

    Args:
        values: All arguments.
        name: The class's name in the table.
        table: The defaults.
        gains: Whether the class is PyTorch's and may know arguments that the table does not.
    """
    kept = {}
    for argument, value in values.items():
        default = table.get(f"{name}.{argument}", ...)
        if default is ... and gains:
            default = _newer_default(name, argument)
        if default is ... or not _same(value, default):
            kept[argument] = value
    return kept


@cache
def _newer_default(optimizer: str, argument: str) -> Any:
    """Return the default of an argument that PyTorch's optimiser has gained; `...` for none."""
    import torch  # only here: reading what a run has left needs no framework

    kind = getattr(torch.optim, optimizer, None)
    parameter = kind and inspect.signature(kind).parameters.get(argument)
    return ... if parameter is None or parameter.default is parameter.empty else parameter.default


def _same(a: Any, b: Any) -> bool:
    """Return whether two plain values are one: 1 and 1.0 are, 1 and true are not."""
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    return isinstance(a, bool) == isinstance(b, bool) and bool(a == b)


def _portable(group: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, value in group.items():
        if _cannot_change(f"{prefix}{key}", value):
            continue
        if isinstance(value, Mapping):
            # Arguments of a class are known by the option whose class it is.
            value = _portable(value, prefix if key == "init_args" else f"{prefix}{key}.")
        kept[key] = value
    return kept


def _cannot_change(name: str, value: Any) -> bool:
    """Return whether an option changes no number.

    That all engines give the same numbers is held for those of this package. Nobody holds it for
    one of another module, which may train in any way: it is a choice like that of an aggregator.
    """
    return name in CANNOT_CHANGE_NUMBERS and not (name == "trainer.engine" and _elsewhere(value))


def _elsewhere(choice: Any) -> bool:
    """Return whether a class is of another package than this one."""
    path = choice.get("class_path") if isinstance(choice, Mapping) else choice
    return isinstance(path, str) and "." in public_name(path)


def _first_portable(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what version 1 hashes of a configuration, as it was."""
    kept = {name: value for name, value in config.items() if name not in _FIRST_PLACES}
    usual = {
        name.removeprefix("faults."): value
        for name, value in VERSION_1.items()
        if name.startswith("faults.")
    }
    kept.pop("faults", None)
    faults = {n: value for n, value in _group(config, "faults").items() if n != "policy"}
    if usual | faults != usual:
        kept["faults"] = {**faults, "policy": "exclude"} if "policy" in config["faults"] else faults
    trainer = _group(config, "trainer")
    kept["trainer"] = {name: trainer[name] for name in _FIRST_TRAINER_OPTIONS if name in trainer}
    if _elsewhere(trainer.get("engine")):
        # Then there was none: a run with one is no run of that time.
        kept["trainer"]["engine"] = trainer["engine"]
    for name in ("data", "partition"):
        choice = dict(_group(config, name))
        arguments = dict(_group(choice, "init_args"))
        arguments.pop("path", None)
        kept[name] = {**choice, "init_args": arguments}
    return kept


def _group(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a group of options, an empty one where there is none."""
    return _mapping(config.get(name) or {}, name)


def _mapping(value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{name}: expected a mapping of options, got {value!r:.60}")
    return value

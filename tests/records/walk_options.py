"""Every option of a run, walked from the types of the configuration itself."""

import inspect
from dataclasses import MISSING, fields, is_dataclass
from pkgutil import walk_packages
from typing import Any, get_args, get_type_hints

import torch
from torch import nn

import cwfed
from cwfed.clients.phase import TrainingPhase
from cwfed.config.parser import COMPONENTS, add_fit_options, make_parser
from cwfed.models import DATA_ARGUMENTS
from cwfed.records.identity import public_name
from cwfed.runs import Experiment

GROUPS_OF = {"phases": TrainingPhase}


def parser():
    made = make_parser("fit", "")
    add_fit_options(made)
    return made


def option_defaults() -> dict[str, Any]:
    """Defaults of all options but those inside of classes, by dotted name; `...` without one."""
    found: dict[str, Any] = {}

    def walk(kind, prefix):
        hints = get_type_hints(kind)
        for entry in fields(kind):
            name, inner = f"{prefix}{entry.name}", hints[entry.name]
            if is_dataclass(inner):
                walk(inner, f"{name}.")
            elif entry.default is not MISSING:
                found[name] = entry.default
            elif entry.default_factory is not MISSING:
                found[name] = entry.default_factory()
            else:
                found[name] = ...

    walk(Experiment, "")
    found["client.optimizer"] = {"class_path": "SGD", "init_args": {"lr": 0.005}}
    for action in parser()._actions:
        name = action.dest
        if name != "help" and not any(n == name or n.startswith(f"{name}.") for n in found):
            found[name] = action.default
    return found


def classes() -> dict[str, type]:
    """Classes that an option may name: all of cwfed's, and PyTorch's optimisers, by name."""
    for module in walk_packages(cwfed.__path__, "cwfed."):
        if not module.name.endswith("__main__"):
            __import__(module.name)
    bases = [base for option, base in COMPONENTS.items() if option != "logger"]
    found: dict[str, type] = {}
    for base in [*bases, torch.optim.Optimizer, nn.Module]:
        for kind in _subclasses(base):
            public = not kind.__name__.startswith("_")
            own = kind.__module__.startswith("cwfed.") and not inspect.isabstract(kind)
            if base is nn.Module:
                own = kind.__module__.startswith("cwfed.models.")
            if base is torch.optim.Optimizer:
                own = getattr(torch.optim, kind.__name__, None) is kind
            if public and own:
                name = public_name(f"{kind.__module__}.{kind.__qualname__}")
                assert found.setdefault(name, kind) is kind, f"two classes are called {name}"
    return found


def class_defaults(kind: type) -> dict[str, Any]:
    """Defaults of a class's arguments; `...` for one that has none."""
    given = {*DATA_ARGUMENTS} if issubclass(kind, nn.Module) else {"params"}
    arguments = inspect.signature(kind).parameters.values()
    return {
        p.name: ... if p.default is p.empty else p.default
        for p in arguments
        if p.name not in given and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
    }


def phase_defaults() -> dict[str, Any]:
    return {entry.name: entry.default for entry in fields(TrainingPhase)}


def _subclasses(base):
    for kind in base.__subclasses__():
        yield kind
        yield from _subclasses(kind)


__all__ = ["class_defaults", "classes", "get_args", "option_defaults", "phase_defaults"]

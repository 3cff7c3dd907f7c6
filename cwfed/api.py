"""Runs from Python: ``cwfed fit`` as functions.

A run made here is the run that the command line makes from the same options, to the bit: both have
one parser, its defaults and its messages, and one run folder.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import MISSING, fields
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from cwfed.config.files import GROUPS, UsageError, user_path
from cwfed.federated.callbacks import LoopCallback
from cwfed.federated.options import Algorithm
from cwfed.federated.stop import Stop
from cwfed.launch.plan import FitPlan, plan_rest, plan_run
from cwfed.launch.start import start
from cwfed.messages.showing import showing_messages
from cwfed.messages.terminal import Terminal
from cwfed.messages.texts import one_line
from cwfed.processes.lock import unlocked_afterwards
from cwfed.processes.own_modules import searching_named
from cwfed.records.run import Run
from cwfed.tracking.progress import ProgressPrinter

_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_NOT_OPTIONS = {"config", "help", "plot", "print_config", "resume", "save", "save_pfllib"}
"""Names that the command line knows but a run from Python does not."""


def fit(
    *configs: str | Path,
    run_dir: str | Path | None = None,
    progress: bool = True,
    **options: Any,
) -> Run:
    """Train, as ``cwfed fit`` does, and return the finished run.

    Options are those of ``cwfed fit --help``. A group of options is a mapping, or one name with
    dots: ``client={"batch_size": 20}`` and ``**{"client.batch_size": 20}`` are the same. Where a
    class is chosen, the class itself, its name or ``{"class_path": …, "init_args": {…}}`` will do.
    ``algorithm`` is the name of a method, a file, or a mapping: one with an ``aggregator`` is a
    method of its own, any other changes parts of the method of the configurations.

    Args:
        configs: Names of shipped configurations, or files; merged in order.
        run_dir: The run folder, new or empty: a folder with a run is refused, see `resume`. By
            default a new one below ``runs/`` in the current folder.
        progress: Whether to show the rounds on standard error.
        options: Options of the run; they win over the configurations.

    Returns:
        The run, as its folder holds it.

    Raises:
        ValueError: A mistake; the message is the one of the command line. Nothing is written.
        KeyboardInterrupt: Ctrl-C, or SIGTERM, SIGHUP or SIGUSR1 where the program does not handle
            them. Finished rounds are kept; `resume` continues.
        OSError: A file of the run cannot be written, as on a full disk; likewise.
        cwfed.engines.parallel.workers.WorkerError: A process of the parallel engine died; likewise.
        cwfed.federated.faults.RunStopped: The run cannot go on, or was asked not to; likewise.
    """
    with _asking():
        values = _values(options)
        if run_dir is not None:
            values["run_dir"] = os.fspath(run_dir)
        method = values.pop("algorithm") if isinstance(values.get("algorithm"), str) else None
        plan = plan_run(values, [os.fspath(config) for config in configs], method)
    return _train(plan, progress)


def resume(
    path: str | Path,
    *,
    rounds: int | None = None,
    data_dir: str | Path | None = None,
    faults: Mapping[str, Any] | None = None,
    wandb: Mapping[str, Any] | None = None,
    progress: bool = True,
) -> Run:
    """Continue a run after an interruption, to the same numbers; a finished one is only read.

    Args:
        path: The run folder.
        rounds: More rounds than the run was to have, finished or not: it goes on to that many, to
            the numbers of a run that was to have them from the start.
        data_dir: Where the data set lies, if it has moved.
        faults: ``{"policy": "exclude"}`` or ``{"policy": "stop"}``: what is done from now on about
            clients that fail.
        wandb: ``{"mode": "offline"}`` where the network cannot be used now; see `fit`.
        progress: Whether to show the rounds on standard error.

    Returns:
        The finished run.

    Raises:
        ValueError: The folder holds no run, or another process is writing it.
        KeyboardInterrupt: As for `fit`.
        OSError: As for `fit`.
        cwfed.engines.parallel.workers.WorkerError: As for `fit`.
        cwfed.federated.faults.RunStopped: As for `fit`.
    """
    with _asking():
        given = {"rounds": rounds, "data_dir": data_dir, "faults": faults, "wandb": wandb}
        values = _values({name: it for name, it in given.items() if it is not None})
        plan = plan_rest(user_path(os.fspath(path), "--resume"), values)
    if plan.done:
        return Run.load(plan.path)
    return _train(plan, progress)


def _train(plan: FitPlan, progress: bool) -> Run:
    # What a command leaves behind ends with its process; here the process goes on.
    with ExitStack() as stack:
        stack.enter_context(_same_threads())
        stack.enter_context(unlocked_afterwards())
        stop = Stop()
        stack.enter_context(stop.watch())
        callbacks: list[LoopCallback] = [stop]
        if progress:
            stack.enter_context(showing_messages())
            printer = ProgressPrinter(plan.config.algorithm.name, Terminal(stderr=True))
            stack.callback(printer.close)
            callbacks.insert(0, printer)
        with _asking():
            loop, states = start(plan, callbacks)
        with searching_named():
            loop.run(states.pop())
    return Run.load(plan.path)


@contextmanager
def _asking() -> Iterator[None]:
    """Turn the command line's refusals into ValueErrors; find own classes where they are named."""
    try:
        with searching_named():
            yield
    except UsageError as error:
        # How the parser came to it helps nobody.
        raise ValueError(one_line(str(error))) from None


@contextmanager
def _same_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _values(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options as plain values, in groups as configuration files have them.

    Example:
        >>> _values({"rounds": 3, "client.batch_size": 20, "client": {"local_epochs": 2}})
        {'rounds': 3, 'client': {'local_epochs': 2, 'batch_size': 20}}
    """
    values: dict[str, Any] = {}
    # Groups and classes first: options of one name are parts of them.
    for name in sorted(options, key=lambda name: name.count(".")):
        if not _NAME.fullmatch(name) or name in _NOT_OPTIONS or name.endswith(".help"):
            raise UsageError(f"{name}: expected the name of an option that cwfed fit --help lists")
        if name in GROUPS - {"algorithm"} and not isinstance(options[name], Mapping):
            raise UsageError(
                f"{name}: expected a mapping of options, got {str(options[name])[:60]!r}"
            )
        value = _plain(name, options[name])
        if name == "algorithm" and isinstance(value, dict):
            value = _whole_method(value)
        _put(values, name, value)
    return values


def _put(values: dict[str, Any], name: str, value: Any) -> None:
    """Put a value where its dotted name says; arguments of a class go to the class."""
    *groups, last = name.split(".")
    for key in groups:
        inner = values.setdefault(key, {})
        if not isinstance(inner, dict):
            inner = values[key] = {"class_path": inner}
        values = inner.setdefault("init_args", {}) if "class_path" in inner else inner
    if isinstance(values.get(last), dict) and isinstance(value, dict):
        value = values[last] | value
    values[last] = value


def _whole_method(method: dict[str, Any]) -> dict[str, Any]:
    """Fill in what a method of one's own leaves open, so that nothing of the default one stays."""
    aggregator = method.get("aggregator")
    if isinstance(aggregator, dict) and "class_path" not in aggregator:
        return method  # arguments for the aggregator of the configurations
    if aggregator is None:
        return method
    if "name" not in method:
        raise UsageError("algorithm.name: expected a name for the method, got none")
    left_open = {
        field.name: None if field.default_factory is MISSING else field.default_factory()
        for field in fields(Algorithm)
        if field.default is not MISSING or field.default_factory is not MISSING
    }
    return {**left_open, **method}


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, type):
        return _import_path(name, value)
    if isinstance(value, os.PathLike):
        return str(user_path(os.fspath(value), name))
    if isinstance(value, Mapping):
        return _class_with_arguments({str(k): _plain(f"{name}.{k}", v) for k, v in value.items()})
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(name, item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        return value.item()
    raise UsageError(
        f"{name}: expected a number, a text, a path, a class, or a list or mapping of these, got "
        f"{type(value).__name__}; a class with arguments is "
        f"{{'class_path': …, 'init_args': {{…}}}}"
    )


def _class_with_arguments(values: dict[str, Any]) -> dict[str, Any]:
    """Put what stands beside a class among its arguments."""
    if "class_path" not in values:
        return values
    given = values.get("init_args") or {}
    if not isinstance(given, dict):
        raise UsageError(f"init_args: expected a mapping of arguments, got {str(given)[:60]!r}")
    beside = values.keys() - {"class_path", "init_args", "dict_kwargs"}
    arguments = {**given, **{name: values[name] for name in beside}}
    rest = {name: value for name, value in values.items() if name not in beside}
    return rest | {"init_args": arguments} if arguments else rest


def _import_path(name: str, chosen: type) -> str:
    if chosen.__module__ == "__main__" or "<locals>" in chosen.__qualname__:
        raise UsageError(
            f"{name}: expected a class that can be imported, since a resumed run has to find it, "
            f"got {chosen.__qualname__} of {chosen.__module__}: write it to a file"
        )
    # By the shortest name, as the parser writes what is chosen by name: the run stays the same.
    parts = chosen.__module__.split(".")
    for count in range(1, len(parts)):
        module = ".".join(parts[:count])
        if getattr(import_module(module), chosen.__qualname__, None) is chosen:
            return f"{module}.{chosen.__qualname__}"
    return f"{chosen.__module__}.{chosen.__qualname__}"

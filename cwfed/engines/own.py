"""Engines of other modules: how one is made, and by which name it goes."""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

from cwfed.engines.base import Engine, EngineFactory, Workload


def make_own(factory: EngineFactory, workload: Workload, settled: Mapping[str, Any]) -> Engine:
    """Return an engine of another module.

    Args:
        factory: Its class, or one with some of its arguments filled in.
        workload: What local training is.
        settled: What a run has settled, by the names of `EngineFactory`; an engine gets those
            that its constructor has.

    Raises:
        ValueError: It refuses its arguments, or what it makes is no engine.
    """
    given = {name: settled[name] for name in settled.keys() & arguments_of(factory)}
    try:
        made = cast(Callable[..., Any], factory)(workload=workload, **given)
    except (ValueError, TypeError, OSError, ImportError) as error:
        raise ValueError(f"trainer.engine: {engine_name(factory)}: {error}") from error
    if not isinstance(made, Engine):
        raise ValueError(
            f"trainer.engine: expected a subclass of Engine, got {engine_name(factory)}"
        )
    return made


def engine_name(engine: str | EngineFactory) -> str:
    """Return the name of an engine: that of the option, or where its class is."""
    if isinstance(engine, str):
        return engine
    kind = _kind(engine)
    return f"{kind.__module__}.{kind.__qualname__}"


def arguments_of(factory: EngineFactory) -> set[str]:
    """Return the names of a constructor's arguments; ``**kwargs`` stands for those of its base."""
    kind, names = _kind(factory), set[str]()
    for one in inspect.getmro(kind) if isinstance(kind, type) else [kind]:
        made = vars(one).get("__init__") if isinstance(one, type) else one
        if made is None:
            continue
        parameters = inspect.signature(made).parameters.values()
        names |= {parameter.name for parameter in parameters}
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
            break
    return names


def _kind(factory: EngineFactory) -> Any:
    return factory.func if isinstance(factory, partial) else factory

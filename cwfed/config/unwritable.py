"""Default arguments that a file cannot hold, such as ``partial(nn.LeakyReLU, 0.2)``: left out.

A class that finds such an argument missing takes its default, which is what it was. Nobody can have
given another one: what is given is text or plain values.
"""

from enum import Enum
from os import PathLike
from typing import Any

from jsonargparse import ArgumentParser, Namespace


class RunParser(ArgumentParser):
    """A parser whose dumps hold only what can be read back."""

    def dump(self, cfg: Namespace, *args: Any, **options: Any) -> str:
        """Return a configuration as text, less default arguments that no file can hold."""
        written = cfg.clone()
        leave_out_unwritable(written)
        return str(super().dump(written, *args, **options))


def leave_out_unwritable(config: Any) -> None:
    """Take default arguments that no file can hold out of a configuration, or a part of one."""
    if isinstance(config, list):
        for item in config:
            leave_out_unwritable(item)
    if not isinstance(config, Namespace):
        return
    for name in list(vars(config)):
        value = config[name]
        if name == "init_args" and isinstance(value, Namespace):
            for argument in [key for key, inner in vars(value).items() if not _is_writable(inner)]:
                value.pop(argument)
        leave_out_unwritable(value)


def _is_writable(value: Any) -> bool:
    """Return whether a value is plain, a class with arguments, or has a name to be found by."""
    if isinstance(value, Enum | PathLike | Namespace) or _is_plain(value):
        return True
    named = getattr(value, "__qualname__", "<nothing>")
    return bool(getattr(value, "__module__", None)) and "<" not in named


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple | set):
        return all(isinstance(item, Namespace) or _is_plain(item) for item in value)
    if isinstance(value, dict):
        return all(map(_is_plain, value.values()))
    return value is None or isinstance(value, bool | int | float | str)

"""Limits the modules that a configuration may name: reading one from elsewhere can be safe."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

from cwfed.config.files import UsageError
from cwfed.processes.own_modules import forget_current_folder, searching_named

OPTION = "--trusted_modules"
VARIABLE = "CWFED_TRUSTED_MODULES"
"""Environment variable that stands in for the option."""

ALWAYS = ("cwfed", "torch.optim")
"""Modules that are trusted whatever else is: the shipped configurations name no others."""

HERE = "."
"""Stands among the trusted modules for those in the current folder, found only then."""


def take_trusted(arguments: Sequence[str]) -> tuple[list[str] | None, list[str]]:
    """Split off the trusted modules: ``--trusted_modules A B.C`` or ``--trusted_modules=A,B.C``.

    Args:
        arguments: A command's arguments.

    Returns:
        The names, from the environment variable where the option is missing and None where both
        are, and the other arguments.

    Raises:
        UsageError: A name is not that of a module.
    """
    names: list[str] = []
    rest: list[str] = []
    given = taking = False
    for argument in arguments:
        option, equals, value = argument.partition("=")
        if option == OPTION:
            given, taking = True, not equals
            names += _names(value)
        elif taking and not argument.startswith("-"):
            names += _names(argument)
        else:
            taking = False
            rest.append(argument)
    if not given:
        text = os.environ.get(VARIABLE)
        return (None if text is None else _checked(_names(text), VARIABLE)), rest
    return _checked(names, OPTION), rest


@contextmanager
def searching(trusted: Sequence[str] | None) -> Iterator[None]:
    """Let Python find in the current folder what a class_path names, or nothing, where not trusted.

    The folder is taken from Python's path for good: libraries import also while a process ends.

    Args:
        trusted: What `take_trusted` returned.
    """
    allowed = trusted is None or HERE in trusted
    forget_current_folder(first=not allowed)
    with searching_named() if allowed else nullcontext():
        yield


def restrict_imports(trusted: Sequence[str] | None) -> None:
    """Let configurations name only trusted modules, for the rest of the process.

    The parser asks before it imports, wherever a name stands, and again where an object comes
    from: ``cwfed.config.trust.os.system`` is of the module ``posix``. Without trusted modules it
    refuses only what runs commands or touches files when it is called, such as ``os.system``.

    Args:
        trusted: Names of modules, each with everything below it; None for any.
    """
    from jsonargparse import set_parsing_settings

    # A class_path in a parameter of unknown type would be called, whatever it names.
    set_parsing_settings(instantiate_subclass_spec_in_any=False, import_path_denylist=[])
    if trusted is not None:
        allowed = [*ALWAYS, *(name for name in trusted if name != HERE)]
        set_parsing_settings(import_path_denylist=["*"], import_path_allowlist=allowed)


def _names(text: str) -> list[str]:
    return text.replace(",", " ").split()


def _checked(names: list[str], field: str) -> list[str]:
    for name in names:
        parts = name.split(".")
        # The parser would refuse to trust itself: from it, the list could be changed.
        usable = all(map(str.isidentifier, parts)) and parts[0] != "jsonargparse"
        if name != HERE and (not usable or parts[-1] == "py"):
            raise UsageError(
                f"{field}: expected names of modules such as mypackage or torch.nn, got "
                f"{name[:60]!r}"
            )
    return names

"""Modules of the user's own in the current folder: found where they are named, and only then.

A configuration names ``mine.HalfWay``, and ``mine.py`` lies in the current folder. Were that folder
on Python's path, every library would find there, too, what it tries to import and does without: in
a folder from elsewhere, code of a stranger under the name of an optional package.

Python imports this module while that folder may still be on its path: it needs little itself.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from types import FrameType, ModuleType
from typing import Any

_MACHINERY = {"importlib", "_frozen_importlib", "_frozen_importlib_external"}
_ROOT = os.path.realpath(f"{__file__}/../../..")

_FINDERS: dict[str, "OwnModules"] = {}
"""By folder: what was found stays known when a block ends and another begins."""

SAFE_FLAGS = ("-P",) if sys.version_info >= (3, 11) else ()
"""With these flags ``python -m`` does not search the current folder; Python 3.10 has none."""


class OwnModules:
    """Finds in one folder what a class_path names, and what modules of that folder import.

    It comes after all other finders: what is installed wins. Pickled, as for a process that is
    spawned, it is at work where it arrives, and knows the modules that were found before.

    Args:
        folder: The folder.
        names: Modules that were found before: whoever asks may have them.
    """

    def __init__(self, folder: str, names: Iterable[str] = ()) -> None:
        self.folder = folder
        self.names = set(names)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module; what lies in a package is found by the package's own path."""
        if path is not None or not (fullname in self.names or self._may_ask(_importer())):
            return None
        spec = PathFinder.find_spec(fullname, [self.folder], target)
        if spec is not None:
            self.names.add(fullname)
        return spec

    def _may_ask(self, importer: FrameType | None) -> bool:
        if importer is None:
            return False
        asking = _package(importer)
        # The parser tries optional packages as well, with other functions.
        of_class_path = asking == "jsonargparse" and importer.f_code.co_name == "import_object"
        return of_class_path or asking in self.names

    def __reduce__(self) -> tuple[Any, ...]:
        """Be at work where it arrives."""
        return _begin, (self.folder, sorted(self.names))


def _importer() -> FrameType | None:
    """Return the frame whose code imports, below those of the finder and the import system."""
    frame: FrameType | None = sys._getframe(2)
    while frame and _package(frame) in _MACHINERY:
        frame = frame.f_back
    return frame


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__")).partition(".")[0]


def _begin(folder: str, names: Iterable[str] = ()) -> OwnModules:
    finder = _FINDERS.setdefault(folder, OwnModules(folder))
    finder.names.update(names)
    sys.meta_path.append(finder)
    return finder


def finder_at_work() -> OwnModules | None:
    """Return the finder that a process that is spawned needs, too; None if there is none."""
    return next((it for it in reversed(sys.meta_path) if isinstance(it, OwnModules)), None)


def search_named() -> OwnModules | None:
    """Find the user's own modules in the current folder from now on, where they are named."""
    try:
        return _begin(os.getcwd())
    except FileNotFoundError:  # it was removed
        return None


@contextmanager
def searching_named() -> Iterator[None]:
    """Find the user's own modules in the current folder in a block, where they are named."""
    finder = search_named()
    try:
        yield
    finally:
        if finder:
            sys.meta_path.remove(finder)


def forget_current_folder(first: bool = True) -> None:
    """Take the current folder from Python's path, unless a person or an installation put it there.

    ``python -m`` and ``python -c`` put it first, and an empty entry of ``PYTHONPATH`` (``:/more``)
    stands for it.

    Args:
        first: Also where it stands first; False takes only what such an entry has put there.
    """
    try:
        here = os.getcwd()
    except FileNotFoundError:
        return
    asked = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if here in asked or "." in asked or os.path.realpath(here) == _ROOT:
        return
    if first and sys.path[:1] in ([""], [here]):
        del sys.path[0]
    if asked != [""] and "" in asked:
        sys.path[:] = [entry for entry in sys.path if entry not in ("", here)]


@contextmanager
def safe_processes(**environment: str) -> Iterator[None]:
    """Let processes that Python starts in a block not search the current folder for its own parts.

    They begin with ``python -c``, which puts that folder first: ``pickle.py`` there would run.
    Python 3.10 knows no other way.

    Args:
        environment: Further variables that they get.
    """
    added = {"PYTHONSAFEPATH": "1", **environment}
    before = {name: os.environ.get(name) for name in added}
    os.environ.update(added)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value

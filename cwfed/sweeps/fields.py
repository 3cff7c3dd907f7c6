"""Mistakes in what a person wrote, as the commands report them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from cwfed.config.files import UsageError
from cwfed.report import fields


@contextmanager
def usage_errors() -> Iterator[None]:
    """Turn a ValueError of a block into a UsageError of the same message."""
    try:
        yield
    except ValueError as error:
        raise UsageError(str(error)) from error


def choose(name: str, known: Sequence[str], where: str) -> str:
    """Return the name if it is one of the known ones.

    Raises:
        UsageError: It is not; the message lists them and suggests the closest.
    """
    with usage_errors():
        return fields.choose(name, known, where)

"""The parser of commands without a configuration."""

from argparse import ArgumentParser
from typing import NoReturn

from cwfed.config.files import UsageError


class PlainParser(ArgumentParser):
    """A parser for commands without a configuration; complains as the other commands do."""

    def error(self, message: str) -> NoReturn:
        """Raise a UsageError instead of printing the usage."""
        raise UsageError(message)

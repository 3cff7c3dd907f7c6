"""The command line."""

from cwfed.cli.main import main

__all__ = ["main"]

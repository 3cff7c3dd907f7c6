"""The command line: one module a command.

It parses, prints and returns exit codes; whatever it starts lives below it.
"""

from cwfed.cli.main import main

__all__ = ["main"]

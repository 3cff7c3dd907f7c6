"""Reproducible jobs on top of cwfed; cwfed never imports this package."""

import sys

from cwfed.processes.own_modules import forget_current_folder

if sys.argv[:1] == ["-m"]:
    # ``python -m`` has put it first; libraries would find there what they try to import.
    forget_current_folder()

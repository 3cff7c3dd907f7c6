"""The earlier name of `cwfed.plots`."""

from cwfed.plots import *  # noqa: F403
from cwfed.plots import __all__ as __all__

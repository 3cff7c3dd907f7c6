"""The earlier name of `cwfed.report.plots`."""

from cwfed.report.plots import *  # noqa: F403

"""Plots of plain arrays, by Matplotlib.

Here lives how a plot looks; what a run folder holds is read elsewhere (`cwfed.report.plots`).
"""

from cwfed.plots.clients import clients_figure
from cwfed.plots.curves import Curves, curves_figure
from cwfed.plots.heatmap import Heatmap, heatmap_figure
from cwfed.plots.mixing import mixing_figure
from cwfed.plots.scatter import scatter_figure
from cwfed.plots.style import figure_bytes

__all__ = [
    "Curves",
    "Heatmap",
    "clients_figure",
    "curves_figure",
    "figure_bytes",
    "heatmap_figure",
    "mixing_figure",
    "scatter_figure",
]

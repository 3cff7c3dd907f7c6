"""Figures of the paper's kind, from arrays: no runs, no files, no global state of pyplot."""

from cwfed.figures.clients import clients_figure
from cwfed.figures.curves import Curves, curves_figure
from cwfed.figures.heatmap import Heatmap, heatmap_figure
from cwfed.figures.mixing import mixing_figure
from cwfed.figures.scatter import scatter_figure
from cwfed.figures.style import figure_bytes

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

"""Reproducible jobs on top of cwfed; cwfed never imports this package."""

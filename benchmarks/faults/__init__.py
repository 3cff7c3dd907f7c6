"""Faults for a small run: killed and failed in every step; see `benchmarks.faults.command`."""

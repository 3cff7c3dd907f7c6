"""Kills and fails a small run in every step; see `benchmarks.faults.command`."""

"""Comparison of runs: seeds, rankings, verdicts, in numbers and words.

Here it is worked out once, for terminal, page, tables and dashboards; nothing here draws.
"""

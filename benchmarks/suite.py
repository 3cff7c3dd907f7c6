"""The tables of the paper, our studies, and the ledger of their runs."""

from pathlib import Path

from cwfed.sweeps.suite import Suite

FOLDER = Path(__file__).parent / "tables"
LEDGER = Path(__file__).parent / "ledger.jsonl"

SUITE = Suite("python -m benchmarks", FOLDER, LEDGER)
"""The tables that ``python -m benchmarks`` knows."""

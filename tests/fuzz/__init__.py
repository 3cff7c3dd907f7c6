"""Readers of files under damaged input: `python -m tests.fuzz TARGET --seconds N`."""

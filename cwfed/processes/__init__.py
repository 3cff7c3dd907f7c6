"""Processes as the operating system knows them: signals, locks, where modules are found.

Plain Python: nothing here knows what a run or a client is.
"""

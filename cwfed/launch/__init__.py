"""Starting and resuming a run, for the command line, Python, and tables alike.

Nothing here parses a command or prints a result.
"""

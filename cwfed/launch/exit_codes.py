"""Exit codes of commands and runs."""

import os
import signal

FAILED, USAGE_ERROR, REQUEUE, INTERRUPTED = 1, 2, 75, 130
"""Exit codes: something broke, a user's mistake, try again later (EX_TEMPFAIL), Ctrl-C.

Any other signal ends with 128 and its number, as a shell would have it.
"""


def stop_code(received: signal.Signals | None) -> int:
    """Return the exit code of a stopped run: under SLURM one to requeue by, but for Ctrl-C."""
    if received in (None, signal.SIGINT):
        return INTERRUPTED
    return REQUEUE if "SLURM_JOB_ID" in os.environ else 128 + int(received or 0)

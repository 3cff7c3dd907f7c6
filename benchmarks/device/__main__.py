"""``python -m benchmarks.device``."""

import signal
import sys

from benchmarks.device.command import main
from cwfed.sweeps.deadline import process_age

if __name__ == "__main__":
    # A request to end is one to end the parts first.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main(age=process_age()))

"""``python -m cwfed``."""

import sys

from cwfed.processes.own_modules import forget_current_folder

# Python has put it first; libraries would find there what they try to import below.
forget_current_folder()

from cwfed.cli import main  # noqa: E402

sys.exit(main())

"""``python -m cwfed``."""

import sys

from cwfed.cli import main

sys.exit(main())

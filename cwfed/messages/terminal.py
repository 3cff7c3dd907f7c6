"""Writes text to a person's terminal: plain, harmless, and never a reason to end a run."""

import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from cwfed.messages.texts import brief, shown


class Terminal(Console):
    """A console for plain text that outlives its reader: what is gone ends the output only.

    Closed pipes, closed terminals and a disk too full for the log are no reason to end a run.
    What names and files hold is shown, never obeyed: no control characters, markup or emoji.

    Args:
        stderr: Write to standard error.
        file: Write there instead.
    """

    def __init__(self, *, stderr: bool = False, **settings: Any) -> None:
        plain: dict[str, Any] = {"markup": False, "emoji": False, "highlight": False}
        super().__init__(stderr=stderr, soft_wrap=False, **plain, **settings)

    def say(self, text: str) -> None:
        """Print one line, never broken."""
        self.print(brief(text), soft_wrap=True)

    def render_str(self, text: str, **settings: Any) -> Text:
        """Make a text; here, so that tables leave room for what is shown."""
        return super().render_str(shown(text), **settings)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yield what is printed; only what moves the cursor itself may hold control characters."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=shown(segment.text))

    def __exit__(self, *error: Any) -> None:
        """Write what was printed in the block."""
        try:
            super().__exit__(*error)
        except OSError:
            self.on_broken_pipe()

    def on_broken_pipe(self) -> None:
        """Send what follows nowhere."""
        self.quiet = True
        stream = sys.stderr if self.stderr else sys.stdout
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())

"""The page's file: markup, style, scripts and data in one, written whole or not at all."""

import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from cwfed.records.atomic import write_atomic

ECHARTS = "echarts-6.1.0.min.js"
"""Apache ECharts as published, see ``assets/vendor``."""

_SCRIPTS = ("core.js", "charts.js", "summary.js", "table.js", "paper.js", "curves.js", "clients.js",
            "inside.js", "main.js")  # fmt: skip
# Whatever a name in the data may try, the browser loads nothing and sends nothing.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'"
)


def write_page(payload: Mapping[str, Any], path: Path) -> int:
    """Write a page; an older one of that name is replaced.

    Args:
        payload: What `make_payload` returned.
        path: The file; its folder must exist.

    Returns:
        Bytes written.

    Raises:
        ValueError: The folder is missing, the path is a folder, or it cannot be written.
    """
    if not path.parent.is_dir():
        raise ValueError(f"output: expected an existing folder, got {path.parent}")
    if path.is_dir():
        raise ValueError(f"output: expected a file, got the folder {path}")
    content = render(payload).encode()
    try:
        write_atomic(path, content)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ValueError(f"output: cannot write {path}: {reason}") from error
    return len(content)


def render(payload: Mapping[str, Any]) -> str:
    """Return the page's HTML."""
    scripts = [asset(f"vendor/{ECHARTS}"), *(asset(name) for name in _SCRIPTS)]
    parts = {
        "POLICY": _POLICY,
        "STYLE": asset("style.css"),
        "DATA": script_json(payload),
        "SCRIPT": "\n".join(_closed(text) for text in scripts),
    }
    # Cut at the marks before anything is put in: data that look like a mark stay data.
    pieces = asset("page.html").split("%%")
    return "".join(parts.get(piece, piece) for piece in pieces)


def script_json(value: Any) -> str:
    """Return JSON that can stand in a script element: nothing in it ends the element."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=True)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def asset(name: str) -> str:
    """Return the text of a file that the package ships."""
    return (files("cwfed.report.page") / "assets" / name).read_text(encoding="utf-8")


def _closed(script: str) -> str:
    if "</script" in script.lower():
        raise AssertionError("a script must not hold the tag that ends it")
    return script

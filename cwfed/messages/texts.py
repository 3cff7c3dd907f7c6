"""Texts for a person: what names and files hold may be anything, and of any length."""

import re
from collections.abc import Mapping
from pathlib import Path

MOST_QUOTED = 100
"""Characters of a file, or of a value, that a message quotes."""

# What a terminal would obey instead of showing it, except for tabs and ends of lines; and what
# makes the text beside it look like another one, or cannot be written at all.
_OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
_QUOTED = re.compile(rf"(?<!\w)(['\"])((?:\\.|(?!\1).){{{MOST_QUOTED + 1},}})\1(?!\w)", re.S)
_WORD = re.compile(rf"[^\s'\"]{{{MOST_QUOTED + 1},}}")
_LISTED = re.compile(rf"(\bgot )([\[{{(].{{{MOST_QUOTED}}}).+", re.S)


def shown(text: str) -> str:
    """Return a text as a terminal shows it, never obeys it: its control characters escaped.

    Example:
        >>> len(shown(chr(27)))
        4
    """
    return _OBEYED.sub(_escape, text)


def brief(text: str) -> str:
    """Return a message in which no quotation has more than 100 characters; paths stay whole.

    Example:
        >>> len(brief("rounds: expected int, got " + 1000 * "x"))
        127
    """
    text = _QUOTED.sub(lambda found: f"{found[1]}{_cut(found[2])}{found[1]}", text)
    text = _WORD.sub(lambda found: _cut(found[0]), text)
    return _LISTED.sub(r"\1\2…", text)


def brief_about(values: object, message: str) -> str:
    """Return a message that quotes no text among some values, at any depth, at greater length."""
    if isinstance(values, Mapping):
        values = [*values.keys(), *values.values()]
    if isinstance(values, list):
        for value in values:
            message = brief_about(value, message)
    elif isinstance(values, str) and len(values) > MOST_QUOTED:
        for written in (values.strip(), repr(values)[1:-1]):
            message = message.replace(written, _cut(values))
    return message


def one_line(message: str) -> str:
    """Return a message on one line, brief and harmless."""
    return shown(" ".join(brief(message).split()))


def require_name(field: str, name: object) -> None:
    """Check that a text can be part of a file's name and stays in its folder.

    Raises:
        ValueError: It is empty, has more than 100 bytes, a slash, a backslash or a character that
            cannot be seen, or begins with a dot or a space.
    """
    usable = (
        isinstance(name, str)
        and 1 <= len(name.encode(errors="replace")) <= MOST_QUOTED
        and name.isprintable()
        and not set(name) & set("/\\")
        and not name.startswith((".", " "))
    )
    if not usable:
        raise ValueError(
            f"{field}: expected a name: 1 to {MOST_QUOTED} bytes that can be seen, without / and "
            f"\\, not beginning with a dot or a space; got {str(name)[:60]!r}"
        )


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def _cut(text: str) -> str:
    return text if _is_path(text) else f"{text[:MOST_QUOTED]}…"


def _is_path(text: str) -> bool:
    """Return whether a word is a path that is there, or could be made: a person needs all of it."""
    path = Path(text.strip(".,;:()'\""))
    try:
        return "/" in text and path.parent.exists()
    except (OSError, ValueError):
        return False

"""One clear line out of what the parser says."""

import re
from collections.abc import Iterable
from difflib import get_close_matches

_KEY = re.compile(r'Parser key "([^"]+)":\s*')
_TYPE = re.compile(r"<class '(?:builtins\.)?([\w.]+)'>")
_NONE_BRANCH = re.compile(r"- Expected a <class 'NoneType'>[^\n]*\n?")


def explain(message: str, known: Iterable[str] = ()) -> str:
    """Rewrite a parser's message as ``field: expected …, got …`` on one line.

    Args:
        message: What the parser said, possibly on many lines.
        known: Names of options, for suggestions.
    """
    message = _without_union_frame(message)
    keys = _KEY.findall(message)
    message = _KEY.sub("", message)
    message = _TYPE.sub(r"\1", message)
    message = re.sub(r"Expected an? (.+?)\. Got value: (.*)", r"expected \1, got \2", message)
    message = re.sub(
        r"Import path (\S+) does not correspond to a subclass of (\w+)",
        r"expected a subclass of \2, got \1",
        message,
    )
    message = re.sub(
        r"Expected a dot import path string: (\S+)",
        r"expected the name of one of our classes or a dotted import path, got \1",
        message,
    )
    message = re.sub(r"Problem with given class_path '([^']+)':", r"\1:", message)
    message = re.sub(
        r"Option '([^']+)' is not accepted", lambda m: _unknown("key", m[1], known), message
    )
    message = re.sub(
        r"unrecognized arguments: --(\S+).*",
        lambda m: _unknown("option", m[1].split("=")[0], known),
        message,
        flags=re.S,
    )
    message = " ".join(message.split())
    field = ".".join(dict.fromkeys(keys))
    return f"{field}: {message}" if field else message


def _without_union_frame(message: str) -> str:
    """Keep of a union's report what its branches say, less the branch for null."""
    message = _NONE_BRANCH.sub("", message)
    message = re.sub(r"Does not validate against any of the Union subtypes\s*", "", message)
    message = re.sub(r"Subtypes: \[[^\n]*\]\s*(Errors:)?\s*(- )?", "", message)
    return re.sub(r"Given value type: .*", "", message, flags=re.S)


def _unknown(what: str, name: str, known: Iterable[str]) -> str:
    dashes = "--" if what == "option" else ""
    close = get_close_matches(name, list(known), n=1)
    hint = f"; did you mean {dashes}{close[0]}?" if close else "; see --help for those there are"
    return f"unknown {what} {dashes}{name}{hint}"

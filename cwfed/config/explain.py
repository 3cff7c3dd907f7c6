"""One clear line out of what the parser says."""

import re
from collections.abc import Iterable
from difflib import get_close_matches

from cwfed.messages.texts import MOST_QUOTED

_KEY = re.compile(r'Parser key "([^"]+)":\s*')
_UNION = re.compile(
    r"Does not validate against any of the Union subtypes.*?Errors:\n(.*?)\n\s*"
    r"Given value type:[^\n]*\n\s*Given value: ([^\n]*)",
    re.S,
)
_DENIED = re.compile(r"Importing '(\S+)' is not allowed, denied by the '(\S+)' entry")
_NO_GROUP = re.compile(r"Unable to load config '(.*)' - Unable to load config \".*\"")
_REWRITES = [
    # A callable's frame around what is wrong with its class.
    (r"Type \S*Callable\[.*?expects a function or a callable class: ", ""),
    (r"\.? ?\.? Got value: Namespace\(.*", ""),
    (r"- Expected a path but [^\n]*\n\s*(- )?", ""),
    (r"<class '(?:[\w.]*\.)?(\w+)'>", r"\1"),
    (r"(?:typing\.)?Literal\[([^\]]*)\]", r"\1"),
    (r"Expected '(\S+)' to be a subclass of (\w+)", r"expected a subclass of \2, got \1"),
    (
        r"Expected '(\S+)' to be a function that returns (\w+)\..*",
        r"expected a subclass of \2, got \1",
    ),
    # What the parser cannot look into, such as functions of builtins.
    (r"'OverloadedName' object has no attribute.*Got value: (\S+)", r"expected a class, got \1"),
    (
        r"Import path (\S+) does not correspond to a subclass of (\w+)",
        r"expected a subclass of \2, got \1",
    ),
    (
        r"Import path does not correspond to a subclass of (\w+)(.*Given value: )([^\n]*)",
        r"Expected a subclass of \1\2\3",
    ),
    (
        r"Expected a dot import path string: (\S+)",
        "Expected the name of a built-in class (listed by --help) or a dotted import path",
    ),
    (r"Problem with given class_path '([^']+)':", r"\1:"),
]


def explain(message: str, known: Iterable[str] = ()) -> str:
    """Rewrite a parser's message as ``field: expected …, got …`` on one line.

    Args:
        message: What the parser said, possibly on many lines.
        known: Names of options, for suggestions.
    """
    if denied := _DENIED.search(message):
        return _denial(denied[1], denied[2], message)
    value = re.search(r"dot import path string: (\S+)", message)
    for pattern, replacement in _REWRITES:
        message = re.sub(pattern, replacement, message, flags=re.S)
    message = _UNION.sub(_branches, message)
    keys = _KEY.findall(message)
    message = _KEY.sub("", message)
    message = re.sub(r"Expected an? (.+?)\. Got value: (.*)", r"expected \1, got \2", message)
    if value and "got " not in message:
        message += f", got {value[1]}"
    message = re.sub(
        r"Option '([^']+)' is not accepted", lambda m: _unknown("key ", m[1], known), message
    )
    message = re.sub(
        r"Group '([^']+)' does not accept option '([^']+)'",
        lambda m: _unknown("key ", f"{m[1]}.{m[2]}", known),
        message,
    )
    message = re.sub(
        r"unrecognized arguments: --([^\s=]+).*",
        lambda m: _unknown("option --", m[1], known),
        message,
        flags=re.S,
    )
    message = " ".join(message.split())
    # What was got is a value of a file or an option, and stands last.
    message = re.sub(rf"\bgot (.{{{MOST_QUOTED}}}).+", r"got \1…", message)
    field = ".".join(dict.fromkeys(keys))
    message = _NO_GROUP.sub(lambda m: _group(field, m[1], known), message)
    return f"{field}: {message}" if field else message


def _denial(path: str, entry: str, message: str) -> str:
    """Say what a configuration may not name: outside of what is trusted, or harmful by itself."""
    reason = f"expected a class, got {path}, which runs code or touches files when it is called"
    if entry == "*":
        reason = f"expected a class of a trusted module (--trusted_modules), got {path}"
    option = re.search(r"(--[\w.]+\.help)\b", message)
    field = option[1] if option else ".".join(dict.fromkeys(_KEY.findall(message)))
    return f"{field}: {reason}" if field else reason


def _group(name: str, value: str, known: Iterable[str]) -> str:
    """Say what a group of options is."""
    one = next((option for option in known if option.startswith(f"{name}.")), f"{name}.NAME")
    return (
        f"expected its options one by one, such as --{one}, or a YAML file of them, got {value!r}"
    )


def _branches(union: re.Match[str]) -> str:
    """Say of a union what its branches expected, less the branch for null."""
    branches = [part.strip() for part in re.split(r"(?:^|\n)\s*- ", union[1]) if part.strip()]
    plain = [re.fullmatch(r"Expected an? ([^\n]*)", part) for part in branches]
    special = [part for part, match in zip(branches, plain, strict=True) if not match]
    if special:
        return "; ".join(special)
    types = [match[1] for match in plain if match and match[1] != "NoneType"]
    return f"expected {' or '.join(types)}, got {union[2]}"


def _unknown(what: str, name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, list(known), n=1)
    dashes = what.removeprefix("option ").removeprefix("key ")
    hint = f"did you mean {dashes}{close[0]}?" if close else "see --help for those there are"
    return f"unknown {what}{name}; {hint}"

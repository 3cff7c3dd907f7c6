"""YAML whose numbers are decimal, and that reads back as what was written.

YAML 1.1 takes 010 for 8, 1:30 for 90, 1_000 for 1000, 2001-01-01 for a date, and 1e-3 for a text.
Here 1e-3 is a number; the others are texts, which an option that takes a number refuses.
"""

import re
from typing import Any

import yaml

DECIMAL = re.compile(r"[-+]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
"""A number as it may be written."""

# More digits than 64 bits hold make a text, which no reader has to turn into a number first.
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,18})$")
_FLOAT = re.compile(rf"(?:(?=.*[.eE]){DECIMAL.pattern}|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$")
_INT_TAG, _FLOAT_TAG = "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"
_FIRST = list("-+0123456789.")

# Ten times as fast where PyYAML was built with it.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class PlainLoader(_Loader):
    """A safe loader with decimal numbers and without dates."""

    def construct_number(self, node: yaml.ScalarNode) -> int | float:
        """Return the number of a scalar; a tag may have asked for one."""
        text = str(self.construct_scalar(node))
        if _INT.match(text) and node.tag == _INT_TAG:
            return int(text)
        if _FLOAT.match(text) or _INT.match(text):
            return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
        raise yaml.constructor.ConstructorError(
            None, None, f"expected a decimal number, got {text[:40]}", node.start_mark
        )


class PlainDumper(yaml.SafeDumper):
    """A safe dumper that quotes what `PlainLoader` or a YAML 1.1 reader would take for another."""


PlainLoader.yaml_implicit_resolvers = {
    first: [
        (tag, pattern)
        for tag, pattern in resolvers
        if tag not in (_INT_TAG, _FLOAT_TAG, "tag:yaml.org,2002:timestamp")
    ]
    for first, resolvers in _Loader.yaml_implicit_resolvers.items()
}
PlainLoader.add_implicit_resolver(_INT_TAG, _INT, _FIRST)
PlainLoader.add_implicit_resolver(_FLOAT_TAG, _FLOAT, _FIRST)
for _tag in (_INT_TAG, _FLOAT_TAG):
    PlainLoader.add_constructor(_tag, PlainLoader.construct_number)
PlainDumper.add_implicit_resolver(_FLOAT_TAG, _FLOAT, _FIRST)


def dump_yaml(content: Any, *, allow_unicode: bool = False) -> str:
    """Return content as YAML, in its own order.

    Args:
        content: Plain values.
        allow_unicode: Whether to write what is not ASCII as it is.
    """
    text: str = yaml.dump(
        content, Dumper=PlainDumper, sort_keys=False, width=100, allow_unicode=allow_unicode
    )
    return text

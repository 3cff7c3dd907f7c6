"""Examples in docstrings: pytest runs them; here, that no public class of the three is without."""

import inspect
from doctest import DocTestFinder

import pytest

from cwfed import aggregators, objectives
from cwfed.data import partitioners

CLASSES = [
    getattr(package, name)
    for package in (aggregators, objectives, partitioners)
    for name in package.__all__
    if inspect.isclass(getattr(package, name))
]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_a_class_shows_how_it_is_used(kind):
    (found,) = DocTestFinder(recurse=False, exclude_empty=False).find(kind, kind.__name__)
    assert len(found.examples) > 1, f"{kind.__name__}: no example in its docstring"
    assert any(kind.__name__ in example.source for example in found.examples)
    assert any(example.want for example in found.examples), "nothing that could be wrong"

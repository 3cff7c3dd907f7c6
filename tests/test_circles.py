"""No modules of the package import each other, neither when loaded nor inside of functions."""

from pathlib import Path

import grimp
import networkx

import cwfed


def circles(package):
    """Return the groups of modules that import each other, less imports for type checkers."""
    graph = grimp.build_graph(package, exclude_type_checking_imports=True, cache_dir=None)
    imports = networkx.DiGraph(
        (module, other)
        for module in graph.modules
        for other in graph.find_modules_directly_imported_by(module)
    )
    found = networkx.strongly_connected_components(imports)
    return [sorted(group) for group in found if len(group) > 1]


def test_no_modules_import_each_other():
    assert circles(cwfed.__name__) == []


def test_a_circle_is_found_also_inside_of_a_function(tmp_path, monkeypatch):
    package = tmp_path / "round_about"
    package.mkdir()
    for name, text in {
        "__init__": "",
        "a": "from round_about import b\n",
        "b": "def late():\n    from round_about import a\n",
        "c": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from round_about import d\n",
        "d": "from round_about import c\n",
    }.items():
        Path(package / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert circles("round_about") == [["round_about.a", "round_about.b"]]

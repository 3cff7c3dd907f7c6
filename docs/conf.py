"""How Sphinx builds the manual: `sphinx-build -W --keep-going -b html docs docs/_build/html`."""

from pathlib import Path
from typing import Any

from docutils.nodes import SkipNode, math, math_block
from latex2mathml.converter import convert
from sphinx.application import Sphinx

import cwfed

HERE = Path(__file__).resolve().parent

project = "cwfed"
author = "the cwfed authors"
project_copyright = f"{author}, Apache-2.0"
release = version = cwfed.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
]
exclude_patterns = ["_build", "_templates"]
templates_path = ["_templates"]

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "off"

default_role = "py:obj"
add_module_names = False
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True

html_theme = "furo"
html_title = f"cwfed {release}"
html_static_path = ["_static"]
html_css_files = ["manual.css"]
# Formulas are drawn by the browser: no script is fetched from a network.
html_math_renderer = "mathml"
html_copy_source = False


def bring_notebooks(app: Sphinx, config: Any) -> None:
    """Lay the notebooks where Sphinx looks for pages; they are edited in `notebooks/` alone."""
    target = HERE / "notebooks"
    target.mkdir(exist_ok=True)
    sources = {path.name: path.read_bytes() for path in HERE.parent.glob("notebooks/*.ipynb")}
    for page in target.iterdir():
        if page.name not in sources:
            page.unlink()
    for name, content in sources.items():
        page = target / name
        if not page.exists() or page.read_bytes() != content:
            page.write_bytes(content)


def inline_formula(translator: Any, node: math) -> None:
    """Write a formula within a line as MathML."""
    translator.body.append(convert(node.astext()))
    raise SkipNode


def displayed_formula(translator: Any, node: math_block) -> None:
    """Write a formula on lines of its own as MathML."""
    formula = convert(node.astext(), display="block")
    translator.body.append(f'<div class="formula">{formula}</div>')
    raise SkipNode


def setup(app: Sphinx) -> None:
    """Register what Sphinx calls here."""
    app.connect("config-inited", bring_notebooks)
    app.add_html_math_renderer(
        "mathml", inline_renderers=(inline_formula, None), block_renderers=(displayed_formula, None)
    )

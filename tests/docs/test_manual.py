"""The manual, built as CONTRIBUTING says: no warning, nothing from a network, nothing left out."""

import base64
import json
import os
import re
import shutil
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import get_origin

import pytest

ROOT = Path(__file__).resolve().parents[2]
NEEDED = ("sphinx", "furo", "myst_nb", "latex2mathml")
PACKAGES = {
    "cwfed": "cwfed",
    "aggregators": "cwfed.aggregators",
    "objectives": "cwfed.objectives",
    "partitioners": "cwfed.data.partitioners",
    "sources": "cwfed.data.sources",
    "models": "cwfed.models",
    "plots": "cwfed.plots",
}
FETCHED = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\bsrc=.https?:[^>]*>"
    r"|<link\b[^>]*\brel=.(?:stylesheet|preload|preconnect|icon)[^>]*\bhref=.https?:[^>]*>"
    r"|@import[^;]*https?:|url\(.?https?:"
)

pytestmark = [
    pytest.mark.docs,
    pytest.mark.skipif(
        not all(map(find_spec, NEEDED)), reason='the manual needs: pip install ".[docs]"'
    ),
]


def test_the_manual_builds_whole_and_needs_no_network(tmp_path):
    built = build(tmp_path)
    pages = {path: path.read_text(encoding="utf-8") for path in built.rglob("*.html")}
    styles = {path: path.read_text(encoding="utf-8") for path in built.rglob("*.css")}
    fetched = {path: FETCHED.findall(text) for path, text in (pages | styles).items()}
    assert {path: found for path, found in fetched.items() if found} == {}
    assert stored_pictures() <= {path.read_bytes() for path in (built / "_images").iterdir()}
    for name, package in PACKAGES.items():
        page = pages[built / "api" / f"{name}.html"]
        left_out = [it for it in documented(package) if f'id="{package}.{it}"' not in page]
        assert left_out == [], package
    # An argument described as "K." alone reads as the eleventh item of a list.
    lists = [
        path.name for path, text in pages.items() if re.search(r'="(?:upper|lower)alpha', text)
    ]
    assert lists == []
    assert "<math" in pages[built / "notebooks" / "2_classwise_aggregation.html"]


def build(folder):
    """Build a copy, so that the checkout stays as it is and tests may run side by side."""
    unwanted = shutil.ignore_patterns("_build", "generated", "notebooks")
    for name in ("docs", "notebooks", "benchmarks/results"):
        shutil.copytree(ROOT / name, folder / name, ignore=unwanted)
    for name in ("CHANGELOG.md", "CONTRIBUTING.md"):
        shutil.copy(ROOT / name, folder)
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
    # With the package under test, not another one that is installed.
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [*command, "docs", "docs/_build/html"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return folder / "docs/_build/html"


def stored_pictures():
    """Pictures among the outputs with which the notebooks are committed."""
    notebooks = [json.loads(path.read_text()) for path in (ROOT / "notebooks").glob("*.ipynb")]
    outputs = [
        output
        for notebook in notebooks
        for cell in notebook["cells"]
        for output in cell.get("outputs", ())
    ]
    pictures = [output.get("data", {}).get("image/png") for output in outputs]
    found = {base64.b64decode("".join(picture)) for picture in pictures if picture}
    assert len(found) > len(notebooks)
    return found


def documented(package):
    """Public functions and classes, without aliases such as `dict[str, Tensor]`."""
    module = import_module(package)
    public = {name: getattr(module, name) for name in module.__all__}
    return [name for name, it in public.items() if callable(it) and get_origin(it) is None]

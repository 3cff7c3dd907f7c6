"""The notebooks: executed at small scale, and committed as they came out of a run from the top."""

import os
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
MACHINE = re.compile(r"/(?:work|opt|tmp|home|root|Users|usr|var)/|site-packages|0x[0-9a-f]{8}")
LARGEST = 300_000  # bytes of a notebook in git


def read(path):
    return nbformat.read(path, as_version=4)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_the_notebooks_are_there():
    assert [path.stem[0] for path in NOTEBOOKS] == ["1", "2", "3", "4", "5"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path):
    notebook = read(path)
    for cell in code_cells(notebook):
        cell.outputs, cell.execution_count = [], None
    # In its folder, as Jupyter does, and with the package under test.
    client = NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(FOLDER)}}
    )
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    settings = {"CWFED_NOTEBOOK_ROUNDS": "1", "PYTHONPATH": os.pathsep.join(paths)}
    before = set(FOLDER.iterdir())
    client.execute(env=os.environ | settings)
    assert set(FOLDER.iterdir()) == before, "a notebook leaves nothing beside itself"
    for ours, theirs in zip(code_cells(notebook), code_cells(read(path)), strict=True):
        assert kinds(ours) == kinds(theirs), ours.source


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_committed_notebook_is_clean(path):
    notebook = read(path)
    nbformat.validate(notebook)
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert any("image/png" in kinds(cell) for cell in cells)
    for cell in cells:
        assert not {"error", "stderr"} & set(kinds(cell)), cell.source
        for output in cell.outputs:
            texts = [output.get("text", ""), *(output.get("data") or {}).values()]
            plain = "".join(text for text in texts if not text.startswith("iVBOR"))
            assert not MACHINE.search(plain), plain
    sources = "".join(cell.source for cell in notebook.cells)
    assert not MACHINE.search(sources)
    assert path.stat().st_size < LARGEST


def kinds(cell):
    """What a cell puts out: kinds of data, names of streams, errors."""
    return [
        kind
        for output in cell.outputs
        for kind in sorted(output.get("data") or [output.get("name") or output.output_type])
    ]

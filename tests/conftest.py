import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests" / "reference"), str(ROOT / "tests")]


@pytest.fixture(scope="session")
def shared_data():
    """Folder of the real data sets, where they are at hand."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("the real data sets are not at hand (../shared/data)")
    return folder

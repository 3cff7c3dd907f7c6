import signal
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "reference"), str(ROOT / "tests")]

# Tests of the inside compare bits: they need what a run sets for itself.
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _same_numbers_every_time():
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _ctrl_c_works():
    """Ctrl-C is ignored after an interrupted Lightning fit, and in a background job of a shell."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def shared_data():
    """Folder of the real data sets, where they are at hand."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("the real data sets are not at hand (../shared/data)")
    return folder

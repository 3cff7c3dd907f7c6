from pathlib import Path

import pytest
from image_files import encode, small_images

SHARED = Path(__file__).parents[2] / ".." / "shared" / "data"


@pytest.fixture(scope="session")
def real_data():
    if not SHARED.is_dir():
        pytest.skip("the real data sets are not beside the project")
    return SHARED


@pytest.fixture(scope="session")
def real_cache(tmp_path_factory):
    """One cache for the session, so that each real data set is decoded once."""
    return tmp_path_factory.mktemp("decoded")


@pytest.fixture(autouse=True)
def _no_user_folders(tmp_path_factory, monkeypatch):
    """Keep tests out of the user's cache and from data a person has configured."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "user-cache"))
    monkeypatch.delenv("CWFED_CACHE", raising=False)
    monkeypatch.delenv("CWFED_DATA", raising=False)


@pytest.fixture
def rows():
    """Encoded gray images of ten classes, and their labels."""
    images, labels = small_images(10, 3)
    return [encode(image) for image in images], labels.tolist()

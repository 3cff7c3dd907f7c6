import shutil

import pytest


@pytest.fixture(autouse=True)
def _clean_run_folder(request):
    if "trial" in request.fixturenames:
        shutil.rmtree(request.getfixturevalue("trial").folder, ignore_errors=True)

"""Files of other people's jobs: odd ones are named, never followed by a traceback."""

import os
import sys
from types import SimpleNamespace

import pytest

from cwfed.sweeps.job_store import JobStore

JOB = SimpleNamespace(name="job", key="0" * 64)


@pytest.fixture
def place(tmp_path):
    (tmp_path / "cells").mkdir()
    return JobStore(tmp_path)


@pytest.mark.parametrize("text", ["[]", "3", "null", '"x"', "{", "[" * 100_000, '{"a": NaN}'])
def test_a_reason_for_a_failure_that_is_none_is_named(place, text):
    path = place.file(JOB, ".failed.json")
    path.write_text(text)
    assert place.failure(JOB) == f"{path}: cannot be read"


@pytest.mark.skipif(sys.platform == "win32", reason="needs pipes")
def test_a_pipe_in_its_place_is_not_read(place):
    path = place.file(JOB, ".failed.json")
    os.mkfifo(path)
    assert place.failure(JOB) == f"{path}: cannot be read"


@pytest.mark.parametrize("text", ["[]", "3", "faults: 3", "data: 3", "trainer: [1]"])
def test_an_older_run_of_an_odd_configuration_is_passed_over(place, text):
    (place.cells / "older").mkdir()
    (place.cells / "older" / "config.yaml").write_text(text)
    assert place.folder(JOB) == place.cells / "job"

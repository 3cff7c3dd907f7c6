"""A short fuzz of every reader, after everything that a longer one has found before.

`python -m tests.fuzz TARGET --seconds N` looks longer, guided by coverage.
"""

import subprocess
import sys
import time
from itertools import islice
from pathlib import Path

import pytest
from jsonargparse import _common

from fuzz import watch
from fuzz.harm import Harm
from fuzz.mutate import damaged
from fuzz.targets import TARGETS, Target, make_target
from fuzz.watch import check

CORPUS = Path(__file__).parent / "corpus"
SECONDS = 3.0


@pytest.fixture(scope="module", autouse=True)
def _policy_of_this_file():
    """Configurations are read under a policy that otherwise lasts as long as the process."""
    before = _common.parsing_settings
    _common.parsing_settings = dict(before)
    yield
    _common.parsing_settings = before


@pytest.fixture(scope="module")
def target(request, tmp_path_factory):
    return make_target(request.param, tmp_path_factory.mktemp(request.param))


@pytest.mark.parametrize("target", TARGETS, indirect=True)
def test_damaged_files_are_refused_politely(target):
    for data in target.seeds:
        check(target, data)
    end = time.monotonic() + SECONDS
    for data in islice(damaged(target.seeds, 0, target.mutate), 400):
        if time.monotonic() > end:
            break
        check(target, data)


@pytest.mark.parametrize("target", TARGETS, indirect=True)
def test_what_was_found_before_stays_mended(target, request):
    files = sorted((CORPUS / request.node.callspec.params["target"]).iterdir())
    assert files
    for path in files:
        check(target, path.read_bytes())


@pytest.mark.parametrize(
    ("read", "words"),
    [
        (lambda: {}["x"], "KeyError"),
        (lambda: (_ for _ in ()).throw(ValueError), "an empty message"),
        (lambda: Path("written").write_text("x"), "did more than read"),
        (lambda: subprocess.run([sys.executable, "--version"]), "did more than read"),
        (lambda: _spin(0.2), "took 0"),
    ],
)
def test_the_watch_sees_harm(tmp_path, monkeypatch, read, words):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(watch, "MOST_SECONDS", 0.1)
    with pytest.raises(Harm, match=words):
        check(Target([], lambda _: None, read), b"")


def test_the_watch_sees_memory(monkeypatch):
    peaks = iter([1 << 20, 3 << 30])
    monkeypatch.setattr(watch, "_peak", lambda: next(peaks))
    with pytest.raises(Harm, match="3071 MiB"):
        check(Target([], lambda _: None, lambda: None), b"")


def _spin(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass

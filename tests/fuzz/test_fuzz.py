"""A short fuzz of every reader, after everything that a longer one has found before.

`python -m tests.fuzz TARGET --seconds N` looks longer, guided by coverage.
"""

import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from jsonargparse import _common

from fuzz.targets import TARGETS, Target, make_target
from fuzz.watch import Harm, check

CORPUS = Path(__file__).parent / "corpus"
SECONDS = 6.0
TOKENS = [
    *(b"null", b"NaN", b"-1", b"1e999", b"[]", b"{}", b'""', b"true", b"0", b"9" * 30, b"\xff"),
    *(b"\0", b"[" * 5000, b"class_path", b"init_args", b"!!python/object/apply:os.system [ls]"),
    *(b"*a", b"&a ", b"\n", b":", b",", b'"', b"-", b"\x1b[2J"),
]


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


edits = st.lists(
    st.tuples(
        st.floats(0, 1, exclude_max=True),
        st.sampled_from([0, 0, 1, 1, 4, 30, 1000]),
        st.one_of(st.sampled_from(TOKENS), st.binary(max_size=3)),
    ),
    min_size=1,
    max_size=4,
)


def damage(data, changes):
    """Replace some bytes at some places by others."""
    for place, length, new in changes:
        at = int(place * (len(data) + 1))
        data = data[:at] + new + data[at + length :]
    return data


@pytest.mark.parametrize("target", TARGETS, indirect=True)
def test_damaged_files_are_refused_politely(target):
    end = time.monotonic() + SECONDS

    @seed(0)
    @settings(
        max_examples=400, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(st.sampled_from(target.seeds), edits)
    def fuzz(data, changes):
        if time.monotonic() < end:
            check(target, damage(data, changes))

    for data in target.seeds:
        check(target, data)
    fuzz()


@pytest.mark.parametrize("target", TARGETS, indirect=True)
def test_what_was_found_before_stays_mended(target, request):
    name = request.node.callspec.params["target"]
    files = sorted((CORPUS / name).iterdir())
    assert files
    for path in files:
        check(target, path.read_bytes())


@pytest.mark.parametrize(
    ("read", "words"),
    [
        (lambda: {}["x"], "KeyError"),
        (lambda: exec("raise ValueError"), "an empty message"),
        (lambda: Path("written").write_text("x"), "did more than read"),
        (lambda: __import__("os").system("true"), "did more than read"),
        (lambda: bytearray(b"x") * (1 << 31), "MiB"),
        (lambda: _spin(5.5), "took 5"),
    ],
)
def test_the_watch_sees_harm(tmp_path, monkeypatch, read, words):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Harm, match=words):
        check(Target([], lambda _: None, read), b"")


def _spin(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass

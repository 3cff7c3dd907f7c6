"""The ledger: what is kept comes back, whole, once, and damage is named."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from ledger_lines import make_line

from benchmarks.ledger import append, read_ledger
from cwfed.cli.files import UsageError


def test_lines_come_back_and_stay_unique(tmp_path):
    path = tmp_path / "new" / "ledger.jsonl"
    assert read_ledger(path) == []
    first, second = make_line("a", [0.1, 0.25]), make_line("a", [0.1, 0.5], seed=1)
    assert append(path, first)
    assert append(path, second)
    assert not append(path, first | {"table": "another"})
    assert read_ledger(path) == [first, second]


def test_writers_wait_for_each_other(tmp_path):
    path = tmp_path / "ledger.jsonl"
    lines = [make_line("a", [0.1, 0.2], seed=seed) for seed in range(24)]
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(lambda line: append(path, line), lines))
    assert sorted(line["seed"] for line in read_ledger(path)) == list(range(24))
    assert [p.name for p in tmp_path.iterdir()] == ["ledger.jsonl"]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("{", "expected a JSON object, got '{'"),
        ("[1]", "expected a JSON object"),
        ({"key": None}, "key: expected a text, got None"),
        ({"seed": "0"}, "seed: expected an integer, got '0'"),
        ({"seed": True}, "seed: expected an integer, got True"),
        ({"rounds": 2}, r"curves\.received: expected 3 accuracies, got 2"),
        ({"curves": {}}, r"curves\.received: expected 2 accuracies, got None"),
        (
            {"curves": {"received": [0, 2.0], "post_local": [0, 1]}},
            r"curves\.received: expected acc",
        ),
        ({"metrics": {}}, r"metrics\.received: expected a mapping, got None"),
        (
            {"metrics": {"received": {"best": 1}, "post_local": {}}},
            r"metrics\.received\.best: expected null or an accuracy, got 1",
        ),
    ],
)
def test_a_damaged_line_is_named(damage, said, tmp_path):
    path = tmp_path / "ledger.jsonl"
    good = make_line("a", [0.1, 0.25])
    bad = damage if isinstance(damage, str) else json.dumps(good | damage)
    path.write_text(json.dumps(good) + "\n" + bad + "\n")
    with pytest.raises(UsageError, match=rf"ledger\.jsonl: line 2: {said}"):
        read_ledger(path)
    before = path.read_bytes()
    with pytest.raises(UsageError):
        append(path, make_line("b", [0.1, 0.25]))
    assert path.read_bytes() == before

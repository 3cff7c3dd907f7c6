"""The ledger: what is kept comes back, whole, once, and damage is named."""

import csv
import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from ledger_lines import make_line

from benchmarks.suite import LEDGER, SUITE
from cwfed.config.files import UsageError
from cwfed.records.identity import cell_hash, config_hash
from cwfed.sweeps.ledger import append, read_ledger
from cwfed.sweeps.verify import find_line

KEYS = ("key", "cell", "config_hash", "identity_version")


def older(line):
    """Return a line as version 0.1 wrote it."""
    key = config_hash(line["config"], 1)
    cell = config_hash({**line["config"], "rounds": None, "seed": None}, 1)
    return line | {"key": key, "cell": cell, "config_hash": key}


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


def test_lines_of_version_0_1_have_their_figures_under_new_keys():
    """The file holds key, cell and a checksum of all else of each line, as 0.1 left them."""
    with (Path(__file__).parent / "ledger_0_1.csv").open() as file:
        first = {row["key"]: row for row in csv.DictReader(file)}
    lines = [json.loads(text) for text in LEDGER.read_text().splitlines()]
    assert len(first) == 90
    found = {}
    for line in lines:
        if (key := config_hash(line["config"], 1)) in first:
            found[key] = line
    assert set(found) == set(first)
    for key, line in found.items():
        rest = {name: value for name, value in line.items() if name not in KEYS}
        figures = hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()
        before = first[key]
        assert figures == before["figures"]
        assert older(line)["cell"] == before["cell"]
        assert line["key"] == line["config_hash"] == config_hash(line["config"]) != key
        assert line["cell"] == cell_hash(line["config"])
    assert len({(line["key"], line["seed"]) for line in lines}) == len(lines)


def test_a_line_of_an_earlier_version_is_read_under_its_current_key(tmp_path):
    path = tmp_path / "ledger.jsonl"
    now = json.loads(LEDGER.read_text().splitlines()[0])
    then = older(now)
    path.write_text(json.dumps(then) + "\n")
    assert read_ledger(path) == [now]
    assert not append(path, now), "the same run"
    for key in (then["key"], now["key"]):  # as an older and a newer report print it
        assert find_line(SUITE, key[:12], read_ledger(path), None, None) == now
    # Another configuration under the same hash is nothing that a version has written.
    strange = then | {"config": now["config"] | {"seed": 3}}
    path.write_text(json.dumps(strange) + "\n")
    assert read_ledger(path) == [strange]


def test_a_flipped_bit_in_a_line_is_named(tmp_path):
    path = tmp_path / "ledger.jsonl"
    older = json.dumps(make_line("b", [0.1, 0.25]), separators=(",", ":"))
    path.write_text(older + "\n")
    assert append(path, make_line("a", [0.1, 0.25]))
    whole = path.read_bytes()
    assert whole.startswith(older.encode() + b"\n"), "lines of earlier versions stay as they are"
    for at in range(len(older) + 1, len(whole) - 1, 7):
        for bit in range(8):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << bit)]) + whole[at + 1 :])
            with pytest.raises(UsageError, match=r"ledger\.jsonl: line [23]: "):
                read_ledger(path)

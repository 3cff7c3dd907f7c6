"""Spread over partitions and seeds: against the sums of an analysis of variance, step by step."""

import random

import pytest
import yaml
from ledger_lines import make_line

from benchmarks.__main__ import main
from benchmarks.suite import SUITE
from cwfed.config.files import UsageError
from cwfed.sweeps.jobs import Resolver
from cwfed.sweeps.profiles import PROFILES
from cwfed.sweeps.report import cells_of
from cwfed.sweeps.spread import Spread, measure_spread, spread_markdown
from cwfed.sweeps.summary import sections
from cwfed.sweeps.tables import load_table

VALUES = ((32.1, 32.9, 31.8), (35.0, 34.1, 34.6), (30.2, 31.4, 30.9))


def slow_variances(values):
    """Between seeds, and what partitions add, from sums of squares."""
    partitions, seeds = len(values), len(values[0])
    means = [sum(row) / seeds for row in values]
    grand = sum(means) / partitions
    within = sum((x - mean) ** 2 for row, mean in zip(values, means, strict=True) for x in row)
    between = seeds * sum((mean - grand) ** 2 for mean in means)
    square_within = within / (partitions * (seeds - 1))
    square_between = between / (partitions - 1)
    return square_within, max(0.0, (square_between - square_within) / seeds)


@pytest.mark.parametrize("shape", [(3, 3), (2, 5), (7, 2)])
def test_variances_are_those_of_an_analysis_of_variance(shape):
    draw = random.Random(4)
    values = tuple(
        tuple(draw.gauss(50 + draw.gauss(0, 2), 1) for _ in range(shape[1]))
        for _ in range(shape[0])
    )
    for each in (values, VALUES):
        seeds, partitions = slow_variances(each)
        spread = Spread("c", "m", 10, each)
        assert spread.seeds**2 == pytest.approx(seeds)
        assert spread.partitions**2 == pytest.approx(partitions)
        assert spread.limit == pytest.approx(1.959964 * (2 * (seeds + partitions)) ** 0.5, rel=1e-4)
        assert 0 <= spread.tolerance.points - spread.limit < 0.1 + 1e-9


def test_partitions_that_add_nothing_are_no_error():
    spread = Spread("c", "m", 10, ((1.0, 3.0), (3.0, 1.0)))
    assert (spread.partitions, spread.seeds) == (0.0, pytest.approx(2**0.5))


def test_two_runs_differ_by_less_than_the_limit_in_95_of_100_cases():
    draw = random.Random(0)
    spread = Spread("c", "m", 10, tuple(tuple(draw.gauss(0, 1) for _ in "abc") for _ in range(999)))
    differences = [abs(draw.gauss(0, 1) - draw.gauss(0, 1)) for _ in range(20_000)]
    limit = spread.limit
    share = sum(d < limit for d in differences) / len(differences)
    assert share == pytest.approx(0.95, abs=0.01)


TABLE = {
    "title": "T",
    "columns": {
        "a": {"config": "quickstart"},
    },
    "rows": {"local": {"metric": "post_local"}},
}


def lines_of(cells, values, rounds=10):
    curve = [0.1] * rounds
    return [
        make_line(
            cells["local", column],
            [*curve, 0.5],
            [None, *curve[1:], value / 100],
            seed=seed,
            partition_hash=column * 64,
        )
        for column, row in zip("ab", values, strict=True)
        for seed, value in enumerate(row)
    ]


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "small.yaml"
    columns = {"a": {"config": "quickstart"}, "b": {"config": "quickstart", "options": {}}}
    path.write_text(yaml.safe_dump({**TABLE, "columns": columns}))
    return load_table(path)


CELLS = {("local", "a"): "A", ("local", "b"): "B"}


def spread_of(table, lines):
    return measure_spread(table, sections(table, CELLS, lines, generated=False)[-1])


def test_columns_of_one_config_are_its_partitions(small):
    (spread,) = spread_of(small, lines_of(CELLS, VALUES[:2]))
    assert (spread.config, spread.method, spread.rounds) == ("quickstart", "local, post-local", 10)
    assert spread.values == tuple(pytest.approx(row) for row in VALUES[:2])
    text = spread_markdown([spread])
    assert "| quickstart | local, post-local | 10 | 2 x 3 |" in text
    line = next(line for line in text.splitlines() if line.startswith("    tolerance"))
    table = {**TABLE, **yaml.safe_load(line)}
    assert table["tolerance"]["points"] == spread.tolerance.points
    assert "2 partitions x 3 seeds, 10 rounds" in table["tolerance"]["source"]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda lines: lines[:-1], "with the same seeds on each, got seeds by column a: 3, b: 2"),
        (lambda lines: lines[:3], "on 2 partitions .*, got seeds by column a: 3"),
        (lambda lines: [{**x, "partition_hash": "a" * 64} for x in lines], "on 2 partitions"),
        (lambda lines: [lines[0], lines[3]], "expected two seeds or more of local, post-local"),
    ],
)
def test_what_does_not_balance_is_refused(small, damage, said):
    with pytest.raises(UsageError, match=said):
        spread_of(small, damage(lines_of(CELLS, VALUES[:2])))


def test_the_shipped_study_has_three_partitions_and_three_seeds():
    (table,) = SUITE.load_tables(["study_spread"])
    cells = cells_of(table, PROFILES["cpu"], Resolver())
    assert len(set(cells.values())) == 12
    # The profile of the protocol has nothing to replace: they are the published procedure's.
    assert cells_of(table, PROFILES["paper"], Resolver()) == cells
    assert table.seeds["cpu"] == [0, 1, 2]


def test_the_command_runs_measures_and_writes(tmp_path, capsys):
    columns = {
        "a": {"config": "quickstart"},
        "b": {"config": "quickstart", "options": {"partition.seed": 2}},
    }
    table = {
        **TABLE,
        "columns": columns,
        "options": {"partition": "ReleasedDirichlet", "partition.num_clients": 4},
    }
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(table, sort_keys=False))
    given = ["--profile", "smoke", "--runs", str(tmp_path / "runs")]
    assert main(["spread", str(path), *given]) == 2
    assert "spread: expected finished runs of mine, got none" in capsys.readouterr().err
    assert main(["run", str(path), *given, "--seeds", "0", "1"]) == 0
    capsys.readouterr()
    assert main(["spread", str(path), *given, "-o", str(tmp_path / "spread.md")]) == 0
    assert "2 x 2" in capsys.readouterr().out
    assert "tolerance: {points:" in (tmp_path / "spread.md").read_text()

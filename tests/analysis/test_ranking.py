"""The ranking, against every group of methods that could be compared, one by one."""

from itertools import combinations
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cwfed.analysis.ranking import rank

values = st.dictionaries(st.integers(0, 4), st.sampled_from([0.1, 0.2, 0.3, None]), max_size=5)
methods = st.dictionaries(st.sampled_from("abcdef"), values, max_size=6)


def reference(scores):
    """Try every group of two or more methods on all the seeds that it shares."""
    has = {
        name: {seed for seed, value in own.items() if value is not None}
        for name, own in scores.items()
    }
    found = []
    for size in range(2, len(has) + 1):
        for group in combinations(has, size):
            shared = set.intersection(*(has[name] for name in group))
            if shared:
                found.append((size * len(shared), size, shared, group))
    return found


@given(methods)
def test_no_other_group_compares_more_runs(scores):
    ranking = rank(scores)
    found = reference(scores)
    with_figures = [n for n, own in scores.items() if any(v is not None for v in own.values())]
    if not found:
        assert len(ranking.order) == (len(with_figures) == 1)
        assert ranking.leaders == ()
        return
    most = max((runs, size) for runs, size, *_ in found)
    names, seeds = [name for name, _ in ranking.order], ranking.seeds
    assert (len(names) * len(seeds), len(names)) == most
    for name, mean in ranking.order:
        assert mean == pytest.approx(fmean(scores[name][seed] for seed in seeds))
    means = [mean for _, mean in ranking.order]
    assert means == sorted(means, reverse=True)
    assert set(ranking.leaders) == {n for n, m in ranking.order if m == means[0]}
    assert set(ranking.apart) == set(with_figures) - set(names)
    for name, (own, missing) in ranking.apart.items():
        assert set(own) == {s for s, v in scores[name].items() if v is not None}
        assert set(missing) == set(seeds) - set(own) != set()
    first, second = names[:2]
    assert ranking.ahead == sum(scores[first][s] > scores[second][s] for s in seeds)


def test_one_incomplete_method_does_not_take_the_others_seeds():
    whole = {f"m{n}": dict.fromkeys((0, 1, 2), n / 10) for n in range(5)}
    ranking = rank({**whole, "late": {0: 0.9}})
    assert ranking.seeds == (0, 1, 2)
    assert ranking.leaders == ("m4",)
    assert ranking.apart == {"late": ((0,), (1, 2))}
    assert ranking.standing == "wins"


def test_a_second_seed_of_one_method_does_not_leave_the_others_out():
    ranking = rank({"a": {0: 0.7}, "b": {0: 0.5, 1: 1.0}, "c": {0: 0.1}})
    assert (ranking.seeds, ranking.leaders, ranking.apart) == ((0,), ("a",), {})


@pytest.mark.parametrize(
    ("scores", "standing"),
    [
        ({}, "none"),
        ({"a": {0: None}}, "none"),
        ({"a": {0: 0.5}}, "alone"),
        ({"a": {0: 0.5}, "b": {1: 0.4}}, "none"),
        ({"a": {0: 0.5}, "b": {0: 0.4}}, "leads"),
        ({"a": {0: 0.5, 1: 0.6}, "b": {0: 0.4, 1: 0.5}}, "wins"),
        ({"a": {0: 0.5, 1: 0.6}, "b": {0: 0.6, 1: 0.4}}, "close"),
        ({"a": {0: 0.5}, "b": {0: 0.5}, "c": {0: 0.4}}, "level"),
    ],
)
def test_standings(scores, standing):
    assert rank(scores).standing == standing


def test_very_many_patterns_of_missing_seeds_take_no_time():
    seeds = range(24)
    scores = {f"m{n}": {s: 0.5 for s in seeds if s != n} for n in seeds}
    ranking = rank(scores)
    assert len(ranking.order) >= 2
    assert all(ranking.seeds[0] in scores[name] for name, _ in ranking.order)

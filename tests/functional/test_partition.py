"""Partitions against slow, literal versions of their rules."""

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cwfed.functional.partition import (
    _dirichlet_counts,
    dirichlet,
    holdout,
    iid,
    pathological,
    train_test_split,
)
from cwfed.functional.skew import measure_skew


def rng(seed=0):
    return np.random.default_rng(seed)


def labels_of(sizes):
    return np.repeat(np.arange(len(sizes)), sizes)


def counts_of(parts, labels, num_classes):
    return np.stack([np.bincount(labels[part], minlength=num_classes) for part in parts])


def assert_partition(parts, num_samples, num_clients):
    assert len(parts) == num_clients
    for part in parts:
        assert part.dtype == np.int64
        assert (np.diff(part) > 0).all()
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(num_samples))


@st.composite
def valid_pathological(draw):
    num_classes = draw(st.integers(1, 14))
    per_client = draw(st.integers(1, num_classes))
    step = num_classes // math.gcd(num_classes, per_client)
    num_clients = step * draw(st.integers(1, max(1, 30 // step)))
    group = num_clients * per_client // num_classes
    sizes = draw(
        st.lists(st.integers(group, 12 * group), min_size=num_classes, max_size=num_classes)
    )
    return sizes, num_clients, per_client


@given(valid_pathological(), st.integers(0, 2**32))
@settings(deadline=None)
def test_pathological_gives_every_client_c_classes_and_every_sample_once(case, seed):
    sizes, num_clients, per_client = case
    labels = labels_of(sizes)
    parts = pathological(labels, len(sizes), num_clients, per_client, rng(seed))
    assert_partition(parts, len(labels), num_clients)
    counts = counts_of(parts, labels, len(sizes))
    assert ((counts > 0).sum(axis=1) == per_client).all()
    group = num_clients * per_client // len(sizes)
    assert ((counts > 0).sum(axis=0) == group).all()


@given(valid_pathological(), st.integers(0, 2**32))
@settings(deadline=None)
def test_pathological_portions_lie_between_a_tenth_of_the_even_share_and_the_even_share(case, seed):
    sizes, num_clients, per_client = case
    labels = labels_of(sizes)
    counts = counts_of(
        pathological(labels, len(sizes), num_clients, per_client, rng(seed)), labels, len(sizes)
    )
    group = num_clients * per_client // len(sizes)
    for class_, size in enumerate(sizes):
        portions = counts[:, class_][counts[:, class_] > 0]
        even = size / group
        assert (portions[:-1] >= math.ceil(even / 10 - 1e-9)).all()
        assert (portions[:-1] <= math.floor(even + 1e-9)).all()
        assert portions[-1] >= even - 1e-9


def test_pathological_portions_reach_both_bounds():
    labels = labels_of([40] * 300)
    counts = counts_of(pathological(labels, 300, 2, 300, rng()), labels, 300)
    assert counts[0].min() == 2
    assert counts[0].max() == 20


@pytest.mark.parametrize(
    ("clients", "classes", "per_client"), [(20, 10, 4), (15, 10, 4), (4, 6, 3)]
)
def test_pathological_where_the_plain_rule_leaves_clients_short(clients, classes, per_client):
    plain = plain_rule_holders(clients, classes, per_client)
    held = [sum(client in holders for holders in plain) for client in range(clients)]
    short = min(held) < per_client
    assert short == (classes % per_client != 0)
    labels = labels_of([100] * classes)
    counts = counts_of(pathological(labels, classes, clients, per_client, rng()), labels, classes)
    assert ((counts > 0).sum(axis=1) == per_client).all()


def plain_rule_holders(clients, classes, per_client):
    lacking = [per_client] * clients
    holders = []
    for _ in range(classes):
        chosen = [client for client in range(clients) if lacking[client] > 0]
        chosen = chosen[: clients * per_client // classes]
        for client in chosen:
            lacking[client] -= 1
        holders.append(chosen)
    return holders


def plain_pathological(labels, classes, clients, per_client, generator):
    """The plain rule, sample by sample: shuffle a class, draw portions, deal."""
    parts = [[] for _ in range(clients)]
    for class_, holders in enumerate(plain_rule_holders(clients, classes, per_client)):
        pile = list(generator.permutation([n for n in range(len(labels)) if labels[n] == class_]))
        even = len(pile) / len(holders)
        portions = generator.integers(
            math.ceil(even / 10), math.floor(even) + 1, size=len(holders) - 1
        )
        for client, portion in zip(holders[:-1], portions, strict=True):
            for _ in range(portion):
                parts[client].append(pile.pop(0))
        parts[holders[-1]].extend(pile)
    return [sorted(part) for part in parts]


@pytest.mark.parametrize(
    ("clients", "classes", "per_client"),
    [(20, 10, 2), (10, 10, 1), (4, 8, 4), (20, 100, 10), (50, 10, 2), (3, 5, 5)],
)
def test_pathological_is_the_plain_rule_where_c_divides_k(clients, classes, per_client):
    labels = rng(7).permutation(labels_of([60] * classes))
    got = pathological(labels, classes, clients, per_client, rng(3))
    want = plain_pathological(labels, classes, clients, per_client, rng(3))
    assert [part.tolist() for part in got] == want


@pytest.mark.parametrize(
    ("clients", "classes", "per_client", "words"),
    [
        (20, 10, 11, ["classes_per_client", "10 classes", "11"]),
        (20, 10, 0, ["classes_per_client", "0"]),
        (20, 100, 2, ["20 clients x 2 classes cannot cover 100 classes", "50", "= 5"]),
        (20, 7, 3, ["20 clients x 3 classes", "num_clients = 14 or 21", "classes_per_client = 7"]),
        (12, 10, 2, ["num_clients = 10 or 15 with 2", "classes_per_client = 5 with 12"]),
        (12, 10, 6, ["num_clients = 10 or 15 with 6", "classes_per_client = 5 or 10 with 12"]),
    ],
)
def test_pathological_refuses_and_names_what_would_do(clients, classes, per_client, words):
    with pytest.raises(ValueError, match="classes_per_client") as error:
        pathological(labels_of([100] * classes), classes, clients, per_client, rng())
    for word in words:
        assert word in str(error.value)


@given(st.integers(1, 40), st.integers(1, 25), st.integers(1, 25))
@settings(deadline=None)
def test_the_numbers_a_refusal_names_are_valid(clients, classes, per_client):
    assume(per_client <= classes and clients * per_client % classes)
    labels = labels_of([2000] * classes)
    with pytest.raises(ValueError, match="nearest valid") as error:
        pathological(labels, classes, clients, per_client, rng())
    first, second = str(error.value).split("nearest valid: ")[1].split(", or ")
    for number in first.split(" = ")[1].split(" with ")[0].split(" or "):
        assert len(pathological(labels, classes, int(number), per_client, rng())) == int(number)
    for number in second.split(" = ")[1].split(" with ")[0].split(" or "):
        pathological(labels, classes, clients, int(number), rng())


def test_pathological_refuses_a_class_too_small_to_share():
    with pytest.raises(ValueError, match="class 1 has 3 samples, expected at least one for each"):
        pathological(labels_of([10, 3]), 2, 4, 2, rng())


def test_labels_out_of_range_are_refused():
    with pytest.raises(ValueError, match=r"expected classes in \[0, 2\), got 2"):
        pathological(np.array([0, 1, 2]), 2, 1, 2, rng())


def slow_dirichlet_counts(sizes, clients, alpha, generator):
    """The rule of the practical split for one draw, in exact fractions where it matters."""
    held = [0] * clients
    table = []
    for size in sizes:
        while True:
            p = list(generator.dirichlet([alpha] * clients))
            p = [0.0 if held[i] * clients >= sum(sizes) else p[i] for i in range(clients)]
            if sum(p) > 0:
                break
        row, before, running = [], 0, 0.0
        total = float(np.sum(p))
        last = max(i for i in range(clients) if held[i] * clients < sum(sizes))
        for i in range(clients):
            running += p[i] / total
            cut = size if i >= last else int(min(running, 1.0) * size)
            row.append(cut - before)
            before = cut
        held = [held[i] + row[i] for i in range(clients)]
        table.append(row)
    return np.array(table)


@given(
    st.lists(st.integers(1, 300), min_size=1, max_size=12),
    st.integers(1, 12),
    st.sampled_from([0.001, 0.05, 0.1, 1.0, 100.0]),
    st.integers(0, 2**32),
)
@settings(deadline=None)
def test_dirichlet_counts_follow_the_slow_rule(sizes, clients, alpha, seed):
    got = _dirichlet_counts(np.array(sizes), clients, alpha, rng(seed))
    assert np.array_equal(got, slow_dirichlet_counts(sizes, clients, alpha, rng(seed)))


@given(
    st.lists(st.integers(0, 300), min_size=1, max_size=12),
    st.integers(1, 12),
    st.sampled_from([0.001, 0.1, 1.0]),
    st.integers(0, 2**32),
)
@settings(deadline=None)
def test_dirichlet_gives_a_full_client_nothing_more(sizes, clients, alpha, seed):
    labels = labels_of(sizes)
    counts = _dirichlet_counts(np.array(sizes), clients, alpha, rng(seed))
    assert (counts >= 0).all()
    assert counts.sum(axis=1).tolist() == sizes
    before = np.cumsum(counts, axis=0) - counts
    assert (counts[before * clients >= len(labels)] == 0).all()


@given(
    st.lists(st.integers(20, 200), min_size=2, max_size=8),
    st.integers(1, 8),
    st.integers(0, 2**32),
)
@settings(deadline=None)
def test_dirichlet_covers_every_sample_and_keeps_the_minimum(sizes, clients, seed):
    labels = rng(seed).permutation(labels_of(sizes))
    parts = dirichlet(labels, len(sizes), clients, 0.5, None, rng(seed))
    assert_partition(parts, len(labels), clients)
    assert min(map(len, parts)) >= min(40, len(labels) // clients // 2)


def test_dirichlet_redraws_until_the_minimum_is_met():
    labels = labels_of([600] * 10)
    met = [
        min(map(len, dirichlet(labels, 10, 20, 0.1, minimum, rng(seed))))
        for minimum in (0, 100)
        for seed in range(10)
    ]
    assert min(met[:10]) < 100 <= min(met[10:])


def test_dirichlet_skew_falls_as_alpha_grows():
    labels = labels_of([1000] * 10)

    def tv(alpha):
        values = [
            measure_skew(
                torch.from_numpy(counts_of(dirichlet(labels, 10, 10, alpha, 1, rng(s)), labels, 10))
            ).mean_tv
            for s in range(5)
        ]
        return sum(values) / len(values)

    values = [tv(alpha) for alpha in (0.05, 0.3, 1.0, 10.0, 1000.0)]
    assert values == sorted(values, reverse=True)
    assert values[0] > 0.7
    assert values[-1] < 0.05


def test_dirichlet_with_a_tiny_alpha_ends_and_is_whole():
    labels = labels_of([100] * 10)
    parts = dirichlet(labels, 10, 5, 0.001, 0, rng())
    assert_partition(parts, 1000, 5)
    assert_partition(dirichlet(labels, 10, 200, 1e-12, 0, rng()), 1000, 200)


def test_dirichlet_gives_up_and_says_which_knob_to_turn():
    with pytest.raises(
        ValueError, match=r"none of 50 draws at alpha=0\.001 gave each of 20"
    ) as error:
        dirichlet(labels_of([100] * 10), 10, 20, 0.001, 25, rng(), max_redraws=50)
    for word in ("min_samples=25", "raise alpha", "lower num_clients", "lower min_samples"):
        assert word in str(error.value)


@pytest.mark.parametrize("alpha", [0.0, -1.0, math.nan, math.inf])
def test_dirichlet_refuses_an_alpha(alpha):
    with pytest.raises(ValueError, match="alpha: expected a finite number > 0"):
        dirichlet(labels_of([10, 10]), 2, 2, alpha, None, rng())


def test_dirichlet_refuses_a_minimum_nobody_can_meet():
    with pytest.raises(ValueError, match="min_samples: expected between 0 and 10"):
        dirichlet(labels_of([10, 10]), 2, 2, 1.0, 11, rng())
    with pytest.raises(ValueError, match="min_samples"):
        dirichlet(labels_of([10, 10]), 2, 2, 1.0, -1, rng())


def test_an_alpha_beyond_floating_point_is_an_error_not_nan():
    with pytest.raises(ValueError, match="alpha"):
        dirichlet(labels_of([10, 10]), 2, 2, 1e308, None, rng())


@given(st.integers(1, 500), st.integers(1, 40), st.integers(0, 2**32))
def test_iid_sizes_differ_by_one_at_most(samples, clients, seed):
    assume(clients <= samples)
    parts = iid(samples, clients, rng(seed))
    assert_partition(parts, samples, clients)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_iid_is_shuffled_and_refuses_more_clients_than_samples():
    assert iid(100, 2, rng())[0].tolist() != list(range(50))
    with pytest.raises(ValueError, match=r"num_clients: expected 1 to 3 \(samples\), got 4"):
        iid(3, 4, rng())


@given(st.integers(0, 300), st.floats(0.01, 0.99), st.integers(0, 2**32))
def test_splits_keep_every_index_and_leave_no_side_empty(n, fraction, seed):
    indices = np.arange(n, dtype=np.int64) * 3
    for cut in (train_test_split, holdout):
        first, second = cut(indices, fraction, rng(seed))
        assert np.array_equal(np.sort(np.concatenate([first, second])), indices)
        assert (np.diff(first) > 0).all()
        assert (np.diff(second) > 0).all()
        assert len(first) >= min(n, 1)
        assert len(second) >= (n >= 2)


@pytest.mark.parametrize(("n", "train"), [(1, 1), (2, 1), (3, 2), (4, 3), (5, 3), (100, 75)])
def test_train_takes_the_floor_of_three_quarters(n, train):
    assert len(train_test_split(np.arange(n), 0.75, rng())[0]) == train


def test_a_whole_product_loses_no_sample_to_rounding():
    assert len(holdout(np.arange(100), 0.29, rng())[1]) == 29


def test_splits_are_shuffled_and_refuse_a_fraction():
    assert train_test_split(np.arange(100), 0.75, rng())[0].tolist() != list(range(75))
    for bad in (0.0, 1.0, -0.1, math.nan):
        with pytest.raises(ValueError, match="train_fraction"):
            train_test_split(np.arange(4), bad, rng())
        with pytest.raises(ValueError, match="fraction: expected"):
            holdout(np.arange(4), bad, rng())


def test_skew_measures_against_hand_counts():
    skew = measure_skew(torch.tensor([[8, 0], [0, 2], [0, 0]]))
    assert skew.mean_classes == pytest.approx(2 / 3)
    assert skew.mean_tv == pytest.approx((0.2 + 0.8 + 0.0) / 3)
    assert skew.size_cv == pytest.approx(np.std([8, 2, 0]) / np.mean([8, 2, 0]))
    assert (skew.min_size, skew.max_size) == (0, 8)
    with pytest.raises(ValueError, match="counts_MK"):
        measure_skew(torch.zeros(2, 2, dtype=torch.int64))

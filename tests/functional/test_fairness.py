import statistics

import pytest

from cwfed.functional.fairness import fairness, pooled_accuracy


def test_pooled_accuracy_weights_clients_by_their_samples():
    assert pooled_accuracy([9, 0], [10, 90]) == 0.09


def test_nothing_to_score():
    assert pooled_accuracy([], []) is None
    assert fairness([0], [0]) == {"mean": None, "std": None, "worst10": None}


def test_fairness_of_21_clients_takes_the_lowest_three():
    correct, total = list(range(21)), [100] * 21
    result = fairness(correct, total)
    accuracies = [c / 100 for c in correct]
    assert result["mean"] == pytest.approx(statistics.fmean(accuracies))
    assert result["std"] == pytest.approx(statistics.pstdev(accuracies))
    assert result["worst10"] == pytest.approx((0 + 1 + 2) / 300)


def test_clients_without_test_samples_are_left_out():
    assert fairness([1, 0], [2, 0])["mean"] == 0.5

"""Verification: what it compares, on the same machine and on another."""

from copy import deepcopy

import pytest
from ledger_lines import make_line

from benchmarks.suite import SUITE
from cwfed.config.files import UsageError
from cwfed.sweeps.jobs import Resolver, expand
from cwfed.sweeps.profiles import PROFILES
from cwfed.sweeps.verify import compare, find_line, inconsistencies, same_machine

OLD = make_line("a", [0.1, 0.2, 0.3, 0.25])


def changed(line, *path, value):
    copy = deepcopy(line)
    target = copy
    for name in path[:-1]:
        target = target[name]
    target[path[-1]] = value
    return copy


ELSEWHERE = changed(OLD, "hardware", "cpu", value="two")


def test_a_line_agrees_with_itself_and_with_a_shorter_rerun():
    assert inconsistencies(OLD) == []
    assert compare(OLD, OLD, 1.5) == []
    assert compare(OLD, make_line("a", [0.1, 0.2, 0.3]), 1.5) == []


def test_a_line_that_contradicts_itself():
    (found,) = inconsistencies(changed(OLD, "metrics", "received", "best", "accuracy", value=0.31))
    assert found == "received.best: expected 0.300000, as its curve has it, got 0.310000"
    (found,) = inconsistencies(changed(OLD, "metrics", "post_local", "last", "accuracy", value=0.3))
    assert found.startswith("post_local.last: expected 0.250000")
    (found,) = inconsistencies(changed(OLD, "config", "cell", value="b"))
    assert found.startswith("config: expected one with the hash")


def test_one_digit_counts_on_the_same_machine():
    new = changed(OLD, "curves", "received", 2, value=0.300001)
    assert compare(OLD, new, 1.5) == ["received, round 2: expected 0.300000, got 0.300001"]
    assert compare(OLD, changed(OLD, "metrics", "mean_R", value=0.6), 1.5) == [
        "mean_R: expected 0.5, got 0.6"
    ]
    (found,) = compare(OLD, changed(OLD, "partition_hash", value="6" * 64), 1.5)
    assert found == "partition: expected 555555555555, got 666666666666"


def test_another_machine_has_a_tolerance():
    assert same_machine(OLD, OLD)
    assert same_machine(OLD, changed(OLD, "hardware", "cores", value=64))
    assert not same_machine(OLD, ELSEWHERE)
    assert not same_machine(OLD, changed(OLD, "versions", "torch", value="2.15"))
    near = changed(ELSEWHERE, "curves", "received", 2, value=0.31)
    assert compare(OLD, near, 1.5) == []
    assert compare(OLD, near, 0.5) == ["received, round 2: expected 0.300000, got 0.310000"]


def test_a_target_must_name_one_run():
    lines = [OLD, make_line("a", [0.1, 0.2], seed=1)]
    assert find_line(SUITE, OLD["key"][:9], lines, None, None) is OLD
    assert find_line(SUITE, "", lines, 1, None) is lines[1]
    assert find_line(SUITE, "", lines, None, 2) is OLD
    with pytest.raises(UsageError, match=r"expected a key .* matches .*seed 0.*seed 1"):
        find_line(SUITE, "", lines, None, None)
    with pytest.raises(UsageError, match="matches none"):
        find_line(SUITE, "xyz", lines, None, None)


def test_a_cell_has_a_line_for_each_partition():
    table, resolver = "table3_ablation", Resolver()
    lines = []
    for name in ("paper", "cpu"):
        (job,) = expand(
            *SUITE.load_tables([table]),
            PROFILES[name],
            resolver,
            seeds=[0],
            only=["fedavg/cifar100"],
        )
        lines.append(make_line(job.cell, [0.1, 0.2], profile=name))
    target = f"{table}/fedavg/cifar100"
    assert find_line(SUITE, target, lines, None, None, "paper") is lines[0]
    assert find_line(SUITE, target, lines, None, None, "cpu") is lines[1]
    with pytest.raises(UsageError, match=r"which matches .*, .*"):
        find_line(SUITE, target, lines, None, None)
    with pytest.raises(UsageError, match=r"--profile: expected one of paper, .* got 'gpu'"):
        find_line(SUITE, target, lines, None, None, "gpu")

"""Who trains beside whom, and for how long."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cwfed.engines.vectorized.cohort import bucketed, exact, make_chunks, schedule


def plan(first, steps, size):
    return list(torch.arange(first, first + steps * size).split(size)) if steps else []


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 3)), max_size=12),
    st.integers(1, 5),
)
def test_chunks_hold_every_batch_of_every_client_once(clients, size):
    plans = [plan(100 * i, *client) for i, client in enumerate(clients)]
    seen = {}
    for chunk in make_chunks(plans, size):
        assert len(chunk.positions) <= size
        assert list(chunk.steps) == sorted(chunk.steps, reverse=True)
        for place, (position, steps) in enumerate(zip(chunk.positions, chunk.steps, strict=True)):
            assert position not in seen
            seen[position] = chunk.plan_SCB[:steps, place]
            assert not chunk.plan_SCB[steps:, place].any()
    assert seen.keys() == {i for i, (steps, _) in enumerate(clients) if steps}
    for position, batches in seen.items():
        assert torch.equal(batches, torch.stack(plans[position]))


@given(st.lists(st.integers(1, 9), min_size=1, max_size=9), st.sampled_from(["exact", "bucketed"]))
def test_a_schedule_gives_each_client_its_steps(steps, policy):
    steps = sorted(steps, reverse=True)
    widths = exact if policy == "exact" else bucketed(len(steps) + 3)
    taken, finished = [0] * len(steps), {}
    done = 0
    for segment in schedule(steps, widths):
        still = sum(own > done for own in steps)
        assert segment.width >= still
        assert policy == "bucketed" or segment.width == still
        for place in range(min(segment.width, len(steps))):
            taken[place] += segment.steps
        done += segment.steps
        for place in range(*segment.finished.indices(len(steps))):
            assert place not in finished
            finished[place] = taken[place]
    assert finished == dict(enumerate(steps))


def test_few_widths_cover_all():
    widths = bucketed(100)
    found = {active: widths(active) for active in range(1, 101)}
    assert all(width >= active for active, width in found.items())
    assert sorted(set(found.values())) == [13, 25, 50, 75, 100]
    assert {bucketed(1)(1), bucketed(2)(2)} == {1, 2}
    with pytest.raises(StopIteration):
        widths(101)

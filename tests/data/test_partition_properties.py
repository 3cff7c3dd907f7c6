"""What holds of every partitioner for any labels and arguments."""

from itertools import pairwise

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cwfed.data.partitioners import IID, Dirichlet, Pathological

clients = st.integers(1, 12)
makers = st.one_of(
    st.builds(lambda m, c: lambda: Pathological(m, c), clients, st.integers(1, 6)),
    st.builds(
        lambda m, a, low: lambda: Dirichlet(m, a, low),
        clients,
        st.floats(min_value=0, exclude_min=True, allow_infinity=False),
        st.none() | st.integers(1, 3),
    ),
    st.builds(lambda m: lambda: IID(m), clients),
)
labelled = st.integers(1, 5).flatmap(
    lambda k: st.tuples(st.lists(st.integers(0, k - 1), max_size=60), st.just(k))
)


def divide(make, labels, num_classes, seed):
    """Return the shares, or the message of the only error there may be."""
    try:
        return make().split(torch.tensor(labels, dtype=torch.int64), num_classes, seed)
    except ValueError as error:
        return str(error)


@settings(max_examples=120, deadline=None)
@given(makers, labelled, st.integers(0, 2**40))
def test_every_sample_once_or_a_reason(make, data, seed):
    labels, num_classes = data
    shares = divide(make, labels, num_classes, seed)
    again = divide(make, labels, num_classes, seed)
    if isinstance(shares, str):
        assert shares.partition(":")[2]
        assert shares == again
        return
    partitioner = make()
    assert len(shares) == partitioner.num_clients
    assert np.array_equal(np.sort(np.concatenate(shares)), np.arange(len(labels)))
    assert all(a < b for share in shares for a, b in pairwise(share.tolist()))
    assert all(map(np.array_equal, shares, again))
    sizes = [len(share) for share in shares]
    if isinstance(partitioner, IID):
        assert max(sizes) - min(sizes) <= 1
    elif isinstance(partitioner, Dirichlet):
        assert min(sizes) >= (partitioner.min_samples or 0)
    else:
        held = {len({labels[i] for i in share}) for share in shares}
        assert held == {partitioner.classes_per_client}


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 6), st.integers(0, 2**40))
def test_another_seed_deals_otherwise_and_no_global_state_is_used(num_clients, seed):
    labels = [sample % num_clients for sample in range(60 * num_clients)]
    for partitioner in (
        Pathological(num_clients, 2),
        Dirichlet(num_clients, 100.0),
        IID(num_clients),
    ):
        first = divide(lambda made=partitioner: made, labels, num_clients, seed)
        np.random.seed(1), torch.manual_seed(1)
        state = torch.get_rng_state(), np.random.get_state()[1].copy()
        again = divide(lambda made=partitioner: made, labels, num_clients, seed)
        other = divide(lambda made=partitioner: made, labels, num_clients, seed + 1)
        assert all(map(np.array_equal, first, again))
        assert not all(map(np.array_equal, first, other))
        assert torch.equal(state[0], torch.get_rng_state())
        assert np.array_equal(state[1], np.random.get_state()[1])

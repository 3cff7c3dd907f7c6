import pytest

from cwfed.federated.sampler import UniformSampler


@pytest.mark.parametrize(
    ("clients", "fraction", "count"),
    [(20, 1.0, 20), (20, 0.1, 2), (5, 0.5, 3), (9, 0.01, 1), (100, 0.29, 29), (100, 0.57, 57)],
)
def test_how_many_take_part(clients, fraction, count):
    sampler = UniformSampler(clients, fraction, seed=0)
    for round_ in range(5):
        drawn = sampler.sample(round_)
        assert len(set(drawn)) == count
        assert drawn == sorted(drawn)
        assert set(drawn) <= set(range(clients))


@pytest.mark.parametrize("clients", [*range(1, 41), 100, 1000])
def test_any_number_of_participants_is_a_fraction(clients):
    for count in range(1, clients + 1):
        assert len(UniformSampler(clients, count / clients, seed=0).sample(1)) == count


def test_every_client_gets_its_turn_and_rounds_are_repeatable():
    sampler = UniformSampler(10, 0.2, seed=0)
    rounds = [tuple(sampler.sample(r)) for r in range(100)]
    counts = [sum(client in drawn for drawn in rounds) for client in range(10)]
    assert min(counts) >= 8
    assert rounds == [tuple(UniformSampler(10, 0.2, seed=0).sample(r)) for r in range(100)]
    assert rounds != [tuple(UniformSampler(10, 0.2, seed=1).sample(r)) for r in range(100)]


@pytest.mark.parametrize("fraction", [0, -0.1, 1.01, float("nan")])
def test_bad_fractions_are_refused(fraction):
    with pytest.raises(ValueError, match=r"participation: expected a fraction in \(0, 1\], got"):
        UniformSampler(5, fraction, seed=0)

"""Samples the clients that take part in a round."""

import torch

from cwfed.functional.seeding import torch_generator


class UniformSampler:
    """A fixed number of clients, drawn uniformly without replacement each round.

    The number is p·M to the nearest whole number, halves up, and at least one. The code base that
    published comparisons rest on takes ``int(p·M)``, which cuts what floating point makes of the
    product, ``int(0.29 * 100)`` is 28, and leaves nobody where it is below 1. Both agree wherever
    floating point hits a whole number; any other number k is the fraction k / M.

    Args:
        num_clients: M.
        participation: Fraction of the clients in ``(0, 1]``; at least one takes part.
        seed: The run's seed; the draw is a function of (seed, round).

    Raises:
        ValueError: The fraction is out of range.
    """

    def __init__(self, num_clients: int, participation: float, seed: int) -> None:
        if not 0 < participation <= 1:
            raise ValueError(f"participation: expected a fraction in (0, 1], got {participation}")
        self.num_clients = num_clients
        self.count = max(1, int(participation * num_clients + 0.5))
        self.seed = seed

    def sample(self, round_: int) -> list[int]:
        """Return the ids of the round's participants, ascending."""
        generator = torch_generator(self.seed, "participants", round_=round_)
        order = torch.randperm(self.num_clients, generator=generator)
        return sorted(order[: self.count].tolist())

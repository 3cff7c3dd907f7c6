"""The ranking of methods: which of them can be compared, on which seeds, and who is ahead.

Each seed draws a partition of its own, so a mean says something beside another only where both are
over the same seeds. Words, tables, the page and its marks all rank by this module.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Generic, Literal, TypeVar

Method = TypeVar("Method", bound=Hashable)
Standing = Literal["none", "alone", "level", "close", "leads", "wins"]

RULE = (
    "Methods are ranked by their mean over seeds, all on the same seeds. Compared are the methods "
    "and seeds that together hold the most finished runs, each of the methods having each of the "
    "seeds, and of as many runs the most methods: so one method that is not through does not take "
    "seeds from the others. It is named, and left out. The first wins if it is ahead of the second "
    "in each of the seeds, and leads if there is but one seed; otherwise the two are too close to "
    "call."
)
"""The rule, as the page prints it."""

_MOST_CANDIDATES = 2000
"""Sets of seeds that are tried: more only come up where many methods each lack other seeds."""


@dataclass(frozen=True)
class Ranking(Generic[Method]):
    """Who is ahead of whom.

    Attributes:
        seeds: The seeds that every method of the order has, ascending.
        order: Methods and means over these seeds, best first.
        apart: Methods that are left out, with the seeds that they have and those of
            `seeds` that they lack.
        ahead: Of the seeds, the number in which the first is ahead of the second.
    """

    seeds: tuple[int, ...] = ()
    order: tuple[tuple[Method, float], ...] = ()
    apart: Mapping[Method, tuple[tuple[int, ...], tuple[int, ...]]] = field(default_factory=dict)
    ahead: int = 0

    @property
    def first(self) -> tuple[Method, ...]:
        """The method with the highest mean; several where they are level."""
        return tuple(method for method, mean in self.order if mean == self.order[0][1])

    @property
    def leaders(self) -> tuple[Method, ...]:
        """The method that is marked as the best: `first`, if others are compared with it."""
        return self.first if len(self.order) > 1 else ()

    @property
    def standing(self) -> Standing:
        """The first method's standing to the second."""
        if len(self.order) < 2:
            return "alone" if self.order else "none"
        if len(self.first) > 1:
            return "level"
        if self.ahead < len(self.seeds):
            return "close"
        return "leads" if len(self.seeds) == 1 else "wins"


def rank(scores: Mapping[Method, Mapping[int, float | None]]) -> Ranking[Method]:
    """Rank methods by a figure of which more is better.

    Args:
        scores: The figure by method and seed; None where a run has none.
    """
    figures = {
        method: {seed: value for seed, value in own.items() if value is not None}
        for method, own in scores.items()
    }
    known = {method: own for method, own in figures.items() if own}
    seeds = _compared(known)
    compared = {method: own for method, own in known.items() if seeds and seeds <= own.keys()}
    means = [(method, fmean(own[seed] for seed in seeds)) for method, own in compared.items()]
    order = sorted(means, key=lambda pair: -pair[1])
    apart = {
        method: (tuple(sorted(own)), tuple(sorted(seeds - own.keys())))
        for method, own in known.items()
        if method not in compared
    }
    pair = [known[method] for method, _ in order[:2]]
    ahead = sum(pair[0][seed] > pair[1][seed] for seed in seeds) if len(pair) == 2 else 0
    return Ranking(tuple(sorted(seeds)), tuple(order), apart, ahead)


def _compared(known: Mapping[Method, Mapping[int, float]]) -> frozenset[int]:
    """Return the seeds on which the most runs can be compared; empty where no two methods can."""
    own = [frozenset(seeds) for seeds in known.values()]
    if len(own) == 1:
        return own[0]
    best: frozenset[int] = frozenset()
    most: tuple[int, int, tuple[int, ...]] = (0, 0, ())
    for seeds in _candidates(own):
        methods = sum(seeds <= other for other in own)
        # Of equal ones, the same whatever order the methods come in.
        worth = (methods * len(seeds), methods, tuple(-seed for seed in sorted(seeds)))
        if methods > 1 and seeds and worth > most:
            best, most = seeds, worth
    return best


def _candidates(own: list[frozenset[int]]) -> set[frozenset[int]]:
    """Return all that methods may have in common, as far as there are not very many of these."""
    found = {*own, frozenset.intersection(*own)} if own else set()
    new = set(own)
    while new and len(found) < _MOST_CANDIDATES:
        new = {one & other for one in new for other in set(own)} - found
        found |= new
    return found

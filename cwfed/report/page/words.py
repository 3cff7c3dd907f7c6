"""What the runs say, in plain words: who wins, on which clients, at what cost, and if WDR worked.

Every sentence is worked out from finished runs of one setting, over the seeds that all its
methods have.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cwfed.report.page.facts import Facts
from cwfed.report.page.settings import Setting, Variant

METRIC_WORDS = {
    "received": "with the models that clients start the next round with",
    "post_local": "right after local training",
}
CHOICE_WORDS = {"last": "after the last round", "best": "in each run's best round on test data"}
WORKED = 0.5
"""WDR counts as effective where mean R ends below this share of where it started."""


@dataclass(frozen=True)
class Duel:
    """Two methods, client by client over all seeds.

    Attributes:
        ahead: Clients on which the first is better.
        behind: Clients on which it is worse.
        equal: Clients on which both are right equally often.
    """

    ahead: int
    behind: int
    equal: int

    @property
    def total(self) -> int:
        """Clients that were compared."""
        return self.ahead + self.behind + self.equal


def summarise(setting: Setting, metric: str, choice: str) -> dict[str, Any]:
    """Return a headline, and points by title, for one way of scoring.

    Args:
        setting: What is compared.
        metric: ``received`` or ``post_local``.
        choice: ``last`` or ``best``.
    """
    ranked, seeds = rank(setting, metric, choice)
    points = []
    if ranked:
        headline, margin = _winner(ranked, seeds, metric, choice)
        points.append({"title": "Accuracy", "text": margin})
        points.append({"title": "Clients", "text": _clients(ranked, seeds, metric, choice)})
        points.append({"title": "Cost", "text": _cost(ranked, seeds)})
    elif any(variant.counted for variant in setting.variants):
        headline = "No ranking: the methods have no seed in common."
    else:
        headline = "No ranking yet: no run has finished."
    points.append({"title": "WDR", "text": wdr_text(setting)})
    points.append({"title": "Unfinished", "text": _unfinished(setting)})
    return {"headline": headline, "points": [point for point in points if point["text"]]}


def _unfinished(setting: Setting) -> str:
    halted = [facts for v in setting.variants for facts in v.runs if not facts.finished]
    if not halted:
        return ""
    named = ", ".join(f"{f.name} ({f.rounds} of {f.planned} rounds)" for f in halted)
    verb = "1 run is" if len(halted) == 1 else f"{len(halted)} runs are"
    return f"{verb} drawn as far as there are rounds and left out of means and ranking: {named}."


def rank(
    setting: Setting, metric: str, choice: str
) -> tuple[list[tuple[Variant, float]], list[int]]:
    """Return the methods with their mean accuracy, best first, and the seeds that all have."""
    variants = [variant for variant in setting.variants if variant.counted]
    shared = set.intersection(*(set(variant.counted) for variant in variants)) if variants else ()
    seeds = sorted(shared)
    if not seeds:
        return [], []
    scored = [(v, v.mean(lambda facts: facts.accuracy(metric, choice), seeds)) for v in variants]
    known = [(variant, mean) for variant, mean in scored if mean is not None]
    return sorted(known, key=lambda pair: -pair[1]), seeds


def duel(first: Variant, second: Variant, seeds: Sequence[int], metric: str, choice: str) -> Duel:
    """Compare two methods on every client with test samples, over seeds."""
    counts = [0, 0, 0]
    for seed in seeds:
        one, two = (variant.counted[seed] for variant in (first, second))
        mine, theirs = one.correct_M(metric, choice), two.correct_M(metric, choice)
        if mine is None or theirs is None or one.test_M is None:
            continue
        for a, b, total in zip(mine, theirs, one.test_M, strict=True):
            if total:
                counts[0 if a > b else 1 if a < b else 2] += 1
    return Duel(*counts)


def _winner(
    ranked: Sequence[tuple[Variant, float]], seeds: Sequence[int], metric: str, choice: str
) -> tuple[str, str]:
    best, top = ranked[0]
    rounds = next(iter(best.counted.values())).rounds
    scale = f"{rounds} round{'s' * (rounds != 1)}, {_seeds(seeds)}"
    how = f"{METRIC_WORDS[metric]}, {CHOICE_WORDS[choice]}"
    if len(ranked) == 1:
        return (
            f"{best.label} reaches {_percent(top)} ({scale})",
            f"Test accuracy {how}. There is no other method to compare it with.",
        )
    level = [variant.label for variant, mean in ranked if mean == top]
    if len(level) > 1:
        names = f"{', '.join(level[:-1])} and {level[-1]}"
        order = _order(ranked[len(level) :])
        return f"{names} are level: {_percent(top)} ({scale})", f"Test accuracy {how}.{order}"
    headline, text = _margin(ranked, seeds, metric, choice)
    return f"{headline} ({scale})", f"Test accuracy {how}: {text}{_order(ranked[2:])}"


def _margin(
    ranked: Sequence[tuple[Variant, float]], seeds: Sequence[int], metric: str, choice: str
) -> tuple[str, str]:
    """Return who wins, or that nobody does, and by how much the first leads the second."""
    (best, top), (second, next_best) = ranked[:2]
    ahead = f"{100 * (top - next_best):.2f} points ahead of {second.label} ({_percent(next_best)})"
    better = _seeds_ahead(best, second, seeds, metric, choice)
    if better < len(seeds):
        return (
            f"{best.label} and {second.label} are too close to call",
            f"{best.label} has {_percent(top)}, {ahead}. It is ahead in {better} of {len(seeds)} "
            "seeds.",
        )
    each = f"It is ahead in each of the {len(seeds)} seeds."
    chance = "One seed says nothing about chance." if len(seeds) == 1 else each
    return f"{best.label} wins: {_percent(top)}", f"{ahead}. {chance}"


def _order(ranked: Sequence[tuple[Variant, float]]) -> str:
    order = ", ".join(f"{variant.label} {_percent(mean)}" for variant, mean in ranked)
    return f" Then: {order}." if order else ""


def _seeds_ahead(
    first: Variant, second: Variant, seeds: Sequence[int], metric: str, choice: str
) -> int:
    pairs = [
        [variant.counted[seed].accuracy(metric, choice) or 0.0 for variant in (first, second)]
        for seed in seeds
    ]
    return sum(one > two for one, two in pairs)


def _clients(
    ranked: Sequence[tuple[Variant, float]], seeds: Sequence[int], metric: str, choice: str
) -> str:
    best = ranked[0][0]
    against = [variant for variant, _ in ranked[1:]]
    # Beside the runner-up, the two that a reader asks for: no personalisation and no federation.
    named = [v for v in against[1:] if v.label in ("fedavg", "local")]
    texts = []
    for other in [*against[:1], *named]:
        result = duel(best, other, seeds, metric, choice)
        if result.total:
            texts.append(
                f"Against {other.label}, {best.label} is better on {result.ahead} of "
                f"{result.total}, worse on {result.behind}, level on {result.equal}."
            )
    if texts and len(seeds) > 1:
        texts.append(f"Clients are counted over {len(seeds)} seeds.")
    return " ".join(texts)


def _cost(ranked: Sequence[tuple[Variant, float]], seeds: Sequence[int]) -> str:
    best, others = ranked[0][0], [variant for variant, _ in ranked[1:]]
    up, down = best.mean(_up, seeds), best.mean(_down, seeds)
    seconds = best.mean(lambda facts: facts.seconds, seeds)
    if up is None or down is None or seconds is None:
        return ""
    text = (
        f"{best.label} sends {_size(up)} up and {_size(down)} down a client and round, and a round "
        f"takes {seconds:.2g} s."
    )
    for other in others[:1]:
        traffic = (other.mean(_up, seeds) or 0.0) + (other.mean(_down, seeds) or 0.0)
        time = other.mean(lambda facts: facts.seconds, seeds)
        if time:
            text += (
                f" {other.label}: {_ratio(traffic, up + down)} the traffic, "
                f"{_ratio(time, seconds)} the time."
            )
    return f"{text} Seconds depend on the machine and on what else ran on it."


def wdr_text(setting: Setting) -> str:
    """Say whether the regulariser brought the norms' distribution to the labels' distribution."""
    active = [v for v in setting.variants if v.counted and v.runs[0].wdr > 0]
    without = [v for v in setting.variants if v.counted and v.runs[0].wdr == 0]
    if not active:
        return "No finished run here uses the weight distribution regulariser."
    return " ".join(_wdr_of(variant, without) for variant in active)


def _wdr_of(variant: Variant, without: Sequence[Variant]) -> str:
    start, end = (variant.mean(figure, variant.counted) for figure in (_first_r, _last_r))
    if start is None or end is None or start <= 0:
        return f"{variant.label}: no R was recorded."
    ends = {other.label: other.mean(_last_r, other.counted) for other in without}
    lower = [end < value for value in ends.values() if value is not None]
    effective = end < WORKED * start and all(lower)
    verdict = "worked" if effective else "did too little" if end < start else "did not work"
    rounds = next(iter(variant.counted.values())).rounds
    text = (
        f"The regulariser {verdict} in {variant.label} (λ = {variant.runs[0].wdr:g}): mean R, the "
        f"distance of the weight norms from the label distribution, went from {start:.3f} to "
        f"{end:.3f} in {rounds} round{'s' * (rounds != 1)} ({_seeds(list(variant.counted))})"
    )
    correlation = _correlation(variant.counted)
    if correlation is not None:
        text += f"; norms and labels correlate with {correlation:.2f} at the end"
    named = [
        f"{label} ends at {value:.3f}"
        for label, value in ends.items()
        if value is not None and label in (f"{variant.label}_no_wdr", "fedavg")
    ]
    return f"{text}.{' Without it, ' + ' and '.join(named) + '.' if named else ''}"


def _correlation(counted: Mapping[int, Facts]) -> float | None:
    """Return the mean over seeds of Pearson's correlation of p and p~ in the last snapshots."""
    found = []
    for facts in counted.values():
        try:
            p, estimated = facts.run.p_MK, facts.run.snapshot().p_estimated_MK
        except ValueError:
            return None
        if p.shape != estimated.shape or p.std() == 0 or estimated.std() == 0:
            return None
        found.append(float(np.corrcoef(p.ravel(), estimated.ravel())[0, 1]))
    return sum(found) / len(found)


def _first_r(facts: Facts) -> float | None:
    return facts.run.lines[0]["mean_R"] if facts.run.lines else None


def _last_r(facts: Facts) -> float | None:
    return facts.run.lines[-1]["mean_R"] if facts.run.lines else None


def _up(facts: Facts) -> float | None:
    return facts.megabytes[0] if facts.megabytes else None


def _down(facts: Facts) -> float | None:
    return facts.megabytes[1] if facts.megabytes else None


def _ratio(value: float, base: float) -> str:
    if base == 0:
        return "more than" if value else "as much of"
    return f"{value / base:.2g} times"


def _size(megabytes: float) -> str:
    return "nothing" if megabytes == 0 else f"{megabytes:.3g} MB"


def _percent(value: float) -> str:
    return f"{100 * value:.2f} %"


def _seeds(seeds: Sequence[int]) -> str:
    return "1 seed" if len(seeds) == 1 else f"mean of {len(seeds)} seeds"

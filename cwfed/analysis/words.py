"""The message of runs, in plain words: who wins, on which clients, and at what cost.

Every sentence is worked out from finished runs of one setting, over the seeds that
`cwfed.analysis.ranking` compares them on.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cwfed.analysis import ranking
from cwfed.analysis.facts import Facts
from cwfed.analysis.ranking import Ranking
from cwfed.analysis.settings import Setting, Variant
from cwfed.analysis.wdr import RULE, wdr_text

METRIC_WORDS = {
    "received": "with the models that clients start the next round with",
    "post_local": "right after local training",
}
CHOICE_WORDS = {"last": "after the last round", "best": "in each run's best round on test data"}
RULES = {
    "Accuracy": f"The figure is test accuracy, pooled over the clients. {ranking.RULE} Only "
    "finished runs on the same data and partition with as many rounds count.",
    "Clients": "A method is better on a client where the client's model is right on more of the "
    "client's own test samples. With several seeds a client counts once a seed, since each seed "
    "draws its own partition.",
    "Cost": "Megabytes (10^6 bytes) that a client sends and receives in a round in which it takes "
    "part; seconds of a round of the whole federation, evaluations included.",
    "WDR": RULE,
}
"""The rules behind the sentences, by title; the page prints them."""

_MOST_NAMED = 20
"""Clients that are named one by one."""


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
    ranked = rank(setting, metric, choice)
    points = []
    if ranked.order:
        headline, margin = _winner(ranked, metric, choice)
        text = f"{margin} {_otherwise(setting, metric, choice)}".rstrip()
        points.append({"title": "Accuracy", "text": text})
        points.append({"title": "Not ranked", "text": _apart(ranked)})
        points.append({"title": "Clients", "text": _clients(ranked, metric, choice)})
        points.append({"title": "Cost", "text": _cost(ranked)})
    elif any(variant.counted for variant in setting.variants):
        headline = "No ranking: the methods have no seed in common."
    else:
        headline = "No ranking yet: no run has finished."
    points.append({"title": "WDR", "text": wdr_text(setting.variants, metric, choice)})
    points.append({"title": "Left out", "text": _left_out(setting)})
    points.append({"title": "Unfinished", "text": _unfinished(setting)})
    return {"headline": headline, "points": [point for point in points if point["text"]]}


def _otherwise(setting: Setting, metric: str, choice: str) -> str:
    """Say who is first by the other way of scoring."""
    (other,) = METRIC_WORDS.keys() - {metric}
    ranked = rank(setting, other, choice)
    if len(ranked.order) < 2:
        return ""
    names = " and ".join(variant.label for variant in ranked.first)
    return f"Scored {METRIC_WORDS[other]}, first is {names}: {_percent(ranked.order[0][1])}."


def _apart(ranked: Ranking[Variant]) -> str:
    """Say which methods are not compared, and why."""
    texts = [
        f"{variant.label} has {seeds_text(own)}, not {', '.join(map(str, lacking))}"
        for variant, (own, lacking) in ranked.apart.items()
    ]
    if not texts:
        return ""
    return f"The methods are compared on {seeds_text(ranked.seeds)}. Left out: {'; '.join(texts)}."


def _unfinished(setting: Setting) -> str:
    halted = [facts for v in setting.variants for facts in v.runs if not facts.finished]
    if not halted:
        return ""
    named = ", ".join(f"{f.name} ({f.rounds} of {f.planned} rounds)" for f in halted)
    verb = "1 run is" if len(halted) == 1 else f"{len(halted)} runs are"
    return f"{verb} drawn as far as there are rounds and left out of means and ranking: {named}."


def _left_out(setting: Setting) -> str:
    """Say how many participations were lost, and why, in methods that lost any."""
    texts = []
    for variant in setting.variants:
        lost = sum((facts.excluded for facts in variant.runs), Counter[str]())
        if lost:
            asked = sum(facts.asked for facts in variant.runs)
            reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(lost.items()))
            share = f"{lost.total()} of {asked} ({100 * lost.total() / asked:.1f} %)"
            texts.append(f"{variant.label} {share}: {reasons}")
    if not texts:
        return ""
    return (
        f"Clients that were asked to train and did not count, over all rounds: {'; '.join(texts)}."
    )


def rank(setting: Setting, metric: str, choice: str) -> Ranking[Variant]:
    """Rank a setting's methods by an accuracy."""
    return rank_by(setting, lambda facts: facts.accuracy(metric, choice))


def rank_by(setting: Setting, figure: Callable[[Facts], float | None]) -> Ranking[Variant]:
    """Rank a setting's methods by a figure of their finished runs; more is better."""
    return ranking.rank(
        {
            variant: {seed: figure(facts) for seed, facts in variant.counted.items()}
            for variant in setting.variants
        }
    )


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


def _winner(ranked: Ranking[Variant], metric: str, choice: str) -> tuple[str, str]:
    best, top = ranked.order[0]
    rounds = next(iter(best.counted.values())).rounds
    scale = f"{rounds} round{'s' * (rounds != 1)}, {_seeds(ranked.seeds)}"
    how = f"{METRIC_WORDS[metric]}, {CHOICE_WORDS[choice]}"
    if ranked.standing == "alone":
        return (
            f"{best.label} reaches {_percent(top)} ({scale})",
            f"Test accuracy {how}. There is no other method to compare it with.",
        )
    if ranked.standing == "level":
        level = [variant.label for variant in ranked.first]
        names = f"{', '.join(level[:-1])} and {level[-1]}"
        order = _order(ranked.order[len(level) :])
        return f"{names} are level: {_percent(top)} ({scale})", f"Test accuracy {how}.{order}"
    headline, text = _margin(ranked)
    return f"{headline} ({scale})", f"Test accuracy {how}: {text}{_order(ranked.order[2:])}"


def _margin(ranked: Ranking[Variant]) -> tuple[str, str]:
    """Return who wins, or that nobody does, and by how much the first leads the second."""
    (best, top), (second, next_best) = ranked.order[:2]
    ahead = f"{100 * (top - next_best):.2f} points ahead of {second.label} ({_percent(next_best)})"
    if ranked.standing == "close":
        return (
            f"{best.label} and {second.label} are too close to call",
            f"{best.label} has {_percent(top)}, {ahead}. It is ahead in {ranked.ahead} of "
            f"{len(ranked.seeds)} seeds.",
        )
    each = f"It is ahead in each of the {len(ranked.seeds)} seeds."
    chance = "One seed says nothing about chance." if ranked.standing == "leads" else each
    return f"{best.label} {ranked.standing}: {_percent(top)}", f"{ahead}. {chance}"


def _order(rest: Sequence[tuple[Variant, float]]) -> str:
    order = ", ".join(f"{variant.label} {_percent(mean)}" for variant, mean in rest)
    return f" Then: {order}." if order else ""


def _clients(ranked: Ranking[Variant], metric: str, choice: str) -> str:
    best, seeds = ranked.order[0][0], ranked.seeds
    texts = [_champions(ranked, metric, choice)] if len(ranked.order) > 2 else []
    for other in _yardsticks(ranked):
        result = duel(best, other, seeds, metric, choice)
        if result.total:
            texts.append(
                f"Against {other.label}, {best.label} is better on {result.ahead} of "
                f"{result.total} clients, worse on {result.behind}, level on {result.equal}."
            )
    texts = [text for text in texts if text]
    if texts and len(seeds) > 1:
        texts.append(f"Clients are counted over {len(seeds)} seeds.")
    return " ".join(texts)


def _yardsticks(ranked: Ranking[Variant]) -> list[Variant]:
    """Return the runner-up, and what a reader asks for: no personalisation and no federation."""
    others = [variant for variant, _ in ranked.order[1:]]
    return [*others[:1], *(v for v in others[1:] if v.label in ("fedavg", "local"))]


def _champions(ranked: Ranking[Variant], metric: str, choice: str) -> str:
    """Say on how many clients each method is better than all others."""
    held: dict[str, list[int]] = defaultdict(list)
    for seed in ranked.seeds:
        runs = [variant.counted[seed] for variant, _ in ranked.order]
        scores = [one for facts in runs if (one := facts.correct_M(metric, choice)) is not None]
        if len(scores) < len(runs) or runs[0].test_M is None:
            return ""
        for client, own in enumerate(zip(*scores, strict=True)):
            if runs[0].test_M[client]:
                first = [n for n, right in enumerate(own) if right == max(own)]
                held[ranked.order[first[0]][0].label if len(first) == 1 else ""].append(client)
    total, level = sum(map(len, held.values())), len(held.pop("", []))
    # Over seeds a client's number stands for another client each time.
    few = len(ranked.seeds) == 1 and total <= _MOST_NAMED
    named = [
        f"{label} on {len(own)}{f' ({_clients_named(own)})' * few}"
        for label, own in sorted(held.items(), key=lambda item: -len(item[1]))
    ]
    best = ", ".join(named) or "no method alone"
    return f"Of {total} clients, best of all is {best}; on {level} several are level."


def _clients_named(clients: Sequence[int]) -> str:
    return f"client{'s' * (len(clients) != 1)} {', '.join(map(str, clients))}"


def _cost(ranked: Ranking[Variant]) -> str:
    best, seeds = ranked.order[0][0], ranked.seeds
    up, down = best.mean(_up, seeds), best.mean(_down, seeds)
    seconds = best.mean(lambda facts: facts.seconds, seeds)
    if up is None or down is None or seconds is None:
        return ""
    text = (
        f"{best.label} sends {_size(up)} up and {_size(down)} down a client and round, and a round "
        f"takes {seconds:.2g} s."
    )
    for other in _yardsticks(ranked):
        traffic = (other.mean(_up, seeds) or 0.0) + (other.mean(_down, seeds) or 0.0)
        time = other.mean(lambda facts: facts.seconds, seeds)
        if time:
            text += (
                f" {other.label}: {_times(traffic, up + down, 'traffic')}, "
                f"{_times(time, seconds, 'time')}."
            )
    return f"{text} Seconds depend on the machine and on what else ran on it."


def _up(facts: Facts) -> float | None:
    return facts.megabytes[0] if facts.megabytes else None


def _down(facts: Facts) -> float | None:
    return facts.megabytes[1] if facts.megabytes else None


def _times(value: float, base: float, what: str) -> str:
    if value == base or (base and abs(value / base - 1) < 0.05):
        return f"about the same {what}"
    if value == 0 or base == 0:
        return f"{'no' if value == 0 else 'more'} {what}"
    return f"{value / base:.2g} times the {what}"


def _size(megabytes: float) -> str:
    return "nothing" if megabytes == 0 else f"{megabytes:.3g} MB"


def _percent(value: float) -> str:
    return f"{100 * value:.2f} %"


def _seeds(seeds: Sequence[int]) -> str:
    return "1 seed" if len(seeds) == 1 else f"mean of {len(seeds)} seeds"


def seeds_text(seeds: Sequence[int]) -> str:
    """Return seeds in words, such as ``seeds 0, 1``."""
    return f"seed{'s' * (len(seeds) != 1)} {', '.join(map(str, seeds))}"

"""Verdict on the weight distribution regulariser (WDR), in words, and the rule behind them.

R is the distance of a client's label distribution from the distribution of its output layer's row
norms. Before training the norms are all but equal, so R starts at what separates the labels from
a uniform distribution, and ends at 0 where the norms tell the labels exactly.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cwfed.analysis.facts import Facts
from cwfed.analysis.settings import Variant

SHARE = 0.5
"""Mean R must end below this share of where it started."""

FALLING, LATE = 0.02, 0.2
"""R is still falling if it lost that share of its start in this last share of the rounds."""

_SHARE = f"{100 * SHARE:g} %"

RULE = (
    "WDR is meant to bring the distribution of each client's weight norms to that of its labels: "
    "mean R, their distance, should fall. R is read from the finished runs, averaged over clients "
    f"and seeds, before the first round and after the last. Below {_SHARE} of its start the norms "
    "have come more than half of the way, and WDR worked, provided that R is also lower than in "
    "every method without WDR, in each seed that both have. Where one of these ends as low, it is "
    "unclear whether WDR did it; where no such run is here, WDR only seems to have worked. From "
    f"{_SHARE} on, it is too early to say while R is still falling (by more than "
    f"{100 * FALLING:g} % of its start in the last {100 * LATE:g} % of the rounds), else WDR did "
    "too little; where R did not fall, WDR did not work. All this holds for the rounds that were "
    "run and says nothing of accuracy, which is compared with the same method without WDR, where "
    "there is one."
)
"""The rule, as the page prints it."""

_VERDICTS = {
    "worked": "WDR worked in {}",
    "alone": "WDR seems to have worked in {}",
    "unclear": "It is unclear whether WDR worked in {}",
    "early": "It is too early to say whether WDR works in {}",
    "little": "WDR did too little in {}",
    "not": "WDR did not work in {}",
}


def wdr_text(variants: Sequence[Variant], metric: str, choice: str) -> str:
    """Say of every method with the regulariser whether it worked, a line each.

    Args:
        variants: The methods of a setting.
        metric: ``received`` or ``post_local``, for the accuracies.
        choice: ``last`` or ``best``, for the accuracies.
    """
    counted = [variant for variant in variants if variant.counted]
    active = [variant for variant in counted if variant.runs[0].wdr > 0]
    without = [variant for variant in counted if variant.runs[0].wdr == 0]
    if not active:
        return "No finished run here uses the weight distribution regulariser (WDR)."
    return "\n".join(_of(variant, without, metric, choice) for variant in active)


def _of(variant: Variant, without: Sequence[Variant], metric: str, choice: str) -> str:
    start, late, end = (variant.mean(figure, variant.counted) for figure in (_first, _late, _last))
    if start is None or late is None or end is None or start <= 0:
        return f"{variant.label}: nothing can be said of WDR, since R is 0 or not a number."
    lower = {other.label: low for other in without if (low := _lower(variant, other)) is not None}
    verdict = _verdict(start, late, end, lower)
    rounds, seeds = next(iter(variant.counted.values())).rounds, len(variant.counted)
    sentences = [
        f"{_VERDICTS[verdict].format(variant.label)} (λ = {variant.runs[0].wdr:g}): mean R went "
        f"from {start:.3f} to {end:.3f}, {100 * end / start:.0f} % of its start, in {rounds} "
        f"round{'s' * (rounds != 1)} ({seeds} seed{'s' * (seeds != 1)})",
        _beside(verdict, without, lower),
        _correlation(variant.counted),
        _accuracy(variant, without, metric, choice),
        "One seed says nothing about chance" if seeds == 1 else "",
    ]
    return "".join(f"{sentence}. " for sentence in sentences if sentence).rstrip()


def _verdict(start: float, late: float, end: float, lower: Mapping[str, bool]) -> str:
    if end >= start:
        return "not"
    if end >= SHARE * start:
        return "early" if late - end > FALLING * start else "little"
    if not lower:
        return "alone"
    return "worked" if all(lower.values()) else "unclear"


def _lower(variant: Variant, other: Variant) -> bool | None:
    """Return whether R ends lower than in another method in every seed of both, None without."""
    seeds = variant.counted.keys() & other.counted.keys()
    pairs = [(_last(variant.counted[seed]), _last(other.counted[seed])) for seed in seeds]
    known = [(one, two) for one, two in pairs if one is not None and two is not None]
    return all(one < two for one, two in known) if known else None


def _beside(verdict: str, without: Sequence[Variant], lower: Mapping[str, bool]) -> str:
    """Say how R ends without the regulariser: where lowest, or in whatever makes it unclear."""
    if not lower:
        return "No finished run without WDR on these seeds shows how R ends without it"
    ends = {
        other.label: value
        for other in without
        if other.label in lower and (value := other.mean(_last, other.counted)) is not None
    }
    if verdict == "unclear":
        named = [f"{label} at {ends[label]:.3f}" for label in ends if not lower[label]]
        return f"Without WDR, R ends as low in {', '.join(named)}"
    label = min(ends, key=lambda name: ends[name])
    return f"Without WDR, R ends at {ends[label]:.3f} or higher ({label} is lowest)"


def _accuracy(variant: Variant, without: Sequence[Variant], metric: str, choice: str) -> str:
    twin = next((other for other in without if _same_method(variant, other)), None)
    seeds = sorted(variant.counted.keys() & twin.counted.keys()) if twin else []
    if twin is None or not seeds:
        return ""
    means = [v.mean(lambda facts: facts.accuracy(metric, choice), seeds) for v in (variant, twin)]
    if means[0] is None or means[1] is None:
        return ""
    return (
        f"Accuracy is {100 * means[0]:.2f} % with it and {100 * means[1]:.2f} % in {twin.label}, "
        f"the same method without it ({len(seeds)} shared seed{'s' * (len(seeds) != 1)})"
    )


def _same_method(variant: Variant, other: Variant) -> bool:
    """Return whether two methods differ in the regulariser alone."""
    one, two = (_less_wdr(each.runs[0].run.config["algorithm"]) for each in (variant, other))
    return one == two and one["aggregator"] is not None


def _less_wdr(algorithm: Mapping[str, Any]) -> dict[str, Any]:
    terms = [
        term
        for term in algorithm.get("objectives") or []
        if str(term["class_path"]).rpartition(".")[2] != "WDR"
    ]
    named = {name: value for name, value in algorithm.items() if name not in ("name", "objectives")}
    return {"aggregator": None, **named, "objectives": terms}


def _correlation(counted: Mapping[int, Facts]) -> str:
    """Say how norms and labels correlate in the last snapshots (Pearson, mean over seeds)."""
    found = []
    for facts in counted.values():
        try:
            p, estimated = facts.run.p_MK, facts.run.snapshot().p_estimated_MK
        except ValueError:
            return ""
        if p.shape != estimated.shape or p.std() == 0 or not estimated.std() > 0:
            return ""
        found.append(float(np.corrcoef(p.ravel(), estimated.ravel())[0, 1]))
    return f"Norms and labels correlate with {sum(found) / len(found):.2f} at the end"


def _first(facts: Facts) -> float | None:
    return facts.run.lines[0]["mean_R"] if facts.run.lines else None


def _late(facts: Facts) -> float | None:
    lines = facts.run.lines
    # Rounded down: at least the last round lies behind it.
    return lines[int((1 - LATE) * (len(lines) - 1))]["mean_R"] if lines else None


def _last(facts: Facts) -> float | None:
    return facts.run.lines[-1]["mean_R"] if facts.run.lines else None

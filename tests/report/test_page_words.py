"""The sentences of a page, on runs whose figures are planted."""

from pathlib import Path

import pytest

from cwfed.analysis.facts import Facts
from cwfed.analysis.settings import make_settings
from cwfed.analysis.wdr import SHARE
from cwfed.analysis.words import RULES, duel, summarise
from cwfed.records.result import make_result
from cwfed.records.run import Run


def facts(name, correct, *, seed=0, r=(0.8, 0.7), wdr=0.0, up=2, finished=True, rounds=1):
    def line(round_):
        score = {
            "accuracy": sum(correct) / 40,
            "loss": 1.0,
            "fairness": {"mean": 0.5, "std": 0.1, "worst10": 0.2},
            "correct": list(correct),
        }
        taking_part = [0, 1, 2, 3] if round_ else []
        return {
            "round": round_,
            "participants": taking_part,
            "received": score,
            "post_local": score if round_ else None,
            "train_loss": 1.0,
            "mean_R": r[min(round_, len(r) - 1)],
            "bytes": {"up": [up * 10**6] * len(taking_part), "down": [10**6] * len(taking_part)},
            "seconds": {"fit": 2.0 if round_ else 0.0},
        }

    objectives = [{"class_path": "cwfed.objectives.WDR", "init_args": {"weight": None}}]
    config = {
        "data": {"class_path": "x.Digits"},
        "partition": {"class_path": "x.Dirichlet", "init_args": {"num_clients": 4}},
        "algorithm": {
            "name": name,
            "aggregator": {"class_path": "x.CwFedAvg"},
            "objectives": objectives if wdr else [],
        },
        "seed": seed,
        "rounds": rounds,
        "wdr_lambda": wdr,
    }
    lines = [line(round_) for round_ in range(rounds + 1)]
    result = make_result(lines, {}) if finished else None
    run = Run(Path(f"/nowhere/{name}-{seed}"), config, result, lines)
    return Facts(run, f"{name}-{seed}", "digits", "d", f"p{seed}", make_result(lines, {}),
                 [10, 10, 10, 10], [])  # fmt: skip


def words(*every, metric="received", choice="last"):
    (setting,) = make_settings(every)
    summary = summarise(setting, metric, choice)
    return summary["headline"], {p["title"]: p["text"] for p in summary["points"]}


def test_the_winner_its_clients_and_its_cost():
    headline, points = words(
        facts("a", [9, 9, 5, 7], up=6), facts("b", [8, 8, 8, 4]), facts("local", [1, 1, 1, 1])
    )
    assert headline == "a leads: 75.00 % (1 round, 1 seed)"
    assert "5.00 points ahead of b (70.00 %). One seed says nothing" in points["Accuracy"]
    assert (
        "Then: local 10.00 %. Scored right after local training, first is a" in points["Accuracy"]
    )
    assert (
        "Of 4 clients, best of all is a on 3 (clients 0, 1, 3), b on 1 (client 2); on 0"
        in points["Clients"]
    )
    assert "Against b, a is better on 3 of 4 clients, worse on 1, level on 0." in points["Clients"]
    assert "Against local, a is better on 4 of 4" in points["Clients"]
    assert "sends 6 MB up and 1 MB down a client and round, and a round takes 2 s" in points["Cost"]
    assert "b: 0.43 times the traffic, about the same time" in points["Cost"]


def test_one_lost_seed_is_too_close_to_call():
    a = [facts("a", [10, 9, 9, 9], seed=0), facts("a", [5, 5, 5, 5], seed=1)]
    b = [facts("b", [8, 8, 8, 8], seed=0), facts("b", [6, 5, 5, 5], seed=1)]
    headline, points = words(*a, *b)
    assert headline == "a and b are too close to call (1 round, mean of 2 seeds)"
    assert "ahead in 1 of 2 seeds" in points["Accuracy"]
    headline, _ = words(a[0], facts("a", [7, 5, 5, 5], seed=1), *b)
    assert headline == "a wins: 73.75 % (1 round, mean of 2 seeds)"


def test_equal_methods_are_level():
    headline, _ = words(facts("a", [5, 5, 5, 5]), facts("b", [6, 4, 5, 5]))
    assert headline == "a and b are level: 50.00 % (1 round, 1 seed)"


def test_only_shared_seeds_are_ranked():
    # Alone, seed 1 would lift b above a.
    headline, points = words(
        facts("a", [7, 7, 7, 7]), facts("b", [5, 5, 5, 5]), facts("b", [10, 10, 10, 10], seed=1)
    )
    assert headline == "a leads: 70.00 % (1 round, 1 seed)"
    assert "b (50.00 %)" in points["Accuracy"]
    headline, _ = words(facts("a", [7, 7, 7, 7]), facts("b", [5, 5, 5, 5], seed=1))
    assert headline == "No ranking: the methods have no seed in common."
    headline, points = words(facts("a", [7, 7, 7, 7]), facts("b", [9, 9, 9, 9], finished=False))
    assert headline.startswith("a reaches")
    assert "b-0" in points["Unfinished"]


def test_a_method_that_is_not_through_takes_no_seed_from_the_others():
    whole = [
        facts(name, [right + seed % 2, 5, 5, 5], seed=seed)
        for name, right in zip("abcde", (9, 8, 7, 6, 5), strict=True)
        for seed in range(3)
    ]
    # Alone on its one seed it would be first, and leave one seed to rank by.
    headline, points = words(*whole, facts("late", [10, 10, 10, 10]))
    assert headline == "a wins: 60.83 % (1 round, mean of 3 seeds)"
    assert points["Not ranked"] == (
        "The methods are compared on seeds 0, 1, 2. Left out: late has seed 0, not 1, 2."
    )
    assert "late" not in points["Accuracy"] + points["Clients"] + points["Cost"]
    assert "Not ranked" not in words(*whole)[1]


WDR_CASES = {
    "worked": ((0.8, 0.1, 0.1), (0.8, 0.7, 0.7), "WDR worked in a"),
    "just below half": ((0.8, 0.39, 0.39), (0.8, 0.7, 0.7), "WDR worked in a"),
    "half is not below": ((0.8, 0.4, 0.4), (0.8, 0.7, 0.7), "WDR did too little in a"),
    "still falling": ((0.8, 0.7, 0.5), (0.8, 0.7, 0.7), "It is too early to say whether WDR wo"),
    "as low without": ((0.8, 0.3, 0.3), (0.8, 0.3, 0.3), "It is unclear whether WDR worked in a"),
    "risen": ((0.8, 0.7, 0.9), (0.8, 0.7, 0.7), "WDR did not work in a"),
    "alone": ((0.8, 0.1, 0.1), None, "WDR seems to have worked in a"),
    "not a number": ((0.8, 0.1, None), (0.8, 0.7, 0.7), "a: nothing can be said of WDR"),
}


@pytest.mark.parametrize("name", WDR_CASES)
def test_whether_the_regulariser_worked(name):
    r, other, expected = WDR_CASES[name]
    every = [facts("a", [5, 5, 5, 5], r=r, wdr=3.0, rounds=2)]
    if other:
        every.append(facts("b", [4, 4, 4, 4], r=other, rounds=2))
    _, points = words(*every)
    assert points["WDR"].startswith(expected)
    if name == "worked":
        assert "(λ = 3): mean R went from 0.800 to 0.100, 12 % of its start" in points["WDR"]
        assert "in 2 rounds (1 seed)" in points["WDR"]
        assert "Without WDR, R ends at 0.700 or higher (b is lowest)" in points["WDR"]
        assert "Accuracy is 50.00 % with it and 40.00 % in b" in points["WDR"]
    if name == "as low without":
        assert "Without WDR, R ends as low in b at 0.300." in points["WDR"]
    if name == "alone":
        assert "No finished run without WDR on these seeds" in points["WDR"]
    assert f"Below {100 * SHARE:g} % of its start" in RULES["WDR"]


def test_the_regulariser_is_held_against_runs_of_the_same_seeds():
    low, high = (0.8, 0.1, 0.1), (0.8, 0.7, 0.7)
    ours = [facts("a", [5, 5, 5, 5], r=low, wdr=3.0, seed=s, rounds=2) for s in (0, 1)]
    theirs = [facts("b", [4, 4, 4, 4], r=r, seed=s, rounds=2) for s, r in enumerate((high, low))]
    assert words(*ours, *theirs)[1]["WDR"].startswith("It is unclear")
    assert words(*ours, theirs[0])[1]["WDR"].startswith("WDR worked in a")
    elsewhere = facts("b", [4, 4, 4, 4], r=high, seed=7, rounds=2)
    assert words(*ours, elsewhere)[1]["WDR"].startswith("WDR seems to have worked")


def test_who_was_left_out_is_said():
    lossy = facts("a", [5, 5, 5, 5])
    lossy.run.lines[1]["excluded"] = {"1": "dropout", "3": "straggler"}
    _, points = words(lossy, facts("b", [4, 4, 4, 4]))
    assert points["Left out"].endswith("a 2 of 4 (50.0 %): 1 dropout, 1 straggler.")
    assert "Left out" not in words(facts("b", [4, 4, 4, 4]))[1]


def test_no_regulariser_is_said():
    _, points = words(facts("a", [5, 5, 5, 5]))
    assert points["WDR"] == "No finished run here uses the weight distribution regulariser (WDR)."


def test_clients_without_test_samples_do_not_count():
    one, two = facts("a", [9, 0, 5, 7]), facts("b", [8, 0, 8, 4])
    one.test_M[1] = 0
    (setting,) = make_settings([one, two])
    result = duel(*setting.variants, [0], "received", "last")
    assert (result.ahead, result.behind, result.equal) == (2, 1, 0)


def test_the_lambda_that_is_told_is_the_one_that_trained():
    halved = facts("a", [5, 5, 5, 5], wdr=3.0)
    halved.run.config["released_code"] = {"half_lambda": True}
    assert "(λ = 1.5)" in words(halved)[1]["WDR"]


def test_a_regulariser_of_one_phase_is_one():
    phased = facts("a", [5, 5, 5, 5], wdr=3.0)
    method = phased.run.config["algorithm"]
    method["phases"] = [{"objectives": None}, {"objectives": method["objectives"]}]
    method["objectives"] = []
    assert phased.wdr == 3.0

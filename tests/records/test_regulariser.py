"""λ as it is told is λ as it trains, whatever says it."""

import pytest
import yaml

from cwfed.config.files import find_config
from cwfed.config.parser import add_fit_options, build, make_parser, parse, plain
from cwfed.records.regulariser import largest_weight, trained_weight

WDR = {"class_path": "cwfed.objectives.WDR"}
OWN = {"class_path": "cwfed.objectives.WDR", "init_args": {"weight": 3.0}}
NONE = {"class_path": "cwfed.objectives.WDR", "init_args": {"weight": 0.0}}


@pytest.mark.parametrize(
    ("own", "of_data", "halved", "weight"),
    [(None, 10.0, False, 10.0), (3.0, 10.0, False, 3.0), (0.0, 10.0, False, 0.0),
     (3.0, None, False, 3.0), (None, 10.0, True, 5.0), (3.0, 10.0, True, 1.5),
     (None, None, True, None)],
)  # fmt: skip
def test_a_terms_own_weight_goes_before_that_of_the_data(own, of_data, halved, weight):
    assert trained_weight(own, of_data, halved=halved) == weight


CASES = {
    "the data set's": ({"objectives": [WDR]}, 10.0),
    "its own": ({"objectives": [OWN]}, 3.0),
    "none": ({"objectives": []}, 0.0),
    "zero": ({"objectives": [NONE]}, 0.0),
    "a phase's": ({"objectives": [], "phases": [{}, {"objectives": [OWN]}]}, 3.0),
    "a phase that leaves it to the method": ({"objectives": [WDR], "phases": [{}]}, 10.0),
    # What no phase takes over does not train.
    "replaced in all phases": ({"objectives": [WDR], "phases": [{"objectives": []}]}, 0.0),
    "the larger of two": (
        {"objectives": [NONE], "phases": [{}, {"objectives": [OWN]}, {"objectives": [WDR]}]},
        10.0,
    ),
}


@pytest.mark.parametrize("halved", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_the_weight_that_is_told_is_the_one_that_trains(name, halved, tmp_path):
    method, weight = CASES[name]
    path = tmp_path / "method.yaml"
    aggregator = {"class_path": "cwfed.aggregators.FedAvg"}
    path.write_text(yaml.safe_dump({"name": "tried", "aggregator": aggregator, **method}))
    parser = make_parser("cwfed fit", "")
    add_fit_options(parser)
    half = str(halved).lower()
    config = parse(
        parser,
        ["--config", str(find_config("quickstart")), "--algorithm", str(path), "--wdr_lambda", "10",
         "--released_code.half_lambda", half],
    )  # fmt: skip
    experiment, _ = build(parser, config)
    trained = [
        term.weight
        for _, objective in experiment.phases
        for term in objective.terms
        if type(term).__name__ == "WDR"
    ]
    told = largest_weight(plain(parser, config))
    assert told == max(trained, default=0.0) == (weight / 2 if halved else weight)

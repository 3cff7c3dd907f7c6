"""What would take minutes or more memory than there is, refused at once with its reason."""

import json
import time

import pytest

from cwfed.cli.commands import plan_fit
from cwfed.cli.files import UsageError
from cwfed.cli.written import MOST_CHOSEN

TERM = {"class_path": "WDR", "init_args": {"weight": 0.1}}


def planned(*arguments):
    return plan_fit(["--config", "quickstart", "--run_dir", "none", *arguments]).config


def refused(*arguments):
    began = time.monotonic()
    with pytest.raises(UsageError) as error:
        planned(*arguments)
    assert time.monotonic() - began < 30
    return str(error.value)


def test_a_list_of_thousands_of_classes_is_refused():
    said = refused("--algorithm.objectives", json.dumps([TERM] * 3000))
    assert said == "algorithm.objectives: expected at most 20,000 values, got more"
    said = refused("--algorithm.objectives", json.dumps(["WDR"] * 3000))
    assert said.endswith("got 3,000")


@pytest.mark.parametrize("count", [MOST_CHOSEN + 1, 1000])
def test_a_list_of_classes_has_an_end(count, tmp_path):
    expected = f"expected at most {MOST_CHOSEN} classes, since the time to read them grows"
    said = refused("--algorithm.objectives", json.dumps([TERM] * count))
    assert said.startswith(f"algorithm.objectives: {expected}")
    assert said.endswith(f"got {count:,}")
    assert refused("--logger", json.dumps(["tensorboard"] * count)).startswith(
        f"logger: {expected}"
    )
    path = tmp_path / "c.yaml"
    path.write_text(json.dumps({"algorithm": {"phases": [{"objectives": [TERM] * count}]}}))
    assert refused("--config", str(path)).startswith(
        f"{path}: algorithm.phases.0.objectives: {expected}"
    )
    added = [f"--algorithm.objectives+={json.dumps(TERM)}"] * count
    said = refused("--algorithm", "fedavg", *added)
    assert said.startswith(f"algorithm.objectives: {expected}")
    assert said.endswith(f"got {MOST_CHOSEN + 1:,}")


def test_other_lists_may_be_longer():
    tags = [f"tag{i}" for i in range(300)]
    assert planned(f"--wandb.tags={json.dumps(tags)}").wandb.tags == tags


@pytest.mark.parametrize("text", ["[&a [*a]]", "[" * 3000, "{a: &a [*a]}"])
def test_what_has_no_end_is_refused(text):
    assert "algorithm.objectives" in refused(f"--algorithm.objectives={text}")

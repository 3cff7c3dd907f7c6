"""What would take minutes or more memory than there is, refused at once with its reason."""

import json
import time

import pytest
import torch

from cwfed.cli import main
from cwfed.config.files import UsageError
from cwfed.config.written import MOST_CHOSEN
from cwfed.data.images import ImageData
from cwfed.data.limits import MOST_CLASSES
from cwfed.data.sources import SyntheticImages
from cwfed.launch.plan import plan_fit

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


def test_classes_have_an_end(tmp_path, capsys):
    said = f"expected at most {MOST_CLASSES:,} classes, since every client counts its samples"
    for count in (MOST_CLASSES + 1, 1_000_000):
        arguments = ["--config", "quickstart", "--data", "SyntheticImages", "--rounds", "0"]
        many = ["--data.num_classes", str(count), "--run_dir", str(tmp_path / "run")]
        began = time.monotonic()
        assert main(["fit", *arguments, *many]) == 2
        assert time.monotonic() - began < 30
        error = capsys.readouterr().err
        assert f"num_classes: {said}" in error
        assert error.strip().endswith(f"got {count:,}")
        assert not (tmp_path / "run").exists()
    assert SyntheticImages(num_classes=MOST_CLASSES).num_classes == MOST_CLASSES


def test_a_source_of_ones_own_has_no_more_classes_either():
    images = torch.zeros(1, 1, 2, 2, dtype=torch.uint8)
    names = tuple(map(str, range(MOST_CLASSES + 1)))
    with pytest.raises(ValueError, match=r"^mine: expected at most 32,768 classes, .* got 32,769$"):
        ImageData(images, torch.zeros(1, dtype=torch.int64), names, "hash", "mine")

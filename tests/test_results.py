import json

import pytest
import torch

from cwfed.federated.record import RoundRecord
from cwfed.records.atomic import write_atomic
from cwfed.records.result import make_result, select


def line(round_, received, post_local=None, val=None, post_val=None):
    def score(accuracy, val):
        extra = {} if val is None else {"val_accuracy": val}
        fair = {"mean": accuracy}
        return None if accuracy is None else {"accuracy": accuracy, "fairness": fair, **extra}

    return {
        "round": round_,
        "received": score(received, val),
        "post_local": score(post_local, val if post_val is None else post_val),
        "mean_R": 0.5,
        "participants": [0, 1] if round_ else [],
        "bytes": {"up": [10, 30] if round_ else [], "down": [8, 8] if round_ else []},
        "seconds": {"fit": 1.5},
    }


def test_best_is_the_first_maximum_and_last_the_last():
    lines = [line(0, 0.1), line(1, 0.7, 0.2), line(2, 0.7, 0.4), line(3, 0.5, 0.3)]
    assert select(lines, "received")["best"] == {"accuracy": 0.7, "round": 1}
    assert select(lines, "received")["last"] == {"accuracy": 0.5, "round": 3}
    assert select(lines, "received")["val_selected"] is None
    assert select(lines, "post_local")["best"] == {"accuracy": 0.4, "round": 2}


def test_val_selected_quotes_the_test_accuracy_of_the_best_validation_round():
    lines = [line(0, 0.1, val=0.2), line(1, 0.9, 0.9, val=0.3), line(2, 0.8, 0.7, val=0.6)]
    assert select(lines, "received")["val_selected"] == {"accuracy": 0.8, "round": 2}
    assert select(lines, "post_local")["val_selected"] == {"accuracy": 0.7, "round": 2}


def test_each_metric_has_its_own_validation_accuracy():
    lines = [line(0, 0.1), line(1, 0.5, 0.6, 0.9, 0.1), line(2, 0.4, 0.3, 0.2, 0.8)]
    assert select(lines, "received")["val_selected"]["round"] == 1
    assert select(lines, "post_local")["val_selected"]["round"] == 2


def test_fairness_is_that_of_the_last_round():
    assert select([line(0, 0.1), line(1, 0.2), line(2, 0.3)], "received")["fairness"] == {
        "mean": 0.3
    }


def test_the_initialisation_is_no_round():
    lines = [line(0, 0.9, val=0.9), line(1, 0.5, 0.5, val=0.5)]
    assert select(lines, "received")["best"] == {"accuracy": 0.5, "round": 1}
    assert select(lines, "received")["val_selected"]["round"] == 1
    assert select(lines[:1], "received")["best"] == {"accuracy": 0.9, "round": 0}


def test_rounds_without_an_evaluation_do_not_count():
    lines = [line(0, 0.9), line(1, None), line(2, 0.7, 0.6), line(3, None), line(4, 0.5, 0.4)]
    assert select(lines, "received")["best"] == {"accuracy": 0.7, "round": 2}
    assert select(lines, "post_local")["last"] == {"accuracy": 0.4, "round": 4}
    assert select(lines[:2], "received")["last"] == {"accuracy": 0.9, "round": 0}
    assert make_result(lines, {})["seconds"] == {"fit": 7.5}


def test_a_line_summarises_its_scores():
    test = torch.tensor([[3.0, 4.0, 2.0], [1.0, 16.0, 10.0]])
    val = torch.tensor([[1.0, 2.0, 0.0], [0.0, 2.0, 0.0]])
    record = RoundRecord(2, (0, 1), {"test": test, "val": val}, None, 1.5, 0.25, {})
    received = record.to_line()["received"]
    assert received["accuracy"] == 4 / 20
    assert received["loss"] == 12 / 20
    assert received["val_accuracy"] == 1 / 4
    assert received["correct"] == [3, 1]
    assert received["fairness"]["mean"] == (3 / 4 + 1 / 16) / 2
    assert received["fairness"]["worst10"] == 1 / 16


def test_result_sums_seconds_and_keeps_what_identifies_the_run():
    result = make_result([line(0, 0.1), line(1, 0.2, 0.3)], {"seed": 4})
    assert result["seed"] == 4
    assert result["rounds"] == 1
    assert result["seconds"] == {"fit": 3.0}
    assert result["schema_version"] == 1
    assert result["bytes"]["up"] == {"total": 40, "per_client_and_round": 20.0}
    assert result["bytes"]["down"] == {"total": 16, "per_client_and_round": 8.0}


def test_a_round_with_infinite_loss_is_still_json():
    scores = {"test": torch.tensor([[1.0, 2.0, float("nan")], [0.0, 3.0, float("inf")]])}
    record = RoundRecord(0, (), scores, None, float("nan"), float("inf"), {"fit": 1.0})
    text = json.dumps(record.to_line(), allow_nan=False)
    assert json.loads(text)["received"]["accuracy"] == 0.2
    assert json.loads(text)["received"]["loss"] is None


def test_write_atomic_leaves_no_trace_when_it_fails(tmp_path, monkeypatch):
    path = tmp_path / "result.json"
    write_atomic(path, "old")
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        write_atomic(path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["result.json"]

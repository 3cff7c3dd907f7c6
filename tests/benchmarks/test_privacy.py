"""Attacks on uploads against cases whose answer is known."""

import math

import pytest
import torch
from torch import nn

from benchmarks.privacy import (
    Observation,
    from_bias,
    from_norms,
    held_or_not,
    main,
    total_variation,
    uniform,
)


def test_bias_of_a_first_step_tells_the_labels_exactly():
    """At a zero output layer predictions are uniform: the gradient holds nothing but labels."""
    labels = torch.tensor([0, 0, 0, 2, 2, 3])
    layer = nn.Linear(5, 4)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    nn.functional.cross_entropy(layer(torch.rand(6, 5)), labels).backward()
    optimizer.step()
    seen = Observation(layer.weight.detach()[None], layer.bias.detach()[None], torch.ones(1), 0.1)
    expected = torch.tensor([[3, 0, 2, 1]], dtype=torch.float64) / 6
    torch.testing.assert_close(from_bias(seen), expected, atol=1e-6, rtol=0)


def test_norms_are_the_estimate_of_the_method():
    weight_MKF = torch.tensor([[[3.0, 4.0], [0.0, 5.0], [0.0, 0.0]]])
    seen = Observation(weight_MKF, torch.zeros(1, 3), torch.ones(1), 0.1)
    torch.testing.assert_close(from_norms(seen), torch.tensor([[0.5, 0.5, 0.0]]).double())
    torch.testing.assert_close(uniform(seen), torch.full((1, 3), 1 / 3).double())


def test_scores():
    p_MK = torch.tensor([[0.5, 0.5, 0.0], [1 / 3, 1 / 3, 1 / 3]], dtype=torch.float64)
    guess_MK = torch.tensor([[0.6, 0.1, 0.3], [1.0, 0.0, 0.0]], dtype=torch.float64)
    assert total_variation(p_MK, guess_MK).tolist() == pytest.approx([0.4, 2 / 3])
    area_M = held_or_not(p_MK, guess_MK).tolist()
    assert area_M[0] == 0.5  # of the pairs (0.6, 0.3) and (0.1, 0.3) one is in order
    assert math.isnan(area_M[1])


def test_the_regulariser_lets_the_norms_tell_the_labels(capsys):
    command = ["--config", "quickstart", "--model.hidden_features", "8", "--rounds", "3"]
    assert main([*command, "--after", "3", "--methods", "fedavg", "cwfedavg"]) == 0
    rows = [line.split("|")[1:4] for line in capsys.readouterr().out.splitlines()[2:]]
    distance = {
        (method.strip(), source.strip()): float(cell.split()[0]) for method, source, cell in rows
    }
    norms = "norms of the rows (p~)"
    assert distance["cwfedavg", norms] < 0.6 * distance["fedavg", norms]
    assert distance["fedavg", "nothing (uniform)"] == distance["cwfedavg", "nothing (uniform)"]


def test_a_mistake_is_named(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--config", "quickstart", "--participation", "2"])
    assert stop.value.code == 2
    assert "participation: expected" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stop:
        main(["--config", "quickstart", "--rounds", "3", "--after", "9"])
    assert stop.value.code == 2
    assert "--after: expected rounds from 1 to --rounds 3" in capsys.readouterr().err

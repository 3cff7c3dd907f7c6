"""What the machine has to do with the mathematics of banks, and that the mathematics stays pure."""

import ast
from pathlib import Path

import pytest
import torch

import cwfed.functional
from cwfed.aggregators import banks
from cwfed.aggregators.banks import attentive_mixture, mix, replace_rows
from cwfed.functional import aggregation, fedamp, stacking

SWITCHES = {"backends", "set_float32_matmul_precision", "set_num_threads", "set_default_dtype"}


@pytest.mark.parametrize("by_backend", [True, False])
@pytest.mark.parametrize("precision", ["high", "medium"])
def test_products_are_exact_whatever_training_asked_for(monkeypatch, precision, by_backend):
    if not by_backend:  # as PyTorch was before it had a setting for each backend
        monkeypatch.setattr("cwfed.aggregators.banks._BACKENDS", [])
    before, seen = torch.get_float32_matmul_precision(), []
    product = torch.mm

    def watched(*inputs, out):
        seen.append(torch.backends.cuda.matmul.fp32_precision)
        return product(*inputs, out=out)

    monkeypatch.setattr(torch, "mm", watched)
    torch.set_float32_matmul_precision(precision)
    try:
        mix(torch.rand(3, 3), torch.randn(3, 4))
        assert seen == ["ieee"]
        assert torch.get_float32_matmul_precision() == precision
    finally:
        torch.set_float32_matmul_precision(before)


def test_the_bits_are_those_of_the_mathematics():
    theta, weights = torch.randn(5, 31), torch.rand(5, 5, dtype=torch.float64)
    assert torch.equal(mix(weights, theta), aggregation.mix(weights, theta))
    attention = weights.fill_diagonal_(0.0)
    expected = fedamp.attentive_mixture(attention, theta)
    assert torch.equal(attentive_mixture(attention, theta), expected)
    bank, fresh = {"w": theta}, {"w": torch.ones(2, 31)}
    expected = stacking.replace_rows(bank, [3, 1], fresh)
    assert torch.equal(replace_rows(bank, [3, 1], fresh)["w"], expected["w"])


@pytest.mark.parametrize(
    "made",
    [
        lambda theta: mix(torch.rand(4, 4), theta),
        lambda theta: attentive_mixture(torch.rand(4, 4).double().fill_diagonal_(0), theta),
        lambda theta: replace_rows({"w": theta}, [2], {"w": theta[:1]})["w"],
    ],
)
def test_what_is_as_large_as_a_bank_is_put_into_large_memory(made, monkeypatch):
    asked, large_rows = [], banks.large_rows
    monkeypatch.setattr(
        banks, "large_rows", lambda rows, like: (asked.append(rows), large_rows(rows, like))[1]
    )
    made(torch.randn(4, 7))
    assert asked == [4]


@pytest.mark.parametrize("path", sorted(Path(cwfed.functional.__file__).parent.glob("*.py")))
def test_the_mathematics_throws_no_switch_of_the_process(path):
    """Which modules it may import, import-linter holds."""
    names = {n.attr for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Attribute)}
    assert not names & SWITCHES

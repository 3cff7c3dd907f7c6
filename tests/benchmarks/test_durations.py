"""Every command reads a duration in the same way."""

import re
import sys
from argparse import ArgumentTypeError
from importlib import import_module
from pathlib import Path

import pytest

import benchmarks
from cwfed import sweeps
from cwfed.sweeps.deadline import duration

OPTION = re.compile(r'add_argument\(\s*"(--budget|--seconds)"')
FOUND = [
    (".".join(path.relative_to(root.parent).with_suffix("").parts), option)
    for root in (Path(benchmarks.__file__).parent, Path(sweeps.__file__).parent)
    for path in sorted(root.rglob("*.py"))
    for option in OPTION.findall(path.read_text(encoding="utf-8"))
]


def test_all_commands_are_found():
    found = {module for module, _ in FOUND}
    assert {"benchmarks.faults.command", "benchmarks.device.command", "benchmarks.length"} <= found
    assert "sweeps.options" in found


def command(module, monkeypatch, *arguments):
    """Give a command its arguments and ask for help: what stands before that is read."""
    before = ["run"] if module == "sweeps.options" else []
    module = "benchmarks.__main__" if module == "sweeps.options" else module
    monkeypatch.setattr(sys, "argv", [module, *before, *arguments, "--help"])
    try:
        return import_module(module).main() or 0
    except SystemExit as stop:
        return stop.code


@pytest.mark.parametrize(("module", "option"), FOUND)
def test_a_duration_is_written_in_the_same_way_everywhere(module, option, monkeypatch, capsys):
    for text in ("4m", "90s", "0.5h", "120"):
        assert command(module, monkeypatch, option, text) == 0, text
    capsys.readouterr()
    assert command(module, monkeypatch, option, "soon") == 2
    said = capsys.readouterr().err
    assert f"{option}: expected a duration such as 90s, 30m or 8h, got 'soon'" in said


def test_times():
    read = [duration(text) for text in ("8m", "90s", "0.5h", "120", "2d", "0s", " 1m ")]
    assert read == [480, 90, 1800, 120, 172800, 0, 60]
    for text in ("", "8 minutes", "-3", "1e3", "nan", "inf", "1h30m", "9" * 400, "٣s"):
        with pytest.raises(ArgumentTypeError, match="expected a duration such as"):
            duration(text)

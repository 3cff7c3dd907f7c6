"""One odd run among others: it is passed over and named, and the others are shown."""

import json
import shutil

import pytest
import yaml
from helpers import change_json, read_rounds_of, write_rounds

from cwfed.cli import main
from cwfed.cli.plot import KINDS
from cwfed.records.checksums import opened


def change_line(folder, number=2, **changes):
    """Change a round as somebody does who means it: with a right checksum."""
    lines = read_rounds_of(folder)
    lines[number] = lines[number] | changes
    write_rounds(folder, lines)


def change_older(folder, **changes):
    """Change a round of a run that an earlier version made, without checksums."""
    lines = [opened(line) for line in read_rounds_of(folder)]
    lines[2] = lines[2] | changes
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "rounds.jsonl").write_text(text)


def change_score(folder, **changes):
    change_line(folder, received=read_rounds_of(folder)[2]["received"] | changes)


def change_config(folder, **changes):
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | changes))


def change_text(path, old, new):
    path.write_text(path.read_text().replace(old, new, 1))


NAN, INF = float("nan"), float("inf")
ODD = {
    "unknown client": ("rounds.jsonl", lambda run: change_line(run, excluded={"99": "dropout"})),
    "no client": ("rounds.jsonl", lambda run: change_line(run, excluded={"x": "dropout"})),
    "older, NaN": ("rounds.jsonl", lambda run: change_older(run, mean_R=NAN)),
    "older, list": ("rounds.jsonl", lambda run: change_older(run, mean_R=[0.1])),
    "list": ("rounds.jsonl", lambda run: change_line(run, mean_R=[0.1])),
    "text": ("rounds.jsonl", lambda run: change_score(run, accuracy="0.5")),
    "above 1": ("rounds.jsonl", lambda run: change_score(run, accuracy=4.71)),
    "clients": ("rounds.jsonl", lambda run: change_score(run, correct=[1])),
    "bytes": ("rounds.jsonl", lambda run: change_line(run, bytes={"up": "a", "down": []})),
    "infinite rounds": ("config.yaml", lambda run: change_config(run, rounds=INF)),
    "no seed": ("config.yaml", lambda run: change_config(run, seed="x")),
    "lambda": ("config.yaml", lambda run: change_config(run, wdr_lambda=[])),
    "objectives": (
        "",
        lambda run: change_config(run, algorithm={"name": "a", "objectives": [{"class_path": []}]}),
    ),
    "result": ("result.json", lambda run: change_json(run / "result.json", received={"last": 1})),
    "result, NaN": (
        "result.json",
        lambda run: change_text(run / "result.json", '"best": {', '"best": NaN, "a": {'),
    ),
    "result, rounds": ("rounds.jsonl", lambda run: change_json(run / "result.json", rounds=9)),
    "result, flipped": (
        "result.json",
        lambda run: change_text(run / "result.json", '"best": {', '"bess": {'),
    ),
}


@pytest.fixture
def runs(page_runs, tmp_path):
    for name in ("cwfedavg-0", "fedavg-0"):
        shutil.copytree(page_runs / name, tmp_path / "runs" / name)
    return tmp_path / "runs"


@pytest.mark.parametrize("name", [name for name in ODD if name not in ("lambda", "objectives")])
@pytest.mark.parametrize("named", [False, True])
def test_an_odd_run_is_passed_over_and_named(runs, tmp_path, name, named, capsys):
    file, change = ODD[name]
    change(runs / "cwfedavg-0")
    given = sorted(runs.iterdir()) if named else [runs]
    assert main(["report", *map(str, given), "-o", str(tmp_path / "page.html")]) == 0
    said = capsys.readouterr()
    assert said.err.startswith(f"Left out, since it cannot be read: {runs}/cwfedavg-0/{file}")
    assert len(said.err.splitlines()) == 1
    assert said.out.startswith("1 run, ")


@pytest.mark.parametrize("name", ["lambda", "objectives"])
def test_what_only_drawing_finds_names_the_folder(runs, tmp_path, name, capsys):
    ODD[name][1](runs / "cwfedavg-0")
    assert main(["report", str(runs), "-o", str(tmp_path / "page.html")]) == 0
    said = capsys.readouterr()
    if not said.out.startswith("2 runs, "):
        assert f"{runs}/cwfedavg-0: expected a run that can be shown" in said.err
        assert said.out.startswith("1 run, ")


@pytest.mark.parametrize("name", ODD)
def test_a_figure_of_an_odd_run_names_its_file(runs, tmp_path, name, capsys):
    file, change = ODD[name]
    change(runs / "cwfedavg-0")
    for kind in KINDS:
        if main(["plot", kind, str(runs / "cwfedavg-0"), "-o", str(tmp_path / "a.png")]):
            error = capsys.readouterr().err.strip()
            assert error.startswith(f"cwfed plot: error: {runs}/cwfedavg-0/{file}")
            assert "\n" not in error
        else:
            assert file in ("", "config.yaml")  # what the figure does not need


def test_damage_beside_the_rounds_is_said_with_the_file(runs, tmp_path, capsys):
    odd = runs / "cwfedavg-0"
    for name in ("labels.json", "partition.json"):
        text = (odd / name).read_text()
        (odd / name).write_text(text.replace('"0"', '"1"', 1).replace('"name"', '"namd"'))
    assert main(["report", str(runs), "-o", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    assert f"No class distribution: {odd}/labels.json: expected label counts: checksum" in page
    assert "partition.json is damaged" in page


def test_when_all_are_odd_the_first_says_why(runs, tmp_path, capsys):
    shutil.rmtree(runs / "fedavg-0")
    change_line(runs / "cwfedavg-0", mean_R="x")
    assert main(["report", str(runs), "-o", str(tmp_path / "page.html")]) == 2
    error = capsys.readouterr().err
    assert f"{runs}/cwfedavg-0/rounds.jsonl: line 3, round 2: mean_R: expected a number" in error
